"""What every test stands on. Fixtures of one room live beside its tests; those that many rooms share are plugins."""

import os
import signal

from hypothesis import settings

from tests.components import require_component
from tests.network_guard import refuse_the_network

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: commands of the tests would inherit that and never hear a Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

__all__ = ["require_component"]

pytest_plugins = ["tests.integration.postgres_server"]

refuse_the_network()

# No deadline: on two busy cores a slow example says nothing. In CI the same examples each time, so that a change is
# judged by what it changed; on a desk and in campaigns new ones.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=1000)
settings.register_profile("campaign", deadline=None, max_examples=5000)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

"""Real parts that a test may need and a machine may lack: skipped on a desk, a failure in CI.

A suite that skips what it cannot find stays green while it tests less and less; so where CI=true is set nothing is
skipped for want of a component.
"""

import os

import pytest


def require_component(name: str, available: bool, how_to_install: str) -> None:
    """Go on if the component is there; else skip the test, or fail it where CI=true is set."""
    if available:
        return
    message = f"{name} is missing here. To get it: {how_to_install}"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)

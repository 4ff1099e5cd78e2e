"""The agent with drills of other lengths, for tests: as its archive is started, from this checkout.

The environment variable DRILL_TIMING has the fields of `Timing` as JSON; `upload_delay_s` is added to each upload.
"""

import json
import os
import sys
import time

from supervisor.agent.__main__ import main
from supervisor.agent.life import drilling
from supervisor.agent.store.access import Transfer

given = json.loads(os.environ["DRILL_TIMING"])
delay_s = given.pop("upload_delay_s", 0.0)
drilling.Drilling.__init__.__defaults__ = (drilling.Timing(**given),)  # type: ignore[attr-defined]
if delay_s:
    upload = Transfer._upload

    def slow_upload(self, *args):  # type: ignore[no-untyped-def]
        time.sleep(delay_s)
        upload(self, *args)

    Transfer._upload = slow_upload  # type: ignore[method-assign]
sys.exit(main())

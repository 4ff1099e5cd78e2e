"""`paced.py GATE SCRIPT [WORDS]`: runs a training whose steps last as long as they say, until the file GATE is there.

From then on they do not wait. So a story decides when a training may end.
"""

import runpy
import sys
import time
from pathlib import Path

gate, sleep = Path(sys.argv[1]), time.sleep


def pace(seconds: float) -> None:
    if not gate.exists():
        sleep(seconds)


time.sleep = pace
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name="__main__")

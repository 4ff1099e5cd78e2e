"""A training that tells its secret in every way it has: `telltale.py GATE`.

In two writes with a pause between them, as JSON, URL and base64, in progress, in the names of a checkpoint and of a
result, and in the traceback of its first life. Its second life goes on from the checkpoint, waits for GATE and ends
well. The result holds the sha256 of the value: proof that it came.
"""

import base64
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import quote

value = os.environ["API_KEY"]
checkpoints, results = Path(os.environ["SPOT_CHECKPOINT_DIR"]), Path(os.environ["SPOT_RESULTS_DIR"])


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def tell(**line: object) -> None:
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as target:
        target.write(json.dumps(line) + "\n")


restored = sorted(path.name for path in checkpoints.iterdir())
half_way = len(value) // 2
say("the key is " + value[:half_way])
time.sleep(1.5)  # the first half has been shipped by then
say(value[half_way:] + "\n")
say(json.dumps({"key": value}) + "\n" + quote(value, safe="") + "\n")
say("Basic " + base64.b64encode(f"me:{value}".encode()).decode() + "\n")
tell(step=1 + len(restored), total=2, metrics={f"loss {value}": 0.5})
if not restored:
    draft = checkpoints / "draft.tmp"
    draft.write_text("work")
    draft.rename(checkpoints / f"{value}-1.txt")
    tell(checkpoint=f"{value}-1.txt", step=1)
    time.sleep(1)  # long enough for its upload
    raise RuntimeError(f"the server refused {value}")
say(f"went on from {len(restored)} checkpoint\n")
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
(results / f"of {value}.txt").write_text(hashlib.sha256(value.encode()).hexdigest())

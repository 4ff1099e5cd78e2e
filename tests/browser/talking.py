"""A training that writes a line and a step repeatedly until a signal ends it. Standard library only."""

import json
import os
import signal
import sys
import time
from pathlib import Path

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
checkpoints = Path(os.environ["SPOT_CHECKPOINT_DIR"])
step = max((int(path.read_text()) for path in checkpoints.glob("step-*.txt")), default=0)
while True:
    step += 1
    sys.stdout.write(f"step {step} of attempt {os.environ['SPOT_ATTEMPT']}\n")
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as progress:
        progress.write(json.dumps({"step": step, "total": 10_000, "loss": 1 / step}) + "\n")
    if step % 5 == 0:
        draft = checkpoints / "draft.tmp"
        draft.write_text(str(step))
        draft.rename(checkpoints / f"step-{step}.txt")
    time.sleep(0.2)

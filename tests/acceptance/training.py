"""A training for stories: it goes on until its gate opens, so that a story decides when everything may end.

`training.py GATE [--pause-s S] [--every N] [--on-term save|ignore] [--best] [--rows]`: counts steps, a checkpoint every
N of them by rename, resumes from what it was given; when the file GATE is there it writes its results and ends. Each
life adds a line to GATE.lives: "<attempt> <step it began at>". Standard library only, so that it starts at once
(`python -S`).
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("gate", type=Path)
parser.add_argument("--pause-s", type=float, default=0.1)
parser.add_argument("--every", type=int, default=3)
parser.add_argument("--on-term", choices=["save", "ignore"], default="save")
parser.add_argument("--fail-after", type=int, default=0, metavar="N", help="exit 3 after the Nth checkpoint of a life")
parser.add_argument("--best", action="store_true", help="each checkpoint is also the best one so far")
parser.add_argument("--rows", action="store_true", help="each step appends a row to metrics.csv")
options = parser.parse_args()

checkpoints, results = Path(os.environ["SPOT_CHECKPOINT_DIR"]), Path(os.environ["SPOT_RESULTS_DIR"])
asked = []
if options.on_term == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))


def tell(**line: object) -> None:
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as target:
        target.write(json.dumps(line) + "\n")


def save(step: int) -> None:
    draft = checkpoints / "draft.tmp"
    draft.write_text(f"{step} steps of work\n" * 100)
    draft.rename(checkpoints / f"step-{step}.txt")
    if options.best:
        draft.write_text(f"the best of {step} steps\n")
        draft.rename(checkpoints / f"best-{step}.txt")


began = step = max((int(path.read_text().split()[0]) for path in checkpoints.glob("step-*.txt")), default=0)
with Path(f"{options.gate}.lives").open("a") as lives:
    lives.write(f"{os.environ['SPOT_ATTEMPT']} {step}\n")
sys.stdout.write(f"begins at step {step}\n")
sys.stdout.write(f"sees {dict(os.environ)}\n")  # nothing in it may be a secret that it has not asked for
saved = 0
while not options.gate.exists():
    if asked:
        save(step)
        sys.exit(143)
    step += 1
    tell(step=step)
    if options.rows:
        with results.joinpath("metrics.csv").open("a") as rows:
            rows.write(f"{step}\n")
    if step % options.every == 0:
        save(step)
        saved += 1
        tell(checkpoint=f"step-{step}.txt", step=step)
        if saved == options.fail_after:
            time.sleep(1)  # long enough for its upload
            sys.stdout.write("ValueError: loss is NaN\n")
            sys.exit(3)
    time.sleep(options.pause_s)
results.joinpath("out.txt").write_text(f"{step} steps\n")

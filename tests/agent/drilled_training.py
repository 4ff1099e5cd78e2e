"""A training for drills: good ones, and one for each way in which a training fails at a preemption notice.

Runs on Python 3.8 with the standard library. Each step uses 8 samples and reports their position; the loss follows from
the step. `--kind` plants the fault. `--ledger` is a file outside of the machine: a line "<attempt> <step>" for
each step done, which no agent has told.
"""

import argparse
import json
import os
import signal
import sys
import time

GOOD = ("good", "good_phases", "good_slow")
BAD = (
    "swallow", "dies", "handler", "torn", "blind", "shift", "repeats", "skips", "zero", "loss", "crash", "late_save",
    "slow_upload",
)  # fmt: skip

parser = argparse.ArgumentParser()
parser.add_argument("--kind", choices=(*GOOD, *BAD, "ignores"), default="good")
parser.add_argument("--delay-s", type=float, default=0.01)
parser.add_argument("--every", type=int, default=40, help="steps between two checkpoints")
parser.add_argument("--first", type=int, default=0, help="one more checkpoint, at this step")
parser.add_argument("--warm-up-s", type=float, default=0.0)
parser.add_argument("--save-s", type=float, default=0.5, help="how long `good_slow` saves at TERM")
parser.add_argument("--ledger", default=os.devnull)
options = parser.parse_args()
kind, folder = options.kind, os.environ["SPOT_CHECKPOINT_DIR"]
terms = []


def tell(**line):
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as target:
        target.write(json.dumps(line) + "\n")


def save(number, torn=False):
    path = os.path.join(folder, "step-%d.state" % number)
    text = json.dumps({"step": number, "model": "m" * 200})
    with open(path if torn else path + ".tmp", "w") as target:
        target.write(text[: len(text) // 2] if torn else text)
    if not torn:
        os.rename(path + ".tmp", path)


def on_term(signum, frame):
    if kind == "handler":  # a save inside of the handler stops in the middle of its write
        with open(os.path.join(folder, ".step-%d.tmp" % step), "w") as target:
            target.write("{")
        os._exit(1)
    if kind == "torn":
        save(step, torn=True)
        os._exit(1)
    terms.append(signum)


def resumes():
    """How often this command was started before."""
    with open("starts", "a") as target:
        target.write("x")
    return os.path.getsize("starts") - 1


if kind == "swallow":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif kind != "dies":
    signal.signal(signal.SIGTERM, on_term)
resumed = resumes()
states = []
for name in os.listdir(folder):
    if name.endswith(".state") and kind != "ignores":
        with open(os.path.join(folder, name)) as source:
            states.append(json.load(source)["step"])  # a torn one ends the command here
step = max(states, default=0)
if kind == "crash" and states and resumed:
    raise RuntimeError("this checkpoint cannot be loaded")
if kind == "zero":
    step = 0
if kind == "repeats" and resumed:
    step = max(0, step - 3)
if kind == "skips" and resumed:
    step += 5
ledger = open(options.ledger, "a", buffering=1)  # noqa: SIM115 - until the end
time.sleep(options.warm_up_s)
shift = 24 if kind == "shift" and resumed > 1 else 0  # from the second resume on
while step < 1_000_000:
    step += 1
    time.sleep(options.delay_s)
    loss = 900.0 if kind == "loss" and resumed else 2.0 + 1.0 / step
    tell(step=step, metrics={"loss": loss, "data_position": 8 * step + shift})
    ledger.write("%s %d\n" % (os.environ.get("SPOT_ATTEMPT"), step))
    if step % options.every == 0 or step == options.first:
        save(step)
    if kind in ("good_phases", "blind") and step % 25 == 0:
        tell(phase="evaluation")
        until = time.monotonic() + (2.5 if kind == "blind" else 0.4)
        while time.monotonic() < until and not (terms and kind == "good_phases"):
            time.sleep(0.01)
    if terms:
        if kind in ("good_slow", "late_save"):
            time.sleep(30.0 if kind == "late_save" else options.save_s)
        save(step)
        sys.exit(143)

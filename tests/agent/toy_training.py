"""A training for tests: counts steps, saves checkpoints by rename, resumes, and misbehaves on demand.

Runs on Python 3.8 with the standard library. Each checkpoint holds the sum of all steps so far, so a resume that lost
or repeated a step shows in the result.
"""

import argparse
import json
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--delay-s", type=float, default=0.02)
parser.add_argument("--every", type=int, default=2)
parser.add_argument("--exit", type=int, default=0)
parser.add_argument("--on-term", choices=["die", "save", "polite", "ignore"], default="die")
parser.add_argument("--wait-at", type=int, default=-1, help="stay at this step until the file `go` appears in cwd")
parser.add_argument("--long-line", type=int, default=0)
parser.add_argument("--in-place", action="store_true")
parser.add_argument("--no-results", action="store_true")
parser.add_argument("--stray", action="store_true", help="leave a process in a session of its own behind")
options = parser.parse_args()

folder, results = os.environ["SPOT_CHECKPOINT_DIR"], os.environ["SPOT_RESULTS_DIR"]
terms = []
if options.on_term == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif options.on_term != "die":
    signal.signal(signal.SIGTERM, lambda number, frame: terms.append(number))


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(**line):
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as target:
        target.write(json.dumps(line) + "\n")


def save(step, total):
    name = "last.json" if options.in_place else "step-%d.json" % step
    path = os.path.join(folder, name)
    with open(path if options.in_place else path + ".tmp", "w") as target:
        json.dump({"step": step, "sum": total}, target)
    if not options.in_place:
        os.rename(path + ".tmp", path)
    tell(checkpoint=name, step=step)


def load():
    states = []
    for name in os.listdir(folder):
        if name.endswith(".json"):
            with open(os.path.join(folder, name)) as source:
                data = json.load(source)
            states.append((data["step"], data["sum"]))
    return max(states, default=(0, 0))


step, total = load()
say("begins at step %d resumed from %s" % (step, os.environ.get("SPOT_RESUMED_FROM_STEP", "nothing")))
if options.stray and os.fork() == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)
if options.long_line:
    say("x" * options.long_line)
while step < options.steps:
    while step == options.wait_at and not os.path.exists("go") and not terms:
        time.sleep(0.01)
    if terms:
        save(step, total)
        sys.exit(0 if options.on_term == "polite" else 143)
    step += 1
    total += step
    tell(step=step, total=options.steps, metrics={"sum": total})
    time.sleep(options.delay_s)
    if step % options.every == 0:
        save(step, total)
if options.exit:
    say("ModuleNotFoundError: No module named 'timm'")
    sys.exit(options.exit)
if not options.no_results:
    with open(os.path.join(results, "sum.txt"), "w") as target:
        target.write(str(total))
    os.mkdir(os.path.join(results, "more"))
    with open(os.path.join(results, "more", "steps.txt"), "w") as target:
        target.write(str(step))
say("finished")

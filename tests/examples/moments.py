"""Stops an example at 50 moments, one after the other: during a step, during a save, during a check.

A moment is a line of the example, of the library's stub or of spot_progress. It is counted from a step just before a
regular save. There the stop file appears, and TERM comes at the same line or some lines later, as from the agent. Each
moment is a fork of this process, so the imports run once. Prints one JSON line per moment: [last step reported, step of
the newest complete checkpoint, exit code (negative: a signal)].
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import runpy
import signal
import sys
from pathlib import Path

MOMENTS, APART_LINES = 50, 3

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("script")
parser.add_argument("--watch", nargs="+", help="folders of the code whose lines count")
parser.add_argument("--from-step", type=int)
parser.add_argument("--preload", nargs="*", default=[], help="modules")
parser.add_argument("--broken", action="store_true", help="the callback saves at no exception")
parser.add_argument("--term-apart", type=int, help="lines between the file and TERM")
options, arguments = parser.parse_known_args()


class Moment:
    """Counts lines once the training has reached `from_step`."""

    def __init__(self, line: int) -> None:
        self.asks_at, self.count, self.counts = line, 0, False

    def trace(self, frame, event, argument):
        watched = frame.f_code.co_filename.startswith(tuple(options.watch))
        return self.on_line if watched else None

    def on_line(self, frame, event, argument):
        if self.counts and event == "line":
            self.count += 1
            if self.count == self.asks_at:
                open(os.environ["SPOT_STOP_FILE"], "w").close()
            if self.count == self.asks_at + options.term_apart:
                os.kill(os.getpid(), signal.SIGTERM)
        return self.on_line


def train(moment: Moment, folder: Path) -> None:
    import spot_progress

    for role in ("CHECKPOINT_DIR", "RESULTS_DIR"):
        path = folder / role
        path.mkdir(parents=True)
        os.environ["SPOT_" + role] = str(path)
    os.environ.update(SPOT_PROGRESS_FILE=str(folder / "progress"), SPOT_STOP_FILE=str(folder / "stop"))
    report = spot_progress.report

    def reported(step: int, **more: object) -> None:
        report(step, **more)
        moment.counts = step >= options.from_step

    spot_progress.report = reported
    if options.broken:
        del importlib.import_module("callback").SpotCallback.on_exception
    sys.argv = [options.script, *arguments]
    sys.settrace(moment.trace)
    runpy.run_path(options.script, run_name="__main__")


def child(moment: Moment, folder: Path) -> int:
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            train(moment, folder)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def steps(folder: Path) -> "tuple[int, int]":
    lines = [json.loads(line) for line in (folder / "progress").read_text().splitlines()]
    names = [path.name for path in (folder / "CHECKPOINT_DIR").iterdir() if not path.name.startswith(".")]
    saved = [int(re.findall(r"\d+", name)[-1]) for name in names if not name.endswith(".tmp")]
    return max(line["step"] for line in lines), max(saved, default=0)


for module in options.preload:
    importlib.import_module(module)
for number in range(MOMENTS):
    place = options.folder / str(number)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = child(Moment(1 + number * APART_LINES), place)
        sys.settrace(None)
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    sys.stdout.write(json.dumps([*steps(place), os.waitstatus_to_exitcode(status)]) + "\n")

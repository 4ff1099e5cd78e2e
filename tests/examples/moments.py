"""Stops an example at 50 moments, one after the other: during a step, during a save, during a check.

A moment is a line of the example, of the library's stub or of spot_progress. It is counted from a step just before a
regular save. There the stop file appears, and TERM comes at the same line or some lines later, as from the agent. The
training begins once: each moment is a fork of it at that step, with a copy of its folder. Prints one JSON line per
moment: [last step reported, step of the newest complete checkpoint, exit code (negative: a signal)].
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import runpy
import shutil
import signal
import sys
from pathlib import Path

MOMENTS, APART_LINES = 50, 3
FOLDERS = ("CHECKPOINT_DIR", "RESULTS_DIR")

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("script")
parser.add_argument("--watch", nargs="+", help="folders of the code whose lines count")
parser.add_argument("--from-step", type=int)
parser.add_argument("--broken", action="store_true", help="the callback saves at no exception")
parser.add_argument("--term-apart", type=int, help="lines between the file and TERM")
options, arguments = parser.parse_known_args()


class Training:
    """Until it has reached `from_step` it is one; from there on it is a moment, and counts its lines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, sys.stdout
        self.asks_at, self.count = 0, 0  # 0 = at no line

    def trace(self, frame, event, argument):
        watched = frame.f_code.co_filename.startswith(tuple(options.watch))
        return self.on_line if watched else None

    def on_line(self, frame, event, argument):
        if self.asks_at and event == "line":
            self.count += 1
            if self.count == self.asks_at:
                open(os.environ["SPOT_STOP_FILE"], "w").close()
            if self.count == self.asks_at + options.term_apart:
                os.kill(os.getpid(), signal.SIGTERM)
        return self.on_line

    def run(self) -> int:
        """Its exit code, in the process of a moment."""
        import spot_progress

        for role in FOLDERS:
            self.folder.joinpath("begun", role).mkdir(parents=True)
            os.environ["SPOT_" + role] = role
        os.chdir(self.folder / "begun")  # every path is relative: a moment changes to its own copy
        os.environ.update(SPOT_PROGRESS_FILE="progress", SPOT_STOP_FILE="stop")
        report = spot_progress.report

        def reported(step: int, **more: object) -> None:
            report(step, **more)
            if step >= options.from_step and not self.asks_at:
                self.fork()

        spot_progress.report = reported
        if options.broken:
            del importlib.import_module("callback").SpotCallback.on_exception
        sys.argv = [options.script, *arguments]
        sys.settrace(self.trace)
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                runpy.run_path(options.script, run_name="__main__")
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0
        return 0

    def fork(self) -> None:
        """Returns in each moment; the first process tells of all of them, and ends."""
        for number in range(MOMENTS):
            place = self.folder / str(number)
            shutil.copytree(self.folder / "begun", place)
            pid = os.fork()
            if pid == 0:
                os.chdir(place)
                self.asks_at = 1 + number * APART_LINES
                return
            status = os.waitpid(pid, 0)[1]
            self.out.write(json.dumps([*steps(place), os.waitstatus_to_exitcode(status)]) + "\n")
        self.out.flush()
        os._exit(0)


def steps(folder: Path) -> "tuple[int, int]":
    lines = [json.loads(line) for line in (folder / "progress").read_text().splitlines()]
    names = [path.name for path in (folder / "CHECKPOINT_DIR").iterdir() if not path.name.startswith(".")]
    saved = [int(re.findall(r"\d+", name)[-1]) for name in names if not name.endswith(".tmp")]
    return max(line["step"] for line in lines), max(saved, default=0)


code = Training(options.folder).run()
sys.settrace(None)
os._exit(code)

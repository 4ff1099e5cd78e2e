"""The phases of a trial, what each of them waits for, and the report.

Everything is read from the trial's own supervisor, as any client would: the run, its attempts, its facts, the consoles
of its machines. A phase lasts from the end of the one before until its condition holds. The first failed phase ends the
trial; the later ones are "not reached".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json, run_path
from supervisor.cli.exits import Problem
from supervisor.cli.output import safe
from supervisor.domain.status import TERMINAL

T = TypeVar("T")
POLL_S = 1.0
LAST_BYTES = 65_536
# Words that the start-up script of the machine writes to its console.
DRIVER_READY, IMAGE_PULLED = "GPUs respond", "image pulled in"
SIGNS = {"ok": ("✔", "green"), "failed": ("✗", "red"), "not reached": ("·", "bright_black")}
# The training of a trial: it counts until its machine is preempted; resumed, it has 20 steps left. Any Python 3 runs
# it.
TRAINING = """\
import json, os, pathlib, sys, time
box = pathlib.Path(os.environ["SPOT_CHECKPOINT_DIR"])
step = max([int(path.name[5:]) for path in box.glob("step-*")] or [0])
last = step + 20 if step else 2400
print("the trial's training begins at step", step, flush=True)
while step < last:
    step += 1
    leaving = os.path.exists(os.environ["SPOT_STOP_FILE"])
    if step % 5 == 0 or leaving:
        half = box / ".half"
        half.write_text(str(step))
        half.rename(box / ("step-%d" % step))
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as progress:
        progress.write(json.dumps({"step": step}) + "\\n")
    if leaving:
        sys.exit(1)
    time.sleep(0.5)
pathlib.Path(os.environ["SPOT_RESULTS_DIR"], "trial.txt").write_text("%d steps\\n" % step)
"""
# Phase -> what helps where it fails, beside what the run itself reports.
REMEDIES = {
    "doctor": "apply the fix of the check, then retry: nothing was rented",
    "supervisor": "read serve.log in the report's folder",
    "machine": "try other zones (--zones), a later time, or --no-gpu; raise a quota in the console of the project",
    "driver": "read console.log in the report's folder; gce_gpu_driver_version and gce_boot_image choose the driver",
    "container": "check the image's name, and that the machines' account may pull it: spot doctor",
    "beat": "the machine's account must be allowed to write to the bucket: spot doctor; see console.log",
    "card": "driver and image do not match: gce_gpu_driver_version = latest, or an image for an older CUDA",
    "bucket": "the machine's account must be allowed to create and read objects in the bucket: spot doctor",
    "notice": "your account needs compute.instances.simulateMaintenanceEvent (feature preempt of deploy/terraform)",
    "resume": "read the events in report.json: they show what happened to the next machine",
    "finish": "read console.log and the events in report.json",
    "delete": "spot trial --clean deletes what is left",
    "clean": "spot trial --clean deletes what is left",
}
PHASES = tuple(REMEDIES)


class PhaseFailed(Exception):
    """The text says what was seen instead."""


@dataclass
class Phase:
    """A line of the report; its fields are those of report.json."""

    name: str
    result: str = "not reached"  # or ok, failed
    seconds: float | None = None
    seen: str = ""
    remedy: str = ""


@dataclass
class Report:
    """Written to report.json in `folder`, beside the recording, the consoles and the supervisor's log."""

    folder: Path
    trial: str
    facts: Json
    phases: list[Phase] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    cost_usd: float | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[Phase]:
        """Its line is printed when it ends. Raises what the body raises, after it was recorded."""
        phase, began = next(listed for listed in self.phases if listed.name == name), time.monotonic()
        try:
            yield phase
            phase.result = "ok"
        except BaseException as error:
            phase.result, phase.remedy = "failed", REMEDIES[name]
            phase.seen = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            raise
        finally:
            phase.seconds = round(time.monotonic() - began, 1)
            self.save()
            self._show(phase)

    def ok(self) -> bool:
        return all(phase.result == "ok" for phase in self.phases)

    def save(self) -> None:
        document = {
            "trial": self.trial,
            "ok": self.ok(),
            **self.facts,
            "cost_usd": self.cost_usd,
            "phases": [asdict(phase) for phase in self.phases],
            "events": self.events,
        }
        path = self.folder / "report.json"
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _show(self, phase: Phase) -> None:
        sign, color = SIGNS[phase.result]
        seconds = "" if phase.seconds is None else f"{phase.seconds:.1f} s"
        line = f"{sign} {phase.name:<10} {seconds:>8}  {safe(phase.seen)}"
        _print(click.style("\n".join(output.paragraph(line, " " * 23)), fg=color))
        if phase.remedy:
            _print(f"    fix: {phase.remedy}")

    def finish(self) -> None:
        """Print the phases that were not reached, the sum, and where the files are."""
        for phase in self.phases:
            if phase.result == "not reached":
                self._show(phase)
        done = sum(phase.result == "ok" for phase in self.phases)
        cost = "unknown" if self.cost_usd is None else f"${self.cost_usd:.2f}"
        _print(f"\n{done} of {len(self.phases)} phases ok. Cost of the machines: {cost}.")
        _print(f"Report: {self.folder / 'report.json'}")
        _print(f"Recording: {self.folder / 'recording.jsonl'} (read it before you share it)")
        self.save()


def _print(text: str) -> None:
    """A trial whose reader has left continues to its end, where it removes what it created."""
    with suppress(OSError):
        click.echo(text)


@dataclass
class Watch:
    """One run, read until a condition holds. `until`: of time.monotonic, when the trial is given up."""

    client: Client
    run_id: str
    console: Path
    until: float
    run: Json = field(default_factory=dict)
    attempts: list[Json] = field(default_factory=list)
    text: str = ""  # all consoles so far
    _offsets: dict[int, int] = field(default_factory=dict)  # attempt -> offset in its console

    def wait(self, holds: Callable[[], T], what: str) -> T:
        """The result of `holds` once it is true. Raises PhaseFailed where the run ends before, or time is up."""
        while True:
            self.read()
            result = holds()
            if result:
                return result
            if self.run["status"] in TERMINAL:
                raise PhaseFailed(f"{what} did not come: {self.run['status_text']}")
            if time.monotonic() > self.until:
                raise PhaseFailed(f"{what} did not come in time: {self.run['status_text']}")
            time.sleep(POLL_S)

    def line(self, words: str) -> str:
        """The newest line of a console with these words; "" = none. Once the training runs, the line may be gone."""
        lines = [line for line in self.text.splitlines() if words in line]
        if lines:
            return lines[-1].partition('msg="')[2].rstrip('"') or lines[-1]
        return "not on the console, but the training runs" if self.run["status"] == "running" else ""

    def facts(self) -> Json:
        """Those of the newest attempt with known facts."""
        attempts = self.client.get(run_path(self.run_id, "facts"))["attempts"]
        facts: list[Json] = [attempt["facts"] for attempt in attempts if attempt["facts"]]
        return facts[-1] if facts else {}

    def events(self) -> list[Json]:
        events: list[Json] = self.client.get(run_path(self.run_id, "events"), limit=200)["events"]
        return events

    def read(self) -> None:
        self.run = self.client.get(run_path(self.run_id))
        self.attempts = self.client.get(run_path(self.run_id, "attempts"))["attempts"]
        if self.attempts:
            self._read_console(self.attempts[-1]["number"])

    def _read_console(self, attempt: int) -> None:
        path, after = run_path(self.run_id, "console"), self._offsets.get(attempt, -LAST_BYTES)
        try:
            console = self.client.get(path, attempt=attempt, after=after)
        except Problem:  # there is none yet, or none any more
            return
        self._offsets[attempt] = console["next_offset"]
        if console["text"]:
            self.text += console["text"]
            with self.console.open("a", encoding="utf-8") as file:
                file.write(console["text"])


def play(report: Report, watch: Watch, gpu: bool) -> None:
    """From the machine to its deletion. Raises PhaseFailed, CliError."""
    _boots(report, watch, gpu)
    number = _is_preempted(report, watch)
    with report.phase("resume") as phase:
        watch.wait(lambda: watch.run["attempt"] and watch.run["attempt"] > number, "another machine")
        at = watch.wait(lambda: watch.attempts[-1]["step_from"], "a step to continue from")
        phase.seen = f"attempt {watch.attempts[-1]['number']} in {_zone(watch)} continued from step {at}"
    with report.phase("finish") as phase:
        watch.wait(lambda: watch.run["status"] == "completed", "the end")
        phase.seen = watch.run["status_text"]
    with report.phase("delete") as phase:
        # Not watch.wait, because the run has ended.
        while not all(attempt["gone_at"] for attempt in watch.attempts):
            if time.monotonic() > watch.until:
                raise PhaseFailed("a machine of the run is still there")
            time.sleep(POLL_S)
            watch.read()
        phase.seen = f"{len(watch.attempts)} machines are gone"


def _boots(report: Report, watch: Watch, gpu: bool) -> None:
    with report.phase("machine") as phase:
        machine = watch.wait(lambda: watch.attempts and watch.attempts[-1]["machine_id"], "a machine")
        phase.seen = f"{watch.attempts[-1]['machine']} ({machine}) in {_zone(watch)}"
    if gpu:
        with report.phase("driver") as phase:
            phase.seen = watch.wait(lambda: watch.line(DRIVER_READY), "the GPU driver")
    with report.phase("container") as phase:
        phase.seen = watch.wait(lambda: watch.line(IMAGE_PULLED), "the image")
    with report.phase("beat") as phase:
        watch.wait(lambda: watch.run["status"] == "running", "the first heartbeat")
        phase.seen = watch.run["status_text"]
    if gpu:
        with report.phase("card") as phase:
            cards: list[Any] = watch.wait(lambda: watch.facts().get("gpus") or [], "the name of the GPU")
            names = [str(card.get("name", card)) if isinstance(card, dict) else str(card) for card in cards]
            phase.seen = f"{', '.join(names)}, driver {watch.facts().get('driver')}"
    with report.phase("bucket") as phase:
        step = watch.wait(lambda: watch.run["checkpoint_step"], "a checkpoint in the bucket")
        phase.seen = f"checkpoint of step {step} stored and verified"


def _is_preempted(report: Report, watch: Watch) -> int:
    """The number of the attempt that lost its machine."""
    with report.phase("notice") as phase:
        number = int(watch.attempts[-1]["number"])
        watch.client.post("/v1/dev/preempt", {"run_id": watch.run_id, "notice_s": 30.0, "confirm": True})
        watch.wait(lambda: _attempt(watch, number)["cause"], "the end of the machine")
        lost = _attempt(watch, number)
        if lost["cause"] != "preempted":
            raise PhaseFailed(f"the end of the machine was recorded as {lost['cause']}: {lost['evidence']}")
        phase.seen = f"preempted; step {lost['step_kept']} is kept"
    return number


def _attempt(watch: Watch, number: int) -> Json:
    return next(attempt for attempt in watch.attempts if attempt["number"] == number)


def _zone(watch: Watch) -> str:
    return str(watch.attempts[-1]["placement"]["zone"])

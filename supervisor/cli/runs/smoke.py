"""smoke: a few steps of the training on this computer, twice, before anything is rented.

The smoke command runs in a copy of the code as the run would get it, with folders of its own, on the CPU and without
trackers. It must end with exit code 0 and without a traceback; the second start must resume from what the first one
saved. Everything it wrote is deleted afterward.
"""

from __future__ import annotations

import json
import os
import pkgutil
import platform
import shlex
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from supervisor.cli.exits import FAILED, USAGE, CliError
from supervisor.cli.options import duration_s, not_empty
from supervisor.cli.output import note, safe
from supervisor.wording.figures import duration

SMOKE_S = 600.0
LAST_LINES = 12
COMPUTER_MAX, COMMAND_MAX = 128, 4096  # characters that the API takes
TRACEBACK = "Traceback (most recent call last)"
# The CPU alone, and no tracker that would record the smoke: each is a documented variable of its library.
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
}
FIX = "fix it, and try again with `spot smoke`; nothing was rented"


@dataclass(frozen=True)
class Started:
    """One start of the command. `steps`: as it reported them. `saved`: names in its folder of checkpoints."""

    exit_code: int
    output: str
    steps: tuple[int, ...]
    saved: tuple[str, ...]


@click.command()
@click.option("--code", metavar="DIR", default=".", callback=not_empty, help="The folder of the code (this one).")
@click.option("--env", "-e", "pairs", metavar="KEY=VALUE", multiple=True, help="Its environment variable; repeatable.")
@click.option(
    "--limit", "limit_s", type=duration_s, default="10m", metavar="TIME", help="Longest time of one start (10m)."
)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND ARGS...")
def smoke(code: str, pairs: tuple[str, ...], limit_s: float, command: tuple[str, ...]) -> None:
    """Run COMMAND for a few steps on this computer, twice: it must succeed, and the second start must resume.

    \b
      spot smoke -- python train.py --steps 2
    """
    env = dict(pair.partition("=")[::2] for pair in pairs)
    check_smoke(shlex.join(command), Path(code), env, limit_s)


def check_smoke(command: str, code: Path | None, env: Mapping[str, str], limit_s: float = SMOKE_S) -> dict[str, Any]:
    """How it ended, for the submit (SmokeBody of the API, without the hash of the code). `command`: for /bin/sh.
    `code`: the folder that the run gets a copy of; None = it runs in this folder. Raises CliError: SMOKE_FAILED,
    DOES_NOT_RESUME."""
    at = datetime.now(UTC).isoformat()
    with tempfile.TemporaryDirectory(prefix="spot-smoke-") as name:
        scene = _Scene(Path(name), command, env, limit_s)
        scene.unpack(code)
        first = scene.start()
        _check_end(first, "")
        second = scene.start()
        _check_end(second, "the second start of ")
        note(_resumed(first, second))
    return {
        "at": at,
        "computer": platform.node()[:COMPUTER_MAX] or "this computer",
        "command": command[:COMMAND_MAX],
        "exit_codes": [first.exit_code, second.exit_code],
        "first_step": first.steps[-1] if first.steps else None,
        "second_from": second.steps[0] if second.steps else None,
    }


class _Scene:
    """The folders of the smoke, as the agent makes them for a run."""

    def __init__(self, root: Path, command: str, env: Mapping[str, str], limit_s: float) -> None:
        self._root, self._command, self._env, self._limit_s = root, command, env, limit_s
        self._cwd = Path.cwd()
        self._last_step: int | None = None  # that the last start reported
        self._checkpoints, self._progress = root / "checkpoints", root / "progress.jsonl"
        for folder in ("checkpoints", "results", "python"):
            (root / folder).mkdir()
        for name in ("spot_progress.py", "spot_trackers.py"):
            module = pkgutil.get_data("supervisor.agent", name)
            if module is not None:
                (root / "python" / name).write_bytes(module)

    def unpack(self, code: Path | None) -> None:
        """A copy of the files that the run would get. Raises CliError."""
        if code is None:
            return
        if not code.is_dir():
            raise CliError(f"code: {code} is not a folder.", USAGE, "CODE_REFUSED")
        from supervisor.cli.files.pack import packed

        self._cwd = self._root / "code"
        with packed(code) as bundle, tarfile.open(fileobj=bundle.file, mode="r:gz") as archive:
            archive.extractall(self._cwd, filter="data")

    def start(self) -> Started:
        """Run the command to its end. Raises CliError after `limit_s`."""
        self._progress.unlink(missing_ok=True)
        resumed = self._last_step if self._saved() else None
        process = subprocess.Popen(
            ["/bin/sh", "-c", self._command],
            cwd=self._cwd,
            env=self._environment(resumed),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with _killed_at_the_end(process):
            try:
                output, _ = process.communicate(timeout=self._limit_s)
            except subprocess.TimeoutExpired:
                text = f"The smoke did not end within {duration(self._limit_s)}. Give it fewer steps; {FIX}."
                raise CliError(text, FAILED, "SMOKE_FAILED") from None
        steps = self._steps()
        self._last_step = steps[-1] if steps else None
        return Started(process.returncode, output.decode(errors="replace"), steps, self._saved())

    def _environment(self, resumed_from: int | None) -> dict[str, str]:
        python = [str(self._root / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        resumed = {} if resumed_from is None else {"SPOT_RESUMED_FROM_STEP": str(resumed_from)}
        return {
            **kept,
            **QUIET,
            **self._env,
            **resumed,
            "PYTHONPATH": os.pathsep.join(python),
            "SPOT_RUN_ID": "smoke",
            "SPOT_ATTEMPT": "1",
            "SPOT_CHECKPOINT_DIR": str(self._checkpoints),
            "SPOT_RESULTS_DIR": str(self._root / "results"),
            "SPOT_PROGRESS_FILE": str(self._progress),
            "SPOT_STOP_FILE": str(self._root / "stopping"),
        }

    def _saved(self) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in self._checkpoints.iterdir()))

    def _steps(self) -> tuple[int, ...]:
        """What it reported with spot_progress.report; other lines are left out."""
        steps = []
        with suppress(OSError):
            for line in self._progress.read_text(errors="replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    entry: dict[str, Any] = json.loads(line)
                    if "checkpoint" not in entry:
                        steps.append(int(entry["step"]))
        return tuple(steps)


@contextmanager
def _killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever the command started is over with it."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _check_end(started: Started, which: str) -> None:
    """Raises CliError."""
    failed = started.exit_code != 0
    if not failed and TRACEBACK not in started.output:
        return
    lines = started.output.rstrip().splitlines()[-LAST_LINES:]
    for line in lines:
        note(f"  | {safe(line)}")
    why = f"ended with exit code {started.exit_code}" if failed else "printed a traceback"
    said = "Its last lines are above." if lines else "It printed nothing."
    text = f"The smoke failed: {which}the command {why}. {said} {FIX[0].upper()}{FIX[1:]}."
    raise CliError(text, FAILED, "SMOKE_FAILED")


def _resumed(first: Started, second: Started) -> str:
    """What was seen, in words. Raises CliError."""
    if not first.saved:
        text = "It wrote no checkpoint into SPOT_CHECKPOINT_DIR, so a preempted run would start from nothing"
        raise CliError(f"The training does not resume: {text}; {FIX}.", FAILED, "DOES_NOT_RESUME")
    if not first.steps:
        return "smoke: it succeeded twice. It reports no step, so whether it resumes was not checked."
    span = f"the first start reported steps {first.steps[0]} to {first.steps[-1]}"
    if not second.steps:
        return f"smoke: it succeeded twice; {span}, and the second had nothing left to do."
    if second.steps[0] <= first.steps[0] and first.steps[-1] > 0:
        text = f"{span}, and the second one began at step {second.steps[0]} again"
        raise CliError(f"The training does not resume: {text}; {FIX}.", FAILED, "DOES_NOT_RESUME")
    return f"smoke: it succeeded twice; {span}, and the second went on at step {second.steps[0]}."

"""The processes of the demo: a supervisor, the uninterrupted twin, and the end of all of them; with a temporary folder.

The supervisor starts machines, which outlive it. Every process of the demo inherits a variable that names its folder;
only processes with this variable ever get a signal.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "examples" / "digits"  # the folder that is copied to the machines
TRAINING = CODE / "train.py"
READY_WITHIN_S = 40.0
STOP_WITHIN_S = 10.0
CHECK_S = 0.05
TWIN_NICENESS = 10
MARKER = "DIGITS_DEMO_FOLDER"


@dataclass(frozen=True)
class Process:
    """One process, unambiguously: a pid can be used again, a pid with its start ticks cannot."""

    pid: int
    start_ticks: int


class ProcessFailed(Exception):
    """A process of the demo failed."""


class Processes:
    """`settings`: SPOT_ variables of the supervisor; those of the caller are not passed on."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="spot-demo-"))
        self.data_dir = self.folder / "data"
        self._log = self.folder / "supervisor.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        clean[MARKER] = str(self.folder)
        self._env = {**clean, **settings}
        self._twin_env = clean
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._twin: subprocess.Popen[bytes] | None = None

    def add_settings(self, settings: dict[str, str]) -> None:
        """More variables of the supervisor, before its start."""
        self._env |= settings

    # --- the supervisor ------------------------------------------------------------------------------------------

    def start_supervisor(self, is_ready: Callable[[], bool]) -> int:
        """Start it on a free port and wait until it is ready; its pid. Raises HouseFailed."""
        command = [sys.executable, "-m", "supervisor", "serve", "--data-dir", str(self.data_dir), "--port", "0"]
        with self._log.open("ab") as log:
            child = self._supervisor = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends the supervisor itself
            )
        give_up_at = time.monotonic() + READY_WITHIN_S
        while not (self._server_file().get("pid") == child.pid and is_ready()):
            if child.poll() is not None:
                raise ProcessFailed(f"the supervisor ended at its start with exit code {child.returncode}")
            if time.monotonic() > give_up_at:
                raise ProcessFailed(f"the supervisor was not ready within {READY_WITHIN_S:.0f} s")
            time.sleep(CHECK_S)
        return child.pid

    def kill_supervisor(self) -> None:
        """kill -9, as a power cut would."""
        assert self._supervisor is not None
        self._supervisor.kill()
        self._supervisor.wait()

    def url(self) -> str:
        """The present address of the supervisor, from its server.json; empty when there is none."""
        return str(self._server_file().get("url", ""))

    def log_tail(self, lines: int = 15) -> list[str]:
        with suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
        return []

    def _server_file(self) -> dict[str, object]:
        try:
            return dict(json.loads((self.data_dir / "server.json").read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return {}

    def token(self) -> str:
        """The admin's token, which the supervisor writes into its data folder; empty before its first start."""
        with suppress(OSError):
            return (self.data_dir / "admin-token").read_text(encoding="utf-8").strip()
        return ""

    def spot(self, *words: str, folder: Path = ROOT) -> tuple[int, list[str]]:
        """Run a `spot` command in `folder`, like a user, its output on the screen: exit code and lines."""
        command = [sys.executable, "-m", "supervisor", *words, "--data-dir", str(self.data_dir)]
        with subprocess.Popen(
            command,
            cwd=folder,
            env=self._twin_env | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as child:
            assert child.stdout is not None
            lines = []
            for line in child.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
        return child.returncode, lines

    # --- the trainings -------------------------------------------------------------------------------------------

    def start_twin(self, arguments: Sequence[str]) -> None:
        """The same script with the same arguments, without interruptions and at a low priority."""
        command = [sys.executable, str(TRAINING), *arguments, "--out", str(self.folder / "twin")]
        with (self.folder / "twin.log").open("wb") as log:
            self._twin = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._twin_env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.setpriority(os.PRIO_PROCESS, self._twin.pid, TWIN_NICENESS)

    def wait_for_twin(self, within_s: float) -> None:
        """Raises HouseFailed."""
        assert self._twin is not None
        try:
            code = self._twin.wait(within_s)
        except subprocess.TimeoutExpired:
            raise ProcessFailed(f"the uninterrupted training did not end within {within_s:.0f} s") from None
        if code != 0:
            raise ProcessFailed(f"the uninterrupted training ended with exit code {code}")

    def weights_sha256(self, pulled: str) -> str | None:
        """Of the results that were pulled into this folder."""
        return _sha256(self.folder / pulled / "weights.npz")

    def twin_sha256(self) -> str | None:
        return _sha256(self.folder / "twin" / "results" / "weights.npz")

    def machine_dir(self, machine: str) -> Path:
        """The folder of this machine's agent."""
        return self.data_dir / "machines" / machine

    def training_process(self, machine: str) -> Process | None:
        """The training itself (not its agent) on that machine; None when it does not run."""
        marker = f"SPOT_MACHINE_DIR={self.machine_dir(machine)}".encode()
        for pid, environment in _environments():
            if marker in environment and TRAINING.name.encode() in _read(pid, "cmdline").split(b"\0"):
                return _identity(pid)
        return None

    def training_step(self, machine: str) -> int | None:
        """The last step that the training reported on its machine; reading it needs no supervisor."""
        path = self.machine_dir(machine) / "work" / "progress.jsonl"
        with suppress(OSError, ValueError):
            for line in reversed(path.read_text(encoding="utf-8").splitlines()):
                report = json.loads(line)
                if "total" in report:
                    return int(report["step"])
        return None

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self) -> int:
        """End every process of the demo; returns how many were running that this program had not started itself."""
        self.end_own()
        killed: set[Process] = set()
        give_up_at = time.monotonic() + STOP_WITHIN_S
        while (left := self._ours()) and time.monotonic() < give_up_at:
            for process in left:
                _kill(process)
            killed.update(left)
            time.sleep(CHECK_S)
        return len(killed)

    def end_own(self) -> None:
        """The supervisor and the twin."""
        for child in (self._supervisor, self._twin):
            if child is not None and child.poll() is None:
                child.terminate()
                try:
                    child.wait(STOP_WITHIN_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ours(self) -> list[Process]:
        marker = f"{MARKER}={self.folder}".encode()
        processes = (_identity(pid) for pid, environment in _environments() if marker in environment)
        return [process for process in processes if process is not None]


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    """(pid, environment) of every process that may be read; a zombie has none."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            yield int(name), _read(int(name), "environ").split(b"\0")


def _read(pid: int, what: str) -> bytes:
    with suppress(OSError):
        return Path("/proc", str(pid), what).read_bytes()
    return b""


def _identity(pid: int) -> Process | None:
    stat = _read(pid, "stat")
    if not stat:
        return None
    # The name in field 2 may contain blanks and brackets: only the last bracket ends it.
    return Process(pid, int(stat[stat.rindex(b")") + 2 :].split()[19]))


def _kill(process: Process) -> None:
    """Kill exactly this process; nothing happens when it has ended."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if _identity(process.pid) == process:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _sha256(path: Path) -> str | None:
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return None

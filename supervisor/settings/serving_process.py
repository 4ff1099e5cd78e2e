"""Which process serves a data folder, so that it is found again, waited for, and ended without ever meaning another.

A pid is used again; a pid with its start (field 22 of /proc/<pid>/stat) in one boot is not. Two files hold it:
`starting.json` from the first moment of a start until the supervisor listens, `server.json` from then on. Both may be
left behind by a process that was killed: they count only while that process lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STARTING = "starting.json"
SERVER = "server.json"
_PROC = Path("/proc")


@dataclass(frozen=True)
class ServingProcess:
    """`start_ticks` None: written by an older supervisor, or by one without /proc; then the pid alone counts."""

    pid: int
    start_ticks: int | None = None
    boot_id: str = ""

    def as_record(self) -> dict[str, Any]:
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id}

    def lives(self) -> bool:
        """A process that has ended and waits to be reaped does not."""
        if self.start_ticks is None:
            return _pid_lives(self.pid)
        return (self.start_ticks, self.boot_id) == (_start_ticks(self.pid), _boot_id())

    def send(self, number: int) -> None:
        """Signal this very process; nothing happens where it is gone. PermissionError: it is another user's."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except OSError:  # a kernel before 5.3
            if self.lives():
                os.kill(self.pid, number)
            return
        try:
            if self.lives():  # now the descriptor is that of the process that was looked at
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def this_process() -> ServingProcess:
    ticks, boot_id = _start_ticks(os.getpid()), _boot_id()
    return ServingProcess(os.getpid(), ticks, boot_id) if boot_id else ServingProcess(os.getpid())


def process_in(record: Mapping[str, Any]) -> ServingProcess | None:
    """The process that a record names, alive or not; None where it names none."""
    pid, ticks, boot_id = record.get("pid"), record.get("start_ticks"), record.get("boot_id")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    if isinstance(ticks, int) and isinstance(boot_id, str) and boot_id:
        return ServingProcess(pid, ticks, boot_id)
    return ServingProcess(pid)


def read_record(path: Path) -> dict[str, Any]:
    """Empty when there is none or it is torn."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def serving(data_dir: Path) -> ServingProcess | None:
    """The living process that server.json names."""
    process = process_in(read_record(data_dir / SERVER))
    return process if process is not None and process.lives() else None


def starting(data_dir: Path) -> ServingProcess | None:
    """The living process that is about to serve the folder and does not listen yet."""
    process = process_in(read_record(data_dir / STARTING))
    return process if process is not None and process.lives() else None


@contextlib.contextmanager
def announced(data_dir: Path) -> Iterator[None]:
    """Others can see that this process is about to serve the folder, until the block ends or `began` is called. A
    folder that cannot be written is told by what comes next, with more to say."""
    path, record = data_dir / STARTING, this_process().as_record()
    if serving(data_dir) is None and starting(data_dir) is None:
        with contextlib.suppress(OSError):
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = data_dir / f".{STARTING}.{os.getpid()}"
            draft.unlink(missing_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(json.dumps(record))
            os.replace(draft, path)
    try:
        yield
    finally:
        began(data_dir)


def began(data_dir: Path) -> None:
    """This process listens, or never will."""
    if read_record(data_dir / STARTING).get("pid") == os.getpid():
        with contextlib.suppress(OSError):
            (data_dir / STARTING).unlink(missing_ok=True)


def _start_ticks(pid: int) -> int | None:
    try:
        # The name in field 2 may hold blanks and brackets: only the last bracket ends it.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True

"""The process that serves a data folder: how others find it, wait for it and signal it, and what it tells systemd.

A pid is reused; a pid with its start time (field 22 of /proc/<pid>/stat) in one boot is not. Two files contain it:
`starting.json` from the start of a process until it listens, `server.json` from then on. A killed process may leave
them behind: they count only while that process lives.

systemd gets one datagram per message at the socket in NOTIFY_SOCKET (sd_notify(3)); without that variable nothing is
sent. The thread that serves requests feeds the watchdog, and only while the loop ticks too: if either hangs, systemd
restarts the service. An unavailable database stops neither.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STARTING = "starting.json"
SERVER = "server.json"
FEED_SHARE = 0.4  # of the watchdog's time, so that one datagram may be lost
_PROC = Path("/proc")


@dataclass(frozen=True)
class ServingProcess:
    """`start_ticks` None: an older supervisor, or one without /proc, wrote it; then only the pid is compared."""

    pid: int
    start_ticks: int | None = None
    boot_id: str = ""

    def as_record(self) -> dict[str, Any]:
        return {"pid": self.pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id}

    def lives(self) -> bool:
        """False for a process that has ended and waits to be reaped."""
        if self.start_ticks is None:
            return _pid_lives(self.pid)
        return (self.start_ticks, self.boot_id) == (_start_ticks(self.pid), _boot_id())

    def send(self, number: int) -> None:
        """Signal this process and no other; nothing happens if it is gone. Raises PermissionError."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        except OSError:  # a kernel before 5.3
            if self.lives():
                os.kill(self.pid, number)
            return
        try:
            if self.lives():  # so the descriptor belongs to this process
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def this_process() -> ServingProcess:
    ticks, boot_id = _start_ticks(os.getpid()), _boot_id()
    return ServingProcess(os.getpid(), ticks, boot_id) if boot_id else ServingProcess(os.getpid())


def process_in(record: Mapping[str, Any]) -> ServingProcess | None:
    """The process in a record, alive or not; None = the record has none."""
    pid, ticks, boot_id = record.get("pid"), record.get("start_ticks"), record.get("boot_id")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return None
    if isinstance(ticks, int) and isinstance(boot_id, str) and boot_id:
        return ServingProcess(pid, ticks, boot_id)
    return ServingProcess(pid)


def read_record(path: Path) -> dict[str, Any]:
    """Empty if the file is missing or torn."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def serving(data_dir: Path) -> ServingProcess | None:
    """The living process in server.json."""
    process = process_in(read_record(data_dir / SERVER))
    return process if process is not None and process.lives() else None


def starting(data_dir: Path) -> ServingProcess | None:
    """The living process that will serve the folder and does not listen yet."""
    process = process_in(read_record(data_dir / STARTING))
    return process if process is not None and process.lives() else None


@contextlib.contextmanager
def announced(data_dir: Path) -> Iterator[None]:
    """Other processes see that this process will serve the folder, until the block ends or `began` is called. An
    unwritable folder is reported by the next step of the start, with more details."""
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
        # The name in field 2 may contain blanks and brackets: only the last bracket ends it.
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


class ServiceManager:
    """Messages to systemd. Every method does nothing if systemd did not start this process."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        monotonic: Callable[[], float] = time.monotonic,
        pid: int | None = None,
    ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._monotonic = monotonic
        self._every_s = FEED_SHARE * _watchdog_s(environ, os.getpid() if pid is None else pid)
        self._fed_at = -float("inf")

    def ready(self, url: str) -> None:
        self._send(f"READY=1\nSTATUS=Serving at {url}\nMAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=Closing; trainings continue")

    def feed(self, fresh: Callable[[], bool]) -> None:
        """Call it often: it sends at the watchdog's interval. `fresh()`: whether the loop ticks in time."""
        now = self._monotonic()
        if self._every_s and now - self._fed_at >= self._every_s and fresh():
            self._fed_at = now
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        # "@" stands for the zero byte at the start of an abstract address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # A missing receiver or a full queue must not end the supervisor.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), address)


def _watchdog_s(environ: Mapping[str, str], pid: int) -> float:
    """0 = no watchdog for this process (sd_watchdog_enabled(3))."""
    usec, wanted = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    return int(usec) / 1e6 if usec.isdigit() and wanted == str(pid) else 0.0

"""Which processes are a machine's, and how to end exactly those.

A pid alone names nobody: it is used again. A process is pid + start ticks (field 22 of /proc/<pid>/stat) within one
boot; every signal goes through a pidfd that was checked against the start ticks after it was opened, so no reuse can
slip in between. A process in state Z is gone: pid 1 of a container may never reap it.

A machine's processes are: the agent's session while its leader is provably the agent, whoever carries the machine's
folder in its environment (a stray that called setsid), and all their descendants.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from supervisor.contract.identifiers import process_machine_id

PROC = Path("/proc")
MARKER = b"SPOT_MACHINE_DIR="  # every process of a machine inherits it; a name would not tell two data folders apart
GONE_STATES = "ZX"
POLL_S = 0.01
STOP_WAIT_S = 0.5


@dataclass(frozen=True, slots=True)
class Identity:
    """One process for ever: `start_ticks` since boot, in clock ticks; `boot_id` of the boot it lived in."""

    pid: int
    start_ticks: int
    boot_id: str

    @property
    def machine_id(self) -> str:
        return process_machine_id(self.boot_id, self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True)
class Process:
    """What /proc/<pid>/stat said at one instant."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return self.state not in GONE_STATES


def boot_id() -> str:
    """This boot of the computer. OSError where there is no Linux /proc, so that nothing is taken for dead there."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def read(pid: int) -> Process | None:
    """The process that has this pid now, zombies included; None when there is none."""
    try:
        raw = (PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in field 2 may hold blanks and brackets: only the last bracket ends it.
    fields = raw[raw.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def find(identity: Identity, boot: str) -> Process | None:
    """That very process if it lives or waits to be reaped in this boot, never another one with its pid."""
    if identity.boot_id[:8] != boot[:8]:
        return None
    process = read(identity.pid)
    return process if process is not None and process.start_ticks == identity.start_ticks else None


def send(process: Process, signum: int) -> None:
    """Signal this very process; nothing happens when it is gone. PermissionError when it is another user's."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        _send_by_pid(process, signum)  # kernels before 5.3
        return
    try:
        if _same(process):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signum)
    finally:
        os.close(descriptor)


def _send_by_pid(process: Process, signum: int) -> None:
    if _same(process):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signum)


def _same(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.start_ticks == process.start_ticks


class Table:
    """All processes at one instant; their environments are read only when somebody asks."""

    def __init__(self) -> None:
        readings = (read(int(name)) for name in os.listdir(PROC) if name.isdigit())
        self.processes: tuple[Process, ...] = tuple(process for process in readings if process is not None)
        self._folders: dict[int, bytes] = {}

    def members(self, folder: Path, agent: Identity | None) -> list[Process]:
        """Living processes of the machine in `folder`. `agent` = what its agent.json says, if it is of this boot."""
        # A dead leader that is not reaped yet still proves that its session is ours; a reused pid proves nothing.
        leader = next(
            (p for p in self.processes if agent and (p.pid, p.start_ticks) == (agent.pid, agent.start_ticks)), None
        )
        ours = {
            p.pid
            for p in self.processes
            if (leader is not None and p.session == leader.pid) or self._folder_of(p.pid) == os.fsencode(folder)
        }
        ours |= self._descendants(ours)
        return [p for p in self.processes if p.pid in ours and p.alive and p.pid != os.getpid()]

    def _descendants(self, roots: set[int]) -> set[int]:
        children: dict[int, list[int]] = {}
        for process in self.processes:
            children.setdefault(process.parent, []).append(process.pid)
        below: set[int] = set()
        todo = list(roots)
        while todo:
            fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in below]
            below.update(fresh)
            todo.extend(fresh)
        return below

    def _folder_of(self, pid: int) -> bytes:
        if pid not in self._folders:
            self._folders[pid] = _read_marker(pid)
        return self._folders[pid]


def folder_of(pid: int) -> str:
    """The machine's folder that this process carries; empty for none, and for a process that is gone."""
    return os.fsdecode(_read_marker(pid))


def _read_marker(pid: int) -> bytes:
    try:
        variables = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""  # gone, or another user's: not ours
    return next((v.removeprefix(MARKER) for v in variables if v.startswith(MARKER)), b"")


def kill_all(members: Callable[[], Sequence[Process]], agent: Identity | None, wait_s: float) -> Sequence[Process]:
    """SIGKILL everything that `members` names until it names nothing; what is left after `wait_s` is returned.

    The agent is stopped first and killed last: it must not see its training die and tell of a failure, and while it
    is there its session proves which processes are the machine's, also those born during the kill. On a busy computer a
    stop takes its time, so the others live until each thread of the agent stands still, at most STOP_WAIT_S.
    """
    began = time.monotonic()
    deadline = began + wait_s
    while left := members():
        late = time.monotonic() >= deadline
        lead = [p for p in left if agent is not None and (p.pid, p.start_ticks) == (agent.pid, agent.start_ticks)]
        others = [p for p in left if p not in lead]
        for process in lead:
            send(process, signal.SIGSTOP if others and not late else signal.SIGKILL)
        standing = all(map(_stands_still, lead)) or time.monotonic() >= began + STOP_WAIT_S
        for process in others if standing or late else ():
            send(process, signal.SIGKILL)
        if late:
            break
        time.sleep(POLL_S)
    return left


def _stands_still(process: Process) -> bool:
    """Every thread of it is stopped or gone: a signal stops a process one thread at a time."""
    try:
        stats = [path.read_bytes() for path in (PROC / str(process.pid) / "task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread went meanwhile: look again
    return all(stat[stat.rindex(b")") + 2 :][:1] in b"TtZX" for stat in stats)

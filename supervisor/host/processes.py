"""The processes of a machine, and how to end exactly those.

A pid alone does not identify a process, because pids are reused. A process is pid + start ticks (field 22 of
/proc/<pid>/stat) within one boot. Every signal goes through a pidfd that is compared with the start ticks after it is
opened, so no reuse can come between. A process in state Z is gone: pid 1 of a container may never reap it.

The processes of a machine are the agent's session while its leader is certainly the agent, every process with the
machine's folder in its environment (such as one that called setsid), and all their descendants.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from supervisor.contract.identifiers import process_machine_id

PROC = Path("/proc")
MARKER = b"SPOT_MACHINE_DIR="  # every process of a machine inherits it; a name would not distinguish two data folders
GONE_STATES = "ZX"
POLL_S = 0.01
STOP_WAIT_S = 0.5


class Identity(NamedTuple):
    """Identifies one process forever. `start_ticks`: since boot, in clock ticks; `boot_id`: of that boot."""

    pid: int
    start_ticks: int
    boot_id: str
    given_id: str = ""  # of a machine that stays the same over a reboot

    @property
    def machine_id(self) -> str:
        return self.given_id or self.process_id

    @property
    def process_id(self) -> str:
        return process_machine_id(self.boot_id, self.pid, self.start_ticks)


class Process(NamedTuple):
    """/proc/<pid>/stat at one instant."""

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
    """This boot of the computer. OSError where there is no Linux /proc, so that no machine counts as dead there."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def same_boot(first: str, second: str) -> bool:
    """By the first eight characters, which are part of a machine id."""
    return first[:8] == second[:8]


def read(pid: int) -> Optional[Process]:
    """The process that has this pid now, zombies included; None when there is none."""
    try:
        raw = _content(pid, "stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in field 2 may contain blanks and brackets: only the last bracket ends it.
    fields = raw[raw.rindex(b")") + 2 :].split()
    return Process(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def find(identity: Identity, boot: str) -> Optional[Process]:
    """That very process if it lives or waits to be reaped in this boot, never another process with its pid."""
    if not same_boot(identity.boot_id, boot):
        return None
    process = read(identity.pid)
    return process if process is not None and process.start_ticks == identity.start_ticks else None


def send(process: Process, signum: int) -> None:
    """Signal this very process; nothing happens if it is gone. PermissionError for a process of another user."""
    if not hasattr(os, "pidfd_open"):  # Python 3.8
        _send_by_pid(process, signum)
        return
    try:
        descriptor = os.pidfd_open(process.pid)  # novermin
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
                signal.pidfd_send_signal(descriptor, signum)  # novermin
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
    """All processes at one instant; their environments are read only when needed."""

    def __init__(self) -> None:
        readings = (read(int(name)) for name in os.listdir(PROC) if name.isdigit())
        self.processes: Tuple[Process, ...] = tuple(process for process in readings if process is not None)
        self._folders: Dict[int, bytes] = {}

    def members(self, folder: Path, agent: Optional[Identity]) -> List[Process]:
        """Living processes of the machine in `folder`. `agent`: from its agent.json, if it is of this boot."""
        # A dead leader that is not yet reaped still proves that its session is ours; a reused pid proves nothing.
        leader = next(
            (p for p in self.processes if agent and (p.pid, p.start_ticks) == (agent.pid, agent.start_ticks)), None
        )
        wanted = os.fsencode(folder)
        ours = {
            p.pid
            for p in self.processes
            if (leader is not None and p.session == leader.pid) or self._folder_of(p.pid) == wanted
        }
        ours |= self._descendants(ours)
        return [p for p in self.processes if p.pid in ours and p.alive and p.pid != os.getpid()]

    def _descendants(self, roots: Set[int]) -> Set[int]:
        children: Dict[int, List[int]] = {}
        for process in self.processes:
            children.setdefault(process.parent, []).append(process.pid)
        below: Set[int] = set()
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
    """The machine's folder in the environment of this process; empty for none, and for a process that is gone."""
    return os.fsdecode(_read_marker(pid))


def _read_marker(pid: int) -> bytes:
    try:
        variables = _content(pid, "environ")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""  # gone, or another user's: not ours
    if MARKER not in variables:
        return b""
    return next((v[len(MARKER) :] for v in variables.split(b"\0") if v.startswith(MARKER)), b"")


def _content(pid: int, name: str) -> bytes:
    """Of a file of this process. Without pathlib and buffers: a table reads two for each process. OSError."""
    descriptor = os.open("%s/%d/%s" % (PROC, pid, name), os.O_RDONLY)
    try:
        content = b""
        while True:
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                return content
            content += piece
    finally:
        os.close(descriptor)


def kill_all(members: Callable[[], Sequence[Process]], agent: Optional[Identity], wait_s: float) -> Sequence[Process]:
    """SIGKILL all `members` until there are none. Returns those that are left after `wait_s`.

    The agent is stopped first and killed last: it must not see its training die and report a failure. While it exists,
    its session proves which processes belong to the machine, also those that start during the kill. On a busy computer
    a stop takes time, so the others are killed only when every thread of the agent has stopped, or after STOP_WAIT_S.
    """
    began = time.monotonic()
    deadline = began + wait_s
    while left := members():
        late = time.monotonic() >= deadline
        lead = [p for p in left if agent is not None and (p.pid, p.start_ticks) == (agent.pid, agent.start_ticks)]
        others = [p for p in left if p not in lead]
        for process in lead:
            send(process, signal.SIGSTOP if others and not late else signal.SIGKILL)
        stopped = all(map(_is_stopped, lead)) or time.monotonic() >= began + STOP_WAIT_S
        for process in others if stopped or late else ():
            send(process, signal.SIGKILL)
        if late:
            break
        time.sleep(POLL_S)
    return left


def _is_stopped(process: Process) -> bool:
    """All its threads are stopped or gone: a signal stops a process one thread at a time."""
    try:
        stats = [path.read_bytes() for path in (PROC / str(process.pid) / "task").glob("*/stat")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread ended in the meantime: check again
    return all(stat[stat.rindex(b")") + 2 :][:1] in b"TtZX" for stat in stats)

"""The processes of this machine: the agent's own identity, the command's tree, and what the command leaves behind.

Identity: a process id alone can repeat; together with its start and its boot it never does (contract/identifiers.py). A
rented machine has the id of its platform, from the file `identity.json` beside the job.

The tree: one read of /proc/<pid>/stat of every process shows parent, session, state, threads and memory. A process that
does not belong to the tree is not read again for FORGET_S. Where a scan takes long all the same, because the machine
runs many processes of other users, it is repeated less often, and only the known processes are read in between.

Leftovers would write into folders that are being saved. Ours are the processes of the command's group, of the agent's
own session (when the agent leads it), and those that carry the machine's marker in their environment.

The first process of a container gets no default actions for signals, and it gets all orphans, which stay as zombies
until it waits for them. The agent waits for its own children alone. So a small parent takes that place: it forwards
every signal at once, reaps every process, and exits as the agent exits.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set

from supervisor.agent.machine.folder import read_fields, read_text
from supervisor.contract.beat_telemetry import Tree
from supervisor.contract.identifiers import process_machine_id

REST = 500  # a scan may take 1/500 of the time: 0.2 % of a core
FORGET_S = 600.0  # by then the number of a process may belong to another one
SHOWN, COMMAND_CHARS = 200, 300
_PAGE = os.sysconf("SC_PAGE_SIZE")
GENERATIONS = 64
_KILL_ROUNDS, _KILL_WAIT_S = 50, 0.02
_ARENA_MAX = -8  # of mallopt(3)
_DEAD = ("Z", "X")  # states of a process that is not reaped yet
_FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_log = logging.getLogger("agent")


class Identity(NamedTuple):
    boot_id: str
    pid: int
    start_ticks: int
    platform_id: str = ""  # "" = no platform has a name for it

    @property
    def machine_id(self) -> str:
        return self.platform_id or process_machine_id(self.boot_id, self.pid, self.start_ticks)


def own_identity() -> Identity:
    """OSError where there is no /proc."""
    pid = os.getpid()
    return Identity(boot_id(), pid, int(stat_fields(pid)[19]))


def boot_id() -> str:
    """The id of the present boot; "" where it cannot be read."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def with_platform_id(identity: Identity, path: str) -> Identity:
    """With the id in the file at `path`, if there is one. ValueError for an unreadable one."""
    try:
        with open(path, encoding="utf-8") as source:
            machine_id = json.load(source)["machine_id"]
    except FileNotFoundError:
        return identity
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError("%s names no machine: %s %s" % (path, type(error).__name__, error)) from None
    if not isinstance(machine_id, str) or not 0 < len(machine_id) <= 100 or not machine_id.isprintable():
        raise ValueError("%s names no machine" % path)
    return identity._replace(platform_id=machine_id)


def stat_fields(pid: int, proc: str = "/proc") -> List[str]:
    """Fields 3 and on of /proc/<pid>/stat. The name before them may contain spaces and brackets. OSError."""
    with open("%s/%d/stat" % (proc, pid), "rb") as source:
        return source.read().rpartition(b")")[2].decode("ascii", "replace").split()


class Process(NamedTuple):
    parent: int
    session: int
    state: str
    threads: int
    rss_bytes: int


class ProcessTree:
    """`command`: the pid of the command, None while it does not run. `session`: the agent's."""

    def __init__(
        self,
        command: Callable[[], Optional[int]],
        proc: str = "/proc",
        monotonic: Callable[[], float] = time.monotonic,
        session: Optional[int] = None,
    ) -> None:
        self._command, self._proc, self._monotonic = command, proc, monotonic
        self._own, self._session = os.getpid(), os.getsid(0) if session is None else session
        self._members: Set[int] = set()
        self._others: Set[int] = set()  # processes that are not members
        self._next_scan = self._forget_at = 0.0

    def read(self) -> Optional[Tree]:
        """None before the command runs, and when no process of it is left."""
        command = self._command()
        if command is None:
            return None
        started = self._monotonic()
        if started >= self._next_scan or command not in self._members:
            if started >= self._forget_at or command not in self._members:
                self._others, self._forget_at = set(), started + FORGET_S
            pids = set(_pids(self._proc))
            everything = self._read(pids - self._others)
            self._members = self._of_training(command, everything)
            self._others = pids - self._members
            ended = self._monotonic()
            self._next_scan = ended + REST * (ended - started)
            processes = [everything[pid] for pid in self._members]
        else:
            processes = list(self._read(self._members).values())
        return _tree(processes) if processes else None

    def pids(self) -> List[int]:
        """Of the command and everything that it started, by a full scan."""
        command = self._command()
        return [] if command is None else sorted(self._of_training(command, self._read(_pids(self._proc))))

    @property
    def last_pids(self) -> List[int]:
        """The pids of the last reading. Safe to use from every thread."""
        return sorted(self._members)

    def _read(self, pids: Iterable[int]) -> Dict[int, Process]:
        """Without processes that have ended meanwhile."""
        processes = {}
        for pid in pids:
            with suppress(OSError, ValueError, IndexError):
                cells = stat_fields(pid, self._proc)
                rss_bytes = int(cells[21]) * _PAGE
                processes[pid] = Process(int(cells[1]), int(cells[3]), cells[0], int(cells[17]), rss_bytes)
        return processes

    def _of_training(self, command: int, everything: Dict[int, Process]) -> Set[int]:
        children: Dict[int, List[int]] = {}
        for pid, process in everything.items():
            children.setdefault(process.parent, []).append(pid)
        members: Set[int] = set()
        waiting = [command, *(pid for pid, process in everything.items() if process.session == self._session)]
        while waiting:
            pid = waiting.pop()
            if pid in members or pid == self._own or pid not in everything:
                continue
            members.add(pid)
            waiting.extend(children.get(pid, ()))
        return members


def _pids(proc: str = "/proc") -> List[int]:
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def _tree(processes: List[Process]) -> Tree:
    def in_state(*states: str) -> float:
        return float(sum(1 for process in processes if process.state in states))

    return Tree(
        processes=float(len(processes)),
        threads=float(sum(process.threads for process in processes)),
        rss_bytes=float(sum(process.rss_bytes for process in processes)),
        running=in_state("R"),
        disk_wait=in_state("D"),
        stopped=in_state("T", "t"),
        zombies=in_state("Z"),
    )


def kill_leftovers(group: Optional[int], marker: str) -> None:
    """SIGKILL all of them, again until none is left (about a second). `marker` is one line of an environment."""
    for _ in range(_KILL_ROUNDS):
        pids = leftovers(group, marker)
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_KILL_WAIT_S)
    _log.warning("processes %s could not be killed", pids)


def leftovers(group: Optional[int], marker: str) -> List[int]:
    """Pids of living processes of this machine other than the agent itself and its parent, which may have the machine's
    marker too (`run_below_init`)."""
    own, parent = os.getpid(), os.getppid()
    session = own if os.getsid(0) == own else None
    return [pid for pid in _pids() if pid not in (own, parent) and _belongs(pid, group, session, marker)]


def _belongs(pid: int, group: Optional[int], session: Optional[int], marker: str) -> bool:
    try:
        fields = stat_fields(pid)
        if fields[0] in _DEAD:
            return False
        if int(fields[2]) == group or int(fields[3]) == session:
            return True
        with open("/proc/%d/environ" % pid, "rb") as source:
            return os.fsencode(marker) in source.read().split(b"\0")
    except (OSError, IndexError, ValueError):
        return False  # it has ended, or belongs to another user


def is_of_machine(pid: int, marker: str) -> bool:
    """The process descends from this agent or carries the machine's marker; also true for one that has ended, and for a
    container's first process."""
    own, ancestor = os.getpid(), pid
    for _ in range(GENERATIONS):
        if ancestor == own or pid == 1:
            return True
        try:
            fields = stat_fields(ancestor)
        except OSError:
            return pid != 0
        if fields[0] in _DEAD:
            return True
        ancestor = int(fields[1])
        if ancestor <= 1:
            break
    session = own if os.getsid(0) == own else None
    return _belongs(pid, None, session, marker) or not os.path.exists("/proc/%d" % pid)


def group_lives(group: int) -> bool:
    """Some process of this group lives; a zombie does not."""
    for pid in _pids():
        with suppress(OSError, IndexError, ValueError):  # it has ended
            fields = stat_fields(pid)
            if fields[0] not in _DEAD and int(fields[2]) == group:
                return True
    return False


def run_below_init() -> None:
    """Fork: the child returns and continues as the agent in a session of its own; the parent stays as the container's
    first process and never returns. Call it before any thread is started."""
    awaited = {signal.SIGCHLD, *_FORWARDED}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    agent = os.fork()
    if agent == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
        return
    while True:
        number = signal.sigwait(awaited)
        if number == signal.SIGCHLD:
            _reap(agent)
        else:
            os.kill(agent, number)  # this pid cannot be reused: only this process waits for it


def return_memory() -> None:
    """Give back what the compilation of our own sources took: half a MB. All threads share one arena, instead of 64 MB
    of addresses each. Only glibc can. Before any thread is started."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)
        libc.mallopt(_ARENA_MAX, 1)


def _reap(agent: int) -> None:
    """One signal may stand for many ended processes."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid == agent:
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def process_rows(group: Optional[int], marker: str, mask: Callable[[str], str]) -> List[Dict[str, Any]]:
    """The command and everything it started, except the agent, ordered by memory; SHOWN at most. `mask` removes secrets
    from a command line before it is cut."""
    rows: List[Dict[str, Any]] = []
    for pid in leftovers(group, marker):
        fields = read_fields("/proc/%d/status" % pid)
        if fields:  # else it has ended meanwhile
            rss_kib = _number(fields, "VmRSS")
            rows.append({
                "pid": pid,
                "parent": _number(fields, "PPid"),
                "name": fields.get("Name", ""),
                "state": fields.get("State", ""),
                "threads": _number(fields, "Threads"),
                "rss_bytes": None if rss_kib is None else 1024 * rss_kib,
                "command": mask(command_of(pid))[:COMMAND_CHARS],
            })  # fmt: skip
    return sorted(rows, key=lambda row: -(row["rss_bytes"] or 0))[:SHOWN]


def _number(fields: Dict[str, str], name: str) -> Optional[int]:
    words = fields.get(name, "").split()
    return int(words[0]) if words and words[0].isdigit() else None


def command_of(pid: int) -> str:
    """Its command line; "" when it has ended or may not be read."""
    return read_text("/proc/%d/cmdline" % pid).replace("\0", " ").strip()

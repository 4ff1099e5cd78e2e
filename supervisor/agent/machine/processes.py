"""The processes of this machine: the agent's own identity, the command's tree, and what the command leaves behind.

Identity: a process id alone comes back; together with its start and its boot it never does (contract/identifiers.py).
A rented machine is what its platform calls it: `identity.json`, laid down beside the job, names it.

The tree: one look at /proc/<pid>/stat of every process shows parent, session, state, threads and memory at once. Where
that takes long, because the machine is full of other people's processes, it rests in proportion, and only those that
are known already are read in between.

Leftovers would write into folders whose content is being saved. Ours are the processes of the command's group, of the
agent's own session (when the agent leads it), and those that carry the machine's marker in their environment.

The first process of a container gets no default actions for signals, and all orphans, which stay as zombies unless
somebody waits for them. The agent waits for its own children alone. So a small parent takes that place: it passes every
signal on at once, waits for whoever dies, and ends as the agent ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

from supervisor.contract.beat_telemetry import Tree
from supervisor.contract.identifiers import process_machine_id

REST = 500  # a full look may take this share of the time: 0.2 % of a core
_PAGE = os.sysconf("SC_PAGE_SIZE")
_log = logging.getLogger("agent")
_ROUNDS, _PAUSE_S = 50, 0.02
_DEAD = ("Z", "X")  # states of a process that is not reaped yet
_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
SHOWN, COMMAND_CHARS, COMMAND_BYTES = 200, 300, 65536


@dataclass(frozen=True)
class Identity:
    boot_id: str
    pid: int
    start_ticks: int
    platform_id: str = ""  # "" = nobody but us has a name for it

    @property
    def machine_id(self) -> str:
        return self.platform_id or process_machine_id(self.boot_id, self.pid, self.start_ticks)


def own_identity() -> Identity:
    """OSError where there is no /proc."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        boot_id = source.read().strip()
    pid = os.getpid()
    return Identity(boot_id, pid, int(stat_fields(pid)[19]))


def named(identity: Identity, path: str) -> Identity:
    """With the id that the file at `path` names, if there is one. ValueError for one that cannot be read."""
    try:
        with open(path, encoding="utf-8") as source:
            machine_id = json.load(source)["machine_id"]
    except FileNotFoundError:
        return identity
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError("%s names no machine: %s %s" % (path, type(error).__name__, error)) from None
    if not isinstance(machine_id, str) or not 0 < len(machine_id) <= 100 or not machine_id.isprintable():
        raise ValueError("%s names no machine" % path)
    return replace(identity, platform_id=machine_id)


def stat_fields(pid: int) -> List[str]:
    """Fields 3 and on of /proc/<pid>/stat. The name before them may hold spaces and brackets of its own. OSError."""
    with open("/proc/%d/stat" % pid, "rb") as source:
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
        self._next_look = 0.0

    def read(self) -> Optional[Tree]:
        """None before the command runs, and when nothing of it is left."""
        command = self._command()
        if command is None:
            return None
        began = self._monotonic()
        if began >= self._next_look or command not in self._members:
            everything = self._look(os.listdir(self._proc))
            self._members = self._of_training(command, everything)
            ended = self._monotonic()
            self._next_look = ended + REST * (ended - began)
            processes = [everything[pid] for pid in self._members]
        else:
            processes = list(self._look([str(pid) for pid in self._members]).values())
        return _tree(processes) if processes else None

    def _look(self, names: List[str]) -> Dict[int, Process]:
        processes = {}
        for name in names:
            if name.isdigit():
                process = self._process(name)
                if process is not None:
                    processes[int(name)] = process
        return processes

    def _process(self, name: str) -> Optional[Process]:
        """None when it has ended meanwhile. The name in brackets may hold blanks and brackets of its own."""
        try:
            with open("%s/%s/stat" % (self._proc, name), "rb") as source:
                cells = source.read().rpartition(b")")[2].split()
            return Process(
                int(cells[1]),
                int(cells[3]),
                cells[0].decode("ascii", "replace"),
                int(cells[17]),
                int(cells[21]) * _PAGE,
            )
        except (OSError, ValueError, IndexError):
            return None

    def _of_training(self, command: int, everything: Dict[int, Process]) -> Set[int]:
        children: Dict[int, List[int]] = {}
        for pid, process in everything.items():
            children.setdefault(process.parent, []).append(pid)
        members: Set[int] = set()
        left = [command, *(pid for pid, process in everything.items() if process.session == self._session)]
        while left:
            pid = left.pop()
            if pid in members or pid == self._own or pid not in everything:
                continue
            members.add(pid)
            left.extend(children.get(pid, ()))
        return members


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
    for _ in range(_ROUNDS):
        pids = leftovers(group, marker)
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    _log.warning("processes %s could not be killed", pids)


def leftovers(group: Optional[int], marker: str) -> List[int]:
    """Pids of living processes of this machine other than the agent itself and whoever started it, which may have
    the machine's marker too (`stand_in`)."""
    own, parent = os.getpid(), os.getppid()
    session = own if os.getsid(0) == own else None
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and int(name) not in (own, parent) and _belongs(int(name), group, session, marker)
    ]


def group_lives(group: int) -> bool:
    """Some process of this group lives; a zombie does not."""
    return any(name.isdigit() and _in_group(int(name), group) for name in os.listdir("/proc"))


def _in_group(pid: int, group: int) -> bool:
    try:
        fields = stat_fields(pid)
        return fields[0] not in _DEAD and int(fields[2]) == group
    except (OSError, IndexError, ValueError):
        return False  # gone


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
        return False  # gone, or another user's


def stand_in() -> None:
    """Returns in the child, which goes on as the agent in a session of its own; the parent never returns. Before any
    thread was started."""
    waited_for = {signal.SIGCHLD, *_PASSED_ON}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    agent = os.fork()
    if agent == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited_for)
        return
    while True:
        number = signal.sigwait(waited_for)
        if number == signal.SIGCHLD:
            _bury(agent)
        else:
            os.kill(agent, number)  # never reused: only we could have waited for it


def _bury(agent: int) -> None:
    """One signal may stand for many deaths."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid == agent:
            os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def process_rows(group: Optional[int], marker: str, mask: Callable[[str], str]) -> List[Dict[str, Any]]:
    """The command and all that it started, except the agent, those with the most memory first; SHOWN at most. `mask`
    takes secrets out of a command line before it is cut."""
    seen = (_process(pid, mask) for pid in leftovers(group, marker))
    rows = [process for process in seen if process is not None]
    return sorted(rows, key=lambda process: -(process["rss_bytes"] or 0))[:SHOWN]


def _process(pid: int, mask: Callable[[str], str]) -> Optional[Dict[str, Any]]:
    """None when it has ended meanwhile."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as source:
            fields = dict(line.partition(":")[::2] for line in source)
    except OSError:
        return None
    rss_kib = _number(fields, "VmRSS")
    return {
        "pid": pid,
        "parent": _number(fields, "PPid"),
        "name": fields.get("Name", "").strip(),
        "state": fields.get("State", "").strip(),
        "threads": _number(fields, "Threads"),
        "rss_bytes": None if rss_kib is None else 1024 * rss_kib,
        "command": mask(command_of(pid))[:COMMAND_CHARS],
    }


def _number(fields: Dict[str, str], name: str) -> Optional[int]:
    words = fields.get(name, "").split()
    return int(words[0]) if words and words[0].isdigit() else None


def command_of(pid: int) -> str:
    """Its command line; "" when it is gone or not ours to read."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as source:
            return source.read(COMMAND_BYTES).decode("utf-8", "replace").replace("\0", " ").strip()
    except OSError:
        return ""

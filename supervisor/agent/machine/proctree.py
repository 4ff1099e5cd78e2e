"""The processes of the training: the command, its descendants, and what lost its parent but stayed in our session.

One look at /proc/<pid>/stat of every process tells parent, session, state, threads and memory at once. Where that takes
long, because the machine is full of other people's processes, it rests in proportion, and only those that are known
already are read in between.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set

from supervisor.contract.beat_telemetry import Tree

REST = 500  # a full look may take this share of the time: 0.2 % of a core
_PAGE = os.sysconf("SC_PAGE_SIZE")


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
            found = [everything[pid] for pid in self._members]
        else:
            found = list(self._look([str(pid) for pid in self._members]).values())
        return _tree(found) if found else None

    def _look(self, names: List[str]) -> Dict[int, Process]:
        found = {}
        for name in names:
            if name.isdigit():
                process = self._process(name)
                if process is not None:
                    found[int(name)] = process
        return found

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
        found: Set[int] = set()
        left = [command, *(pid for pid, process in everything.items() if process.session == self._session)]
        while left:
            pid = left.pop()
            if pid in found or pid == self._own or pid not in everything:
                continue
            found.add(pid)
            left.extend(children.get(pid, ()))
        return found


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

"""Processes that the command left behind: they would write into folders whose content is being saved.

Ours are those of the command's group, of the agent's own session (when the agent leads it), and those that carry the
machine's marker in their environment, whatever session they have moved to.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from typing import List, Optional

from supervisor.agent.machine.identity import stat_fields

_log = logging.getLogger("agent")
_ROUNDS, _PAUSE_S = 50, 0.02
_DEAD = ("Z", "X")  # states of a process that is not reaped yet


def kill_leftovers(group: Optional[int], marker: str) -> None:
    """SIGKILL all of them, again until none is left (about a second). `marker` is one line of an environment."""
    for _ in range(_ROUNDS):
        found = leftovers(group, marker)
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)
    _log.warning("processes %s could not be killed", found)


def leftovers(group: Optional[int], marker: str) -> List[int]:
    """Pids of living processes of this machine other than the agent itself and whoever started it, which may have
    the machine's marker too (firstprocess.py)."""
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

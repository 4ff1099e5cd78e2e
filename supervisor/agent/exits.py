"""How the command ended, and whether that was the end of the work.

Exit 0 after our own TERM is a training that saved and left politely, not one that has finished: the work is done only
when the last reported step is the total. (To take it for finished would lose the run; to run on from the last
checkpoint costs seconds.)
"""

from __future__ import annotations

import logging
import os
import re
import signal
from typing import Iterable, Optional, Set, Tuple

from supervisor.agent.masking import Masker
from supervisor.agent.plainfile import open_plain
from supervisor.agent.situation import fit_text
from supervisor.domain.heartbeat import DISK_FULL_WORDS, GPU_OOM_WORDS, WORKER_KILLED_WORDS, Exit

TELLING_WORDS = (*GPU_OOM_WORDS, *DISK_FULL_WORDS, *WORKER_KILLED_WORDS)
TELLING_LINES = 40  # at the end, in which such words are looked for: a traceback, and what was said after it
TAIL_BYTES = 262144
_LINE_CHARS = 2000  # of each line that log patterns are matched against
_SHELL_BASE = 128
_log = logging.getLogger("agent")


def judge(
    status: int,
    sent: Set[int],
    shell: bool,
    ran_s: float,
    tail: bytes,
    retry: Tuple[Iterable[int], Iterable[str]],
) -> Exit:
    """`status`: raw wait status. `sent`: signals we sent. `tail`: the end of the output. `retry`: codes and patterns.

    `sent_by_us`: our TERM or KILL ended it. It died of a signal that we sent, or it left with a code after our TERM.
    """
    code, number = split_status(status, shell)
    ours = number in sent if number is not None else code != 0 and signal.SIGTERM in sent
    lines = tail.decode("utf-8", "replace").splitlines()
    codes, patterns = retry
    named = (code is not None and code in tuple(codes)) or matches_any(patterns, lines)
    return Exit(code, number, ours, round(ran_s, 3), last_line(lines), named)


def split_status(status: int, shell: bool) -> Tuple[Optional[int], Optional[int]]:
    """(exit code, None) or (None, signal). A shell tells of its child's death by a signal with 128 + its number."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    if shell and code - _SHELL_BASE in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return None, code - _SHELL_BASE
    return code, None


def finished(
    end: Exit, sent: Set[int], step: Optional[int], total: Optional[int], from_zero: bool = False
) -> bool:
    """The command has done all its work. `from_zero`: its steps are counted from 0."""
    if end.code != 0:
        return False
    return not sent or (total is not None and step is not None and step >= total - from_zero)


def last_line(lines: Iterable[str]) -> str:
    """The last line that says anything, as a beat can carry it: of TELLING_LINES the last one with telling words, else
    the very last."""
    said = [line.strip() for line in lines if line.strip()][-TELLING_LINES:]
    telling = [line for line in said if any(word in line for word in TELLING_WORDS)]
    return fit_text((telling or said)[-1]) if said else ""


def matches_any(patterns: Iterable[str], lines: Iterable[str]) -> bool:
    """Some line holds a match. A pattern that is none is left out: it was checked at the submit."""
    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern))
        except re.error as error:
            _log.warning("retry.log_patterns: %r is no pattern: %s", pattern, error)
    return any(pattern.search(line[:_LINE_CHARS]) for line in lines for pattern in found)


def masked_tail(path: str, masker: Masker, limit: int = TAIL_BYTES) -> bytes:
    """The end of a file without the values of secrets, also where the cut goes through one."""
    return masker.tail(tail_of(path, limit + masker.longest), limit)


def tail_of(path: str, limit: int = TAIL_BYTES) -> bytes:
    """The end of a file; empty when it cannot be read."""
    try:
        source = open_plain(path)
        if source is None:
            return b""
        with source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - limit))
            return source.read(limit)
    except OSError:
        return b""

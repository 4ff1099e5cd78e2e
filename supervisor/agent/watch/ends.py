"""The end of the command: reasons to end it, until when what may still be done, and how it ended.

Every reason comes together in `Attention`: a stop (push answer, .stop marker, TERM to the agent), a preemption notice,
the machine's own time limit, nobody reachable, a newer attempt, a closed run. The first reason is the one that is told;
each further one can only shorten the times. All times are monotonic seconds. The command gets TERM at once and KILL
at `kill_at`; at `save_until` uploads are given up. Losing the baton ends writing at once.

Exit 0 after our own TERM is a training that saved and left politely, not one that has finished: the work is done only
when the last reported step is the total. (To take it for finished would lose the run; to run on from the last
checkpoint costs seconds.)
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from dataclasses import dataclass, replace
from typing import Callable, Iterable, List, Optional, Set, Tuple

from supervisor.agent.machine.folder import Job, open_plain
from supervisor.agent.machine.masking import Masker
from supervisor.agent.store.googleapi import SHUTDOWN_S
from supervisor.agent.store.reach import Reach
from supervisor.agent.watch.situation import fit_text
from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import DISK_FULL_WORDS, GPU_OOM_WORDS, LAUNCHER_WORDS, WORKER_KILLED_WORDS, Exit

SUPERSEDED_GRACE_S = 30.0  # a newcomer waits for us
LOST_GRACE_S = 5.0  # nothing of what the command still does can be kept
SAVE_S = 600.0  # how long uploads may go on after a stop; the supervisor closes the baton when it has waited enough
NOTICE_SHARE = 0.4  # of a short notice that is kept for the upload
POINTER_S = 1.5  # of the time for uploads, kept for moving the baton
LAST_WORDS_S = 0.5  # of a notice, kept for the last beat
TELLING_WORDS = (*GPU_OOM_WORDS, *DISK_FULL_WORDS, *WORKER_KILLED_WORDS)
TELLING_LINES = 40  # at the end, in which such words are looked for: a traceback, and what was said after it
TAIL_BYTES = 262144
_LINE_CHARS = 2000  # of each line that log patterns are matched against
_SHELL_BASE = 128
# SIGXCPU: the limit of CPU time that this computer sets (ulimit -S -t).
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_log = logging.getLogger("agent")


@dataclass(frozen=True)
class Ending:
    """`reason` is one of heartbeat.LEFT; `may_write` False: the baton is not ours (any more)."""

    reason: str
    kill_at: float
    save_until: float
    may_write: bool = True


class Attention:
    """Safe to use from every thread; `term_received` may be set by a signal handler, which must not wait for a lock."""

    def __init__(
        self, job: Job, reach: Reach, monotonic: Callable[[], float], notice_s: Callable[[], Optional[float]]
    ) -> None:
        self._job, self._reach, self._monotonic, self._notice_s = job, reach, monotonic, notice_s
        self._expires_at = monotonic() + job.machine_max_s
        self._lock = threading.Lock()
        self._ending: Optional[Ending] = None
        self._noticed, self._termed = False, False
        self.term_received = False
        self.notice_left_s: Optional[float] = None  # as it was when the notice was first seen

    def ask(self, reason: str, may_write: bool = True) -> None:
        """End for this reason (one of heartbeat.LEFT)."""
        now = self._monotonic()
        grace_s, save_s = self._job.stop_grace_s, SAVE_S
        if not may_write:
            grace_s, save_s = min(grace_s, LOST_GRACE_S), 0.0
        elif reason == heartbeat.SUPERSEDED:
            grace_s = min(grace_s, SUPERSEDED_GRACE_S)
        elif reason == heartbeat.CUT_OFF:
            save_s = -grace_s  # the command saves locally; there is nowhere to upload to
        self._shorten(Ending(reason, now + grace_s, now + grace_s + save_s, may_write))

    def look(self) -> Optional[Ending]:
        """Look around; None = go on. Cheap enough for ten times a second."""
        if not self._noticed:
            self._look_for_notice()
        if self.term_received and not self._termed:
            self._termed = True
            self._heed_term()
        if self._monotonic() >= self._expires_at:
            self._once(heartbeat.EXPIRED)
        if self._reach.silent_s() >= self._job.cut_off_s:
            self._once(heartbeat.CUT_OFF)
        return self._ending

    @property
    def ending(self) -> Optional[Ending]:
        return self._ending

    def stays(self) -> bool:
        """Nobody wants the machine itself to end: for an agent whose work is over."""
        return not self.term_received and self._monotonic() < self._expires_at

    def writing_over(self) -> bool:
        """Nothing may be uploaded any more: the time is over, or the baton is not ours."""
        ending = self._ending
        return ending is not None and (not ending.may_write or self._monotonic() >= ending.save_until)

    def results_over(self) -> bool:
        """No more results beside a checkpoint: what is left of the time is for naming it in the baton."""
        ending = self._ending
        return ending is not None and (not ending.may_write or self._monotonic() >= ending.save_until - POINTER_S)

    def _once(self, reason: str) -> None:
        """Standing conditions hold at each look; only a first one starts the clocks."""
        if self._ending is None:
            self.ask(reason)

    def _look_for_notice(self) -> None:
        left_s = self._notice_s()
        if left_s is None:
            return
        self._noticed = True
        self.notice_left_s = left_s
        self._leave_within(heartbeat.NOTICED, left_s)

    def _heed_term(self) -> None:
        """After a notice, if there was one: a machine that is taken away is shut down in the end, and TERM is how its
        system says so. A rented machine has no more than that time, whoever shuts it down."""
        if self._job.notice_from is None:
            self._once(heartbeat.STOPPED)
        else:
            self._leave_within(heartbeat.STOPPED, SHUTDOWN_S)

    def _leave_within(self, reason: str, left_s: float) -> None:
        now = self._monotonic()
        reserve_s = min(self._job.upload_reserve_s, left_s * NOTICE_SHARE)
        save_until = now + max(0.0, left_s - LAST_WORDS_S)
        self._shorten(Ending(reason, now + left_s - reserve_s, save_until))

    def _shorten(self, new: Ending) -> None:
        with self._lock:
            old = self._ending
            self._ending = new if old is None else replace(
                old,
                kill_at=min(old.kill_at, new.kill_at),
                save_until=min(old.save_until, new.save_until),
                may_write=old.may_write and new.may_write,
            )  # fmt: skip


def judge(
    status: int,
    sent: Set[int],
    shell: bool,
    ran_s: float,
    tail: bytes,
    retry: Tuple[Iterable[int], Iterable[str]],
    since_step: Optional[bytes] = None,
) -> Exit:
    """`status`: raw wait status. `sent`: signals we sent. `tail`: the end of the output. `retry`: codes and patterns.
    `since_step`: the part of `tail` after which no step was reported; None = all of it.

    `sent_by_us`: our TERM or KILL ended it. It died of a signal that we sent, or it left with a code after our TERM.
    """
    code, number = split_status(status, shell)
    ours = number in sent if number is not None else code != 0 and signal.SIGTERM in sent
    lines = tail.decode("utf-8", "replace").splitlines()
    codes, patterns = retry
    named = (code is not None and code in tuple(codes)) or matches_any(patterns, lines)
    recent = lines if since_step is None else since_step.decode("utf-8", "replace").splitlines()
    return Exit(code, number, ours, round(ran_s, 3), last_line(lines, recent), named)


def split_status(status: int, shell: bool) -> Tuple[Optional[int], Optional[int]]:
    """(exit code, None) or (None, signal). A shell tells of its child's death by a signal with 128 + its number."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    if shell and code - _SHELL_BASE in _OUTSIDE:
        return None, code - _SHELL_BASE
    return code, None


def finished(end: Exit, sent: Set[int], step: Optional[int], total: Optional[int], from_zero: bool = False) -> bool:
    """The command has done all its work. `from_zero`: its steps are counted from 0."""
    if end.code != 0:
        return False
    return not sent or _last_step(step, total, from_zero)


def failed_after_work(
    end: Exit, sent: Set[int], step: Optional[int], total: Optional[int], from_zero: bool = False
) -> bool:
    """It failed by itself after its last step, in a summary for example. The end by a signal from outside is none of
    its own: it may have been in the middle of its results."""
    return end.code != 0 and not sent and end.signal not in _OUTSIDE and _last_step(step, total, from_zero)


def _last_step(step: Optional[int], total: Optional[int], from_zero: bool) -> bool:
    return total is not None and step is not None and step >= total - from_zero


def last_line(lines: Iterable[str], recent: Optional[Iterable[str]] = None) -> str:
    """The last line that says anything, as a beat can carry it: the telling one of `recent` (None = of `lines`), else
    the very last."""
    said = [line.strip() for line in lines if line.strip()]
    telling = _telling_line(said if recent is None else [line.strip() for line in recent if line.strip()])
    return fit_text(telling or said[-1]) if said else ""


def _telling_line(said: List[str]) -> str:
    """The last of TELLING_LINES with telling words, unless the command went on and ended with an error of its own; ""
    where there is none. An error that was raised while the first one was handled, or that a launcher raises because
    its process failed, belongs to the first."""
    said = said[-TELLING_LINES:]
    marks = [number for number, line in enumerate(said) if any(word in line for word in TELLING_WORDS)]
    if not marks:
        return ""
    later = said[marks[-1] + 1 :]
    begins = [number for number, line in enumerate(later) if line.startswith(_TRACEBACK)]
    linked = any(word in line for line in later for word in (*_CHAINED, *LAUNCHER_WORDS))
    return said[marks[-1]] if linked or not begins else ""


class SteppedLog:
    """How long the log was, at the least, when the last step was reported: what stands before that ended nothing.

    `look` comes before each reading of the progress. A step that is new now was read after the look before this one,
    so it was written after the look before that.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._sizes = (0, 0)  # at the last two looks
        self._step: Optional[int] = None
        self._before_step = 0

    def look(self, step: Optional[int]) -> None:
        if step != self._step:
            self._step, self._before_step = step, self._sizes[0]
        self._sizes = (self._sizes[1], self._size())

    def tail_bytes(self) -> int:
        """Of the end of the log that may have been written after the last step; all of it where it was cut shorter."""
        size = self._size()
        return size - self._before_step if size >= self._before_step else size

    def _size(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0


def words_of(end: Exit) -> str:
    """How it ended, with its last words."""
    how = "exit code %s" % end.code if end.signal is None else "signal %d" % end.signal
    return "%s: `%s`" % (how, end.last_line) if end.last_line else how


def matches_any(patterns: Iterable[str], lines: Iterable[str]) -> bool:
    """Some line holds a match. A pattern that is none is left out: it was checked at the submit."""
    expressions = []
    for pattern in patterns:
        try:
            expressions.append(re.compile(pattern))
        except re.error as error:
            _log.warning("retry.log_patterns: %r is no pattern: %s", pattern, error)
    return any(pattern.search(line[:_LINE_CHARS]) for line in lines for pattern in expressions)


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

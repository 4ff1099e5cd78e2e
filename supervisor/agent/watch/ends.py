"""The end of the command: reasons to end it, the time limits that follow, and how it ended.

Every reason comes together in `EndReasons`: a stop (push response, .stop marker, TERM to the agent), a preemption
notice, the machine's own time limit, no contact to the outside, a newer attempt, a closed run. The first reason is the
one that is reported; each further one can only shorten the times. All times are monotonic seconds. The command gets
TERM at once and KILL at `kill_at`; at `save_until` uploads stop. Losing the baton ends writing at once.

A preemption is announced by the metadata server: `instance/preempted` becomes TRUE. Then, at once or 120 s later, as
the machine was created, the system is shut down, which takes 30 s at best. The value is read once before the first
wait, since a wait ends with a change only; every wait names the last value, so no change between two waits is missed.

Exit 0 after our own TERM is a training that saved and left on request, not one that has finished: the work is done only
when the last reported step is the total. (To count it as finished would lose the run; to continue from the last
checkpoint costs seconds.)
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from typing import Callable, Iterable, NamedTuple, Optional, Set, Tuple

from supervisor.agent.machine.folder import MachineFolder, read_bytes
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.store.access import Contact
from supervisor.agent.store.googleapi import MetadataServer
from supervisor.agent.store.httpclient import Unreachable
from supervisor.agent.watch.beat_state import fit_text
from supervisor.contract import heartbeat
from supervisor.contract.drill import notice_times
from supervisor.contract.heartbeat import Exit
from supervisor.contract.logs.beginning import NEAR_LINES, beginning
from supervisor.contract.logs.matcher import patterns_of, scan
from supervisor.contract.signs import CASCADE, TEARDOWN

SUPERSEDED_GRACE_S = 30.0  # the next agent is waiting
LOST_GRACE_S = 5.0  # nothing that the command still does can be saved
SAVE_S = 600.0  # how long uploads may continue after a stop; the supervisor closes the baton when it has waited enough
POINTER_S = 1.5  # of the time for uploads, reserved for moving the baton
SIGNAL = "signal"  # values of notice_from: USR1 announces the end, or TERM itself does
TERM = "term"
EARLY_S = 90.0  # a signal that announces the time limit may come so early
SHUTDOWN_S = 25.0  # of the 30 s at best between the system's shutdown and the end
PREEMPTED = "instance/preempted"
WAIT_S = 60.0  # after this time the metadata server responds without a change
SPARE_S = 15.0
BETWEEN_S = 0.2  # two waits
RETRY_S = 2.0  # after an error
TAIL_BYTES = 262144
_LINE_CHARS = 2000  # of each line that log patterns are matched against
_SHELL_BASE = 128
# SIGXCPU: the limit of CPU time that this computer sets (ulimit -S -t).
_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU)
_log = logging.getLogger("agent")


class Ending(NamedTuple):
    """`reason` is one of heartbeat.LEFT; `may_write` False: the baton is not ours (any more)."""

    reason: str
    kill_at: float
    save_until: float
    may_write: bool = True


class EndReasons:
    """Safe to use from every thread; `term_received` and `warned` may be set by a signal handler, which must not wait
    for a lock."""

    def __init__(
        self, job: Job, contact: Contact, monotonic: Callable[[], float], notice_s: Callable[[], Optional[float]]
    ) -> None:
        self._job, self._contact, self._monotonic, self._notice_s = job, contact, monotonic, notice_s
        self._expires_at = monotonic() + job.machine_max_s
        self._lock = threading.Lock()
        self._ending: Optional[Ending] = None
        self._term_counted = self._limit_counted = False
        self.term_received = self.warned = False
        self.notice_left_s: Optional[float] = None  # at the time when the notice was first seen

    def add(self, reason: str, may_write: bool = True) -> None:
        """End for this reason (one of heartbeat.LEFT)."""
        now = self._monotonic()
        grace_s, save_s = self._job.stop_grace_s, SAVE_S
        if not may_write:
            grace_s, save_s = min(grace_s, LOST_GRACE_S), 0.0
        elif reason == heartbeat.SUPERSEDED:
            grace_s = min(grace_s, SUPERSEDED_GRACE_S)
        elif reason == heartbeat.RESUME_IGNORED:
            grace_s = 0.0
        elif reason == heartbeat.CUT_OFF:
            save_s = -grace_s  # the command saves locally; an upload cannot reach the store
        self._shorten(Ending(reason, now + grace_s, now + grace_s + save_s, may_write))

    def check(self) -> Optional[Ending]:
        """Check for new reasons; None = continue. Cheap enough for ten times a second."""
        notice_left_s = self._notice_s() if self.notice_left_s is None else None
        if notice_left_s is not None:
            self.notice_left_s = notice_left_s
            self._end_within(heartbeat.NOTICED, notice_left_s)
        if self.warned and self.notice_left_s is None:
            self._count_warning()
        if self.term_received and not self._term_counted:
            self._term_counted = True
            self._count_term()
        if self._monotonic() >= self._expires_at:
            self._count_limit()
        if self._contact.silent_s() >= self._job.cut_off_s:
            self._add_first(heartbeat.CUT_OFF)
        return self._ending

    @property
    def ending(self) -> Optional[Ending]:
        return self._ending

    def machine_stays(self) -> bool:
        """Nothing requires the machine itself to end: for an agent whose work is over."""
        return not self.term_received and self._monotonic() < self._expires_at

    def uploads_over(self, reserve_s: float = 0.0) -> bool:
        """Nothing may be uploaded any more: the time, less a reserve, is over, or the baton is not ours."""
        ending = self._ending
        return ending is not None and (not ending.may_write or self._monotonic() >= ending.save_until - reserve_s)

    def _add_first(self, reason: str) -> None:
        """A lasting condition holds at each check; only a first reason sets the times."""
        if self._ending is None:
            self.add(reason)

    def _count_warning(self) -> None:
        """Near the time limit the warning is about that limit, else about a preemption."""
        if self._monotonic() >= self._expires_at - EARLY_S:
            self._count_limit()
        else:
            self.notice_left_s = self._job.notice_s
            self._end_within(heartbeat.NOTICED, self._job.notice_s)

    def _count_limit(self) -> None:
        """Once. Where the platform ends the machine soon after, all of that time is for the save, also of a stop."""
        if self._job.expiry_s <= 0:
            self._add_first(heartbeat.EXPIRED)
        elif not self._limit_counted:
            self._limit_counted = True
            self._end_within(heartbeat.EXPIRED, self._expires_at + self._job.expiry_s - self._monotonic())

    def _count_term(self) -> None:
        """Checked after the notice: at the end of a preemption the system shuts the machine down and sends TERM. A
        rented machine has no more than that time, whatever shuts it down. Where a signal announces it, TERM is a stop;
        where TERM itself does, nobody else sends it."""
        if self._job.notice_from == TERM:
            self.notice_left_s = self._job.notice_s
            self._end_within(heartbeat.NOTICED, self._job.notice_s)
        elif self._job.notice_from in (None, SIGNAL):
            self._add_first(heartbeat.STOPPED)
        else:
            self._end_within(heartbeat.STOPPED, SHUTDOWN_S)

    def _end_within(self, reason: str, left_s: float) -> None:
        now, times = self._monotonic(), notice_times(left_s, self._job.upload_reserve_s)
        self._shorten(Ending(reason, now + times.kill_s, now + times.save_s))

    def _shorten(self, new: Ending) -> None:
        with self._lock:
            old = self._ending
            self._ending = new if old is None else old._replace(
                kill_at=min(old.kill_at, new.kill_at),
                save_until=min(old.save_until, new.save_until),
                may_write=old.may_write and new.may_write,
            )  # fmt: skip


class PreemptionWatch:
    """A thread of its own repeats `step`. The notice is written into the machine's folder, like any other notice."""

    def __init__(self, server: MetadataServer, folder: MachineFolder, notice_s: float) -> None:
        self._server, self._folder, self._notice_s = server, folder, notice_s
        self._etag = ""  # of the last value; "" = none was read yet
        self._failing = False

    def step(self) -> Optional[float]:
        """Wait for the notice; seconds until the next step, None once there is one."""
        try:
            preempted = self._read()
        except Unreachable as error:
            if not self._failing:
                _log.warning("the metadata server does not report preemptions: %s", error)
            self._failing = True
            return RETRY_S
        self._failing = False
        if preempted.upper() != "TRUE":
            return BETWEEN_S if self._etag else RETRY_S
        self._etag = ""  # if the next line fails, the value is read again without a wait
        self._folder.write_notice(self._notice_s + SHUTDOWN_S)
        return None

    def _read(self) -> str:
        wait = {"wait_for_change": "true", "last_etag": self._etag, "timeout_sec": "%d" % WAIT_S}
        args = (PREEMPTED, wait, WAIT_S + SPARE_S) if self._etag else (PREEMPTED,)
        value, self._etag = self._server.text(*args)
        return value


def judge(
    status: int,
    *,
    sent: Set[int],
    shell: bool,
    ran_s: float,
    tail: bytes,
    retry: Tuple[Iterable[int], Iterable[str]],
    began: str = "",
) -> Exit:
    """`status`: raw wait status. `sent`: signals that we sent. `tail`: the end of the output. `retry`: codes and
    patterns. `began`: the line of the output that began the end; "" = none does.

    `sent_by_us`: our TERM or KILL ended it. It died of a signal that we sent, or it exited with a code after our TERM.
    """
    code, number = split_status(status, shell)
    ours = number in sent if number is not None else code != 0 and signal.SIGTERM in sent
    lines = tail.decode("utf-8", "replace").splitlines()
    codes, patterns = retry
    retry_named = (code is not None and code in tuple(codes)) or matches_any(patterns, lines)
    return Exit(code, number, ours, round(ran_s, 3), fit_text(began) or very_last_line(lines), retry_named)


def split_status(status: int, shell: bool) -> Tuple[Optional[int], Optional[int]]:
    """(exit code, None) or (None, signal). A shell reports its child's death by a signal as 128 + its number."""
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    if shell and code - _SHELL_BASE in _OUTSIDE:
        return None, code - _SHELL_BASE
    return code, None


def finished(end: Exit, sent: Set[int], step: Optional[int], total: Optional[int], from_zero: bool = False) -> bool:
    """The command has done all its work. `from_zero`: its steps are counted from 0."""
    return end.code == 0 and (not sent or _is_last_step(step, total, from_zero))


def failed_after_work(
    end: Exit, sent: Set[int], step: Optional[int], total: Optional[int], from_zero: bool = False
) -> bool:
    """It failed by itself after its last step, in a summary for example. A signal from outside does not count: the
    command may have been writing its results."""
    return end.code != 0 and not sent and end.signal not in _OUTSIDE and _is_last_step(step, total, from_zero)


def _is_last_step(step: Optional[int], total: Optional[int], from_zero: bool) -> bool:
    return total is not None and step is not None and step >= total - from_zero


def last_line(lines: Iterable[str]) -> str:
    """The last line with a meaning, as a beat can carry it: the one that began the end, else the very last."""
    words = [line.strip() for line in lines if line.strip()]
    return fit_text(beginning(scan("\n".join(words).encode("utf-8", "replace")))[1]) or very_last_line(words)


def very_last_line(lines: Iterable[str]) -> str:
    """The last line that does not only report another process or what happens after the end; if there is none, the last
    one."""
    words = [line.strip() for line in lines if line.strip()]
    for line in reversed(words[-NEAR_LINES:]):
        if not any(pattern.role in (CASCADE, TEARDOWN) for pattern in patterns_of(line)):
            return fit_text(line)
    return fit_text(words[-1]) if words else ""


def words_of(end: Exit) -> str:
    """How it ended, with its last line."""
    how = "exit code %s" % end.code if end.signal is None else "signal %d" % end.signal
    return "%s: `%s`" % (how, end.last_line) if end.last_line else how


def matches_any(patterns: Iterable[str], lines: Iterable[str]) -> bool:
    """A line matches one of the patterns. An invalid pattern is left out: the submit has checked them."""
    expressions = []
    for pattern in patterns:
        try:
            expressions.append(re.compile(pattern))
        except re.error as error:
            _log.warning("retry.log_patterns: %r is no pattern: %s", pattern, error)
    return any(pattern.search(line[:_LINE_CHARS]) for line in lines for pattern in expressions)


def masked_tail(path: str, masker: Masker, limit: int = TAIL_BYTES) -> bytes:
    """The end of a file without the values of secrets, even if the cut goes through one."""
    raw_bytes = limit + masker.longest
    return masker.tail(read_bytes(path, -raw_bytes, raw_bytes), limit)

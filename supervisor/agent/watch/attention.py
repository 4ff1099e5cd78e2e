"""Reasons to end before the command does, and until when what may still be done.

Every reason comes together here: a stop (push answer, .stop marker, TERM to the agent), a preemption notice, the
machine's own time limit, nobody reachable, a newer attempt, a closed run. The first reason is the one that is told;
each further one can only shorten the times. All times are monotonic seconds. The command gets TERM at once and KILL
at `kill_at`; at `save_until` uploads are given up. Losing the baton ends writing at once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Callable, Optional

from supervisor.agent.machine.job import Job
from supervisor.agent.store.reach import Reach
from supervisor.agent.watch.preemption import SHUTDOWN_S
from supervisor.contract import heartbeat

SUPERSEDED_GRACE_S = 30.0  # a newcomer waits for us
LOST_GRACE_S = 5.0  # nothing of what the command still does can be kept
SAVE_S = 600.0  # how long uploads may go on after a stop; the supervisor closes the baton when it has waited enough
NOTICE_SHARE = 0.4  # of a short notice that is kept for the upload
POINTER_S = 1.5  # of the time for uploads, kept for moving the baton
LAST_WORDS_S = 0.5  # of a notice, kept for the last beat


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
        self._job = job
        self._reach = reach
        self._monotonic = monotonic
        self._notice_s = notice_s
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
        return ending is not None and (
            not ending.may_write or self._monotonic() >= ending.save_until - POINTER_S
        )

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

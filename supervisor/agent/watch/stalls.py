"""No step and no checkpoint for `stall_dump_s` in phase training: where the threads stand is kept, once per episode.

Before the first step the limit is `first_dump_s`, where the job gives one: the run has reported steps before. The
supervisor judges stalls, and later than this; so the dump is in the store before the machine may be given up.
"""

from __future__ import annotations

from typing import Callable, Optional, Tuple

from supervisor.agent.machine.job import Job
from supervisor.agent.watch.situation import Situation
from supervisor.contract.heartbeat import TRAINING

LOOK_S = 1.0


class StallWatch:
    """A loop's step; `dump` gets the seconds without progress."""

    def __init__(
        self, job: Job, situation: Situation, dump: Callable[[float], None], monotonic: Callable[[], float]
    ) -> None:
        self._job, self._situation, self._dump, self._monotonic = job, situation, dump, monotonic
        self._at: Tuple[Optional[int], Optional[int], str] = (None, None, "")
        self._since = monotonic()
        self._dumped = False

    def step(self) -> Optional[float]:
        """Seconds until the next look; None = never."""
        limits = [limit for limit in (self._job.stall_dump_s, self._job.first_dump_s) if limit is not None]
        if not limits:
            return None
        beat, now = self._situation.now, self._monotonic()
        at = (beat.step, beat.checkpoint_step, beat.phase)
        if at != self._at:
            self._at, self._since, self._dumped = at, now, False
        limit_s = self._job.first_dump_s if beat.step is None else self._job.stall_dump_s
        due = limit_s is not None and beat.phase == TRAINING and now - self._since >= limit_s
        if due and not self._dumped:
            self._dumped = True
            self._dump(now - self._since)
        return min(LOOK_S, min(limits) / 4)

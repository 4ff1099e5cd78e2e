"""When the training should save next: the file SPOT_SAVE_FILE appears then, and goes when a new checkpoint is seen.

What a save costs is measured: by how much longer the step is in which a checkpoint appeared than steps usually are. A
next one is never due before the last one can be in the store. How likely this machine is preempted comes with the job
and its age (contract/saving.py). A training that saves by its own count of steps never looks at the file; how often it
saves, and how often it should, is a hint then.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
from typing import Callable, Deque, Dict, Optional, Tuple

from supervisor.agent.machine.folder import open_own
from supervisor.agent.watch.rhythm import median
from supervisor.contract.saving import USUAL_COST_S, interval_s

STEPS, SAVES = 50, 5  # whose usual time counts
LEAST_SAVES = 3  # intervals between saves; fewer say nothing about a habit
APART_S = 10.0  # what appears sooner after a checkpoint is a part of it
FAR = 2.0  # how much too rarely or too often it saves before that is worth a hint
COSTLY = 0.02  # of its time: saves that cost less may come as often as they like


class SaveClock:
    """`add` and `look` are for one thread, `took` and `notes` for any. `age_s`: of the machine; `factor`: of its job,
    0 = nothing preempts it. `seen_at`: when the newest checkpoint was first seen, by `monotonic`; None = none was."""

    def __init__(
        self,
        path: str,
        factor: float,
        seen_at: Callable[[], Optional[float]],
        monotonic: Callable[[], float] = time.monotonic,
        age_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._path, self._factor, self._seen_at = path, factor, seen_at
        self._monotonic, self._age_s = monotonic, age_s
        self._since: Optional[float] = None  # of the interval; None = the command has not started
        self._due: Optional[float] = None
        self._is_asked = False
        self._saved_at: Optional[float] = None  # the first sight of the newest save
        self._report: Optional[Tuple[float, int]] = None  # (time, step) of the last one
        self._gaps: Deque[float] = deque(maxlen=STEPS)  # between reports
        self._per_step: Deque[float] = deque(maxlen=STEPS)
        self._costs: Deque[float] = deque(maxlen=SAVES)
        self._intervals: Deque[float] = deque(maxlen=SAVES)
        self._saved_in = 0  # reports that may still show the cost of the last save
        self._cost_s = 0.0  # of it, by those so far
        self._took_s = 0.0

    @property
    def cost_s(self) -> float:
        return median(self._costs) if self._costs else USUAL_COST_S

    def begin(self) -> None:
        """The command starts, with the newest checkpoint there is. A drill starts it again."""
        self._since, self._due, self._report, self._saved_in = self._monotonic(), None, None, 0
        self._take_back()

    def took(self, seconds: float) -> None:
        """From the first byte of a checkpoint to its pointer."""
        self._took_s = seconds

    def add(self, step: int, metrics: object = None, nonfinite: object = None) -> None:
        """One report."""
        now, last = self._monotonic(), self._report
        self._report = (now, step)
        if last is None or step <= last[1]:
            return
        gap = now - last[0]
        self._per_step.append(gap / (step - last[1]))
        if not self._saved_in:
            self._gaps.append(gap)
            return
        self._saved_in -= 1
        self._cost_s = max(self._cost_s, gap - median(self._gaps))
        if not self._saved_in:
            self._costs.append(self._cost_s)
            self._due = None  # it follows from the new cost

    def look(self) -> None:
        """See a new checkpoint, or ask for one. Several times a minute at least."""
        if self._since is None:
            return
        now, seen_at = self._monotonic(), self._seen_at()
        if seen_at is not None and seen_at > self._since:
            self._see(seen_at)
        if self._due is None:
            self._due = self._since + max(self._took_s, interval_s(self._age_s(), self.cost_s, self._factor))
        if now >= self._due:
            self._ask()
            self._due = now + max(self._took_s, interval_s(self._age_s(), self.cost_s, self._factor))

    def _see(self, seen_at: float) -> None:
        before_s = seen_at - (self._since or 0.0)
        self._since, self._due = seen_at, None
        if self._saved_at is None or before_s > APART_S:  # else it is still being written
            if self._saved_at is not None:
                self._intervals.append(seen_at - self._saved_at)
            self._saved_at = seen_at
            if self._gaps:
                # The report before may already have waited for it, and the next one is the first after it.
                self._cost_s, self._saved_in = 0.0, 2
        if self._is_asked:
            self._take_back()

    def _take_back(self) -> None:
        self._is_asked = False
        with suppress(OSError):
            os.unlink(self._path)

    def _ask(self) -> None:
        """By a new file each time: a training asks itself whether it is another one."""
        temporary = self._path + ".new"
        with suppress(OSError), open(temporary, "w", opener=open_own):
            os.replace(temporary, self._path)
            self._is_asked = True

    def notes(self) -> Dict[str, float]:
        """Figures of contract/signs.py: how often it saves, and should."""
        if len(self._intervals) < LEAST_SAVES:
            return {}
        every_s = median(self._intervals)
        best_s = interval_s(self._age_s(), self.cost_s, self._factor)
        is_rare = every_s > FAR * best_s and self._factor > 0
        if not is_rare and (FAR * every_s >= best_s or self.cost_s < COSTLY * every_s):
            return {}
        notes = {"save.every_s": round(every_s, 1), "save.best_s": round(best_s, 1), "save.s": round(self.cost_s, 1)}
        if self._per_step:
            notes["save.best_steps"] = max(1, round(best_s / max(1e-9, median(self._per_step))))
        return notes

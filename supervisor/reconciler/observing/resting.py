"""When stored beats may rest: in a bucket each of them costs a write, and each look at them a listing.

While the pushed beats of a run reach the loop, its agent stores one rarely, and a tick lists the stored ones rarely.
The chain is safe from its end: the tick that has read a pushed beat grants the rest, the response to the next push
carries the grant, and both run out by themselves. An agent whose grant is withdrawn or too old stores a beat at once.
A tick in which any run with a machine has no young pushed beat lists. So each silence is judged as it always was: by a
fresh listing, from the last beat of either way. In a tick without a listing stored beats are unknown, not absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.contract.heartbeat import Beat
from supervisor.domain.policies import list_every_s
from supervisor.domain.run import Run
from supervisor.domain.status import Status

IDLE_LIST_S = 600.0  # without runs, whose stop markers would show that the store is in trouble

Pushed = Mapping[str, tuple[Beat, float]]


@dataclass
class Resting:
    """`granted`: run id -> the launch whose stored beats may rest, by the last tick. For the thread of the loop."""

    beat_store_s: float
    poll_interval_s: float
    runs: Mapping[int, Run] = field(default_factory=dict)  # of the cell, as the tick holds them
    doubts: Callable[[], bool] = lambda: False  # the breaker of beats is open: only a listing can close it
    granted: Mapping[str, str] = field(default_factory=dict)
    granted_at: float = float("-inf")
    _listed_at: float = float("-inf")

    def restart(self) -> None:
        """A new leadership, which grants nothing until it has read the beats itself."""
        self.granted = {}
        self.doubt()

    def doubt(self) -> None:
        """The next tick lists: something else could not be read in the store."""
        self._listed_at = float("-inf")

    def listed(self, monotonic: float) -> None:
        """A fresh listing was read."""
        self._listed_at = monotonic

    def needs_listing(self, pushed: Pushed, monotonic: float) -> bool:
        every_s = list_every_s(self.beat_store_s) if self.runs else IDLE_LIST_S
        if not 0.0 <= monotonic - self._listed_at < every_s or self.doubts():
            return True
        return any(not (_has_no_machine(run) or self._is_heard(run, pushed, monotonic)) for run in self.runs.values())

    def grant(self, runs: Iterable[Run], pushed: Pushed, monotonic: float) -> None:
        """After the decisions of a tick that read these pushed beats. No rest where something is under way that an
        agent learns from the baton."""
        slow = self.poll_interval_s > self.beat_store_s
        self.granted_at = monotonic
        self.granted = {
            run.run_id: run.attempt.launch_id
            for run in (() if slow else runs)
            if self._is_heard(run, pushed, monotonic) and not _is_busy(run) and run.attempt is not None
        }

    def _is_heard(self, run: Run, pushed: Pushed, monotonic: float) -> bool:
        """It runs, and a pushed beat of its launch is younger than a stored one would have to be. The second machine
        of a race may have stored one that was never pushed."""
        attempt, entry = run.live_attempt, pushed.get(run.run_id)
        if run.status != Status.RUNNING or attempt is None or entry is None or run.open_rival is not None:
            return False
        return entry[0].launch_id == attempt.launch_id and monotonic - entry[1] <= self.beat_store_s


def _has_no_machine(run: Run) -> bool:
    """It never had one: a beat of an earlier attempt is news too."""
    return run.attempt is None and run.try_ is None


def _is_busy(run: Run) -> bool:
    return bool(run.stop is not None or run.retiring or run.drills.launch_id or run.yielding.launch_id)

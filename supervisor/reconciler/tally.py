"""What the loop counts: from events when they are committed, from the runs at the end of each tick. Decides nothing.

Only the time in which this process leads is counted. A new leadership starts without any memory, so that neither money
nor a recovery is counted over a time in which no tick ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import SAVED_ON_NOTICE, Event, EventKind
from supervisor.domain.run import Run
from supervisor.telemetry import metrics

SECONDS_PER_H = 3600.0


@dataclass
class Standing:
    """How the runs stood at the end of a tick. By provider: live attempts, machines that are being released and since
    when the oldest of them should be gone (epoch seconds), and what they all bill."""

    statuses: Counter[str] = field(default_factory=Counter)
    active: Counter[str] = field(default_factory=Counter)
    retiring: Counter[str] = field(default_factory=Counter)
    gone_due_at: dict[str, float] = field(default_factory=dict)
    usd_per_h: dict[str, float] = field(default_factory=dict)
    asking: int = 0  # runs that wait for the answer of a person


class Tally:
    """Of one loop. Written by the tick's thread; `standing` is a new value after each tick and any thread may read
    it."""

    def __init__(self) -> None:
        self.standing: Standing | None = None  # None: no tick yet, in this leadership
        self._at: float | None = None  # monotonic time of the last tick
        self._lost: dict[int, tuple[float, str]] = {}  # run key -> when its last attempt ended, and the cause

    def restart(self) -> None:
        self.standing = self._at = None
        self._lost.clear()

    def ticked(self, runs: Iterable[Run], monotonic: float) -> None:
        """`runs`: those that are not settled."""
        new = Standing()
        statuses, usd = new.statuses, new.usd_per_h
        for run in runs:
            statuses[run.status] += 1
            new.asking += run.asks
            attempt = run.attempt
            if attempt is not None:
                if attempt.ended_at is None:
                    new.active[run.provider] += 1
                _bill(usd, attempt)
            for machine in run.retiring:
                provider = machine.ref.provider
                new.retiring[provider] += 1
                due_at = max(machine.since, machine.until)
                new.gone_due_at[provider] = min(due_at, new.gone_due_at.get(provider, due_at))
                if machine.attempt is not None:
                    _bill(usd, machine.attempt)
        if self._at is not None:
            for provider, rate in usd.items():
                metrics.USD_TOTAL.add(provider, by=rate * (monotonic - self._at) / SECONDS_PER_H)
        self.standing, self._at = new, monotonic

    def committed(self, before: Run, after: Run, events: Sequence[Event], now: float) -> None:
        """A change of a run was written, with these events."""
        for event in events:
            self._count(after, event, now)
        if after.terminal and not before.terminal:
            metrics.RUNS_ENDED.add(after.status)

    def forget(self, key: int) -> None:
        """The run does not belong to this cell any more."""
        self._lost.pop(key, None)

    def _count(self, run: Run, event: Event, now: float) -> None:
        cause = str(event.data.get("cause", ""))
        match event.kind:
            case EventKind.LAUNCHING:
                metrics.LAUNCHES.add(run.provider)
            case EventKind.OBTAINED:
                metrics.TRIES.add("obtained")
            case EventKind.TRY_FAILED:
                metrics.TRIES.add(cause)
            case EventKind.ATTEMPT_ENDED:
                metrics.ATTEMPTS_ENDED.add(cause)
                self._lost[run.key] = (now, cause)
            case EventKind.STARTED | EventKind.RECOVERED:
                self._began(run, now)
                saved = event.data.get(SAVED_ON_NOTICE)
                if saved is not None:
                    metrics.PREEMPTIONS_SAVED.add("yes" if saved else "no")
            case _:
                return

    def _began(self, run: Run, now: float) -> None:
        if run.attempt is not None:
            metrics.FIRST_BEAT_S.observe(max(0.0, now - run.attempt.requested_at), run.provider)
        lost = self._lost.pop(run.key, None)
        if lost is not None:
            metrics.RECOVERY_S.observe(max(0.0, now - lost[0]), lost[1])


def _bill(usd: dict[str, float], attempt: Attempt) -> None:
    if attempt.gone_at is None and attempt.stopped_at is None:
        provider = attempt.placement.provider
        usd[provider] = usd.get(provider, 0.0) + (attempt.price_usd_per_h or 0.0)

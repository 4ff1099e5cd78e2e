"""What a run has used up so far: hours that are billed, their cost, and time in training.

All go by the agent's own count of time (Attempt.drift_s): a wall clock that steps bills no hour.
"""

from __future__ import annotations

from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.run import Run


def attempt_cost_usd(attempt: Attempt, now: float) -> float | None:
    """What the machine of this attempt has cost until it ran no more, or so far. None = no known price."""
    if attempt.price_usd_per_h is None:
        return None
    return attempt.price_usd_per_h * billed_h(attempt, now)


def on_demand_usd(attempt: Attempt, now: float) -> float:
    """What the same time would have cost on demand; 0 where that price is not known."""
    return (attempt.on_demand_usd_per_h or 0.0) * billed_h(attempt, now)


def billed_h(attempt: Attempt, now: float) -> float:
    """Hours that its machine is billed for until it ran no more, or so far; never below the platform's minimum."""
    end = attempt.stopped_at if attempt.stopped_at is not None else attempt.gone_at
    lasted_s = (now if end is None else end) - attempt.started_at - attempt.drift_s
    return max(attempt.minimum_s, lasted_s) / 3600.0


def run_cost_usd(run: Run, now: float) -> float:
    """Cost of the whole run so far, machines that are kept or on their way out included; attempts without a known price
    are left out (`run.cost_known` is False then)."""
    live = run.live_attempt
    so_far = (attempt_cost_usd(live, now) or 0.0) if live is not None else 0.0
    return run.cost_usd + so_far + sum(h * (one.price_usd_per_h or 0.0) for one, h in _after_work(run, now))


def run_on_demand_usd(run: Run, now: float) -> float:
    """What the same time would have cost on demand."""
    live = run.live_attempt
    so_far = on_demand_usd(live, now) if live is not None else 0.0
    kept = sum(h * (one.on_demand_usd_per_h or 0.0) for one, h in _after_work(run, now))
    return run.on_demand_usd + so_far + kept


def _after_work(run: Run, now: float) -> list[tuple[Attempt, float]]:
    """Attempts that are over and whose machine is billed on, with the hours since: the row gets them when it stops. A
    machine that waits for a person's approval does so for a day."""
    found = []
    for item in run.retiring:
        attempt, _ = attempt_of(run, item)
        if attempt is not None and attempt.ended_at is not None and attempt.stopped_at is None:
            found.append((attempt, max(0.0, billed_h(attempt, now) - billed_h(attempt, attempt.ended_at))))
    return found


def attempt_of(run: Run, item: Retiring) -> tuple[Attempt | None, bool]:
    """The attempt whose machine this is, while it is not known gone; and whether it is the run's own."""
    own = run.attempt is not None and run.attempt.launch_id == item.launch_id
    attempt = run.attempt if own else item.attempt
    return (None if attempt is None or attempt.gone_at is not None else attempt), own


def training_s(attempt: Attempt | None, now: float) -> float:
    """How long this attempt has trained, by its agent's own count: no step of our clock is in it."""
    if attempt is None or attempt.training_at is None:
        return 0.0
    return max(0.0, (attempt.ended_at or now) - attempt.training_at - attempt.drift_s)

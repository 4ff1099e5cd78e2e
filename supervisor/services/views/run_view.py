"""A run as the API shows it: plain JSON values, made by hand because a list of a hundred must take milliseconds.

Money is in US dollars with at most six places, times are RFC 3339, durations carry `_s`. What is not known is null,
never 0. Prices that are unknown are left out of the sums, and `cost.known` says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.machines import Placement
from supervisor.domain.run import Outcome, Run, run_cost_usd, run_on_demand_usd
from supervisor.services.views import rfc3339
from supervisor.wording.forecast import eta_s, live_pulse, needs_person
from supervisor.wording.run import next_action, status_text

Json = dict[str, Any]
GpuOf = Callable[[Placement], str | None]  # Parts.gpu


def dumps(answer: object) -> str:
    """JSON text, never NaN or Infinity: ValueError for those, so that no reader has to choke on them."""
    return json.dumps(answer, allow_nan=False, separators=(",", ":"))


def usd(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 6)


def not_known(placement: Placement) -> str | None:
    """A `GpuOf` where there are no providers to ask."""
    return None


def run_json(run: Run, now: float, labels: Mapping[str, str], gpu_of: GpuOf = not_known, trouble: str = "") -> Json:
    """The fields of `Run` in openapi/openapi.json, in the order in which people look for them. `trouble`: as in
    `status_text`."""
    attempt = _present(run)
    pulse = live_pulse(run)
    action = next_action(run, now)
    outcome = run.files.outcome
    placement = _placement(run, attempt)
    return {
        "run_id": run.run_id,
        "generation": run.generation,
        "owner": run.owner,
        "status": run.status,
        "cause": run.cause,
        "status_text": status_text(run, now, trouble=trouble),
        "detail": run.detail,
        "hold": run.hold,
        "needs_person": needs_person(run),
        "attempt": run.attempt.number if run.attempt is not None else None,
        "placement": placement_json(placement, gpu_of) if placement is not None else None,
        "machine_id": _machine_id(run, attempt),
        "beat": None if pulse is None else {"age_s": round(max(0.0, now - pulse.beat_at), 3), "phase": pulse.phase},
        "stall": {"polls": 0 if pulse is None else pulse.stall_polls, "limit": run.policy.stall.polls},
        "progress": _progress(run, pulse, now),
        "checkpoint_step": run.files.checkpoint_step if pulse is None else _newest(run.files.checkpoint_step, pulse),
        "price_usd_per_h": usd(attempt.price_usd_per_h) if attempt is not None else None,
        "cost": _cost(run, now),
        "counters": _counters(run),
        "next_action": {"what": action.what, "at": rfc3339.maybe(action.at)},
        "results_manifest_sha256": outcome.results_sha256 if outcome is not None else None,
        "results": None if outcome is None else _results(run, outcome),
        "purging": run.files.purging,
        "purged_at": rfc3339.maybe(run.files.purged_at),
        "kept_until": rfc3339.maybe(run.kept_until),
        "stop": None if run.stop is None else {"actor": run.stop.actor, "at": rfc3339.text(run.stop.at)},
        "image": _image(run),
        "labels": labels,
        "created_at": rfc3339.text(run.created_at),
        "generation_at": rfc3339.text(run.generation_at),
        "status_since": rfc3339.text(run.status_since),
        "version": run.version,
    }


def _image(run: Run) -> Json | None:
    if not run.policy.image:
        return None
    return {
        "name": run.policy.image,
        "digest": run.image.digest or None,
        "pinned": run.image.digest != "",
        "follow_tag": run.policy.follow_tag,
    }


def placement_json(placement: Placement, gpu_of: GpuOf) -> Json:
    return {
        "provider": placement.provider,
        "region": placement.region,
        "zone": placement.zone,
        "shape": placement.shape,
        "gpu": gpu_of(placement),
        "spot": placement.spot,
    }


def _present(run: Run) -> Attempt | None:
    """The attempt whose machine is not known gone yet: it has a place, an id and a price."""
    return run.attempt if run.attempt is not None and run.attempt.gone_at is None else None


def _machine_id(run: Run, present: Attempt | None) -> str | None:
    """Where a person must decide, the machine is named even when it is gone: the answer must name it."""
    named = run.attempt if run.person.why else present
    return named.machine_id if named is not None else None


def _placement(run: Run, attempt: Attempt | None) -> Placement | None:
    if run.open_try is not None:
        return run.open_try.placement
    return attempt.placement if attempt is not None else None


def _newest(checkpoint_step: int | None, pulse: Pulse) -> int | None:
    return max((step for step in (checkpoint_step, pulse.checkpoint_step) if step is not None), default=None)


def _progress(run: Run, pulse: Pulse | None, now: float) -> Json | None:
    """Of the live attempt; else the last values that were told, without a pace."""
    last = run.pulse
    if last is None:
        if run.files.checkpoint_step is None:
            return None
        return {"step": run.files.checkpoint_step, "total": None, "steps_per_s": None, "eta_s": None, "metrics": {}}
    left_s = eta_s(run, now)
    return {
        "step": last.step,
        "total": last.total,
        "steps_per_s": None if pulse is None else pulse.steps_per_s,
        "eta_s": None if left_s is None else round(left_s, 1),
        "metrics": dict(last.metrics),
    }


def _cost(run: Run, now: float) -> Json:
    live = run.live_attempt
    return {
        "usd": usd(run_cost_usd(run, now)),
        "on_demand_usd": usd(run_on_demand_usd(run, now)),
        "budget_usd": usd(run.policy.limits.budget_usd),
        "known": run.money.all_known and (live is None or live.price_usd_per_h is not None),
    }


def _results(run: Run, outcome: Outcome) -> Json:
    pulled = {"pulled": run.files.pulled_sha256 == outcome.results_sha256, "pull_required": run.policy.require_pull}
    return {"files": outcome.files, "size_bytes": outcome.size_bytes, "missing": outcome.missing, **pulled}


def _counters(run: Run) -> Json:
    counters = run.counters
    return {
        "attempts": counters.attempts,
        "tries": counters.tries,
        "counted": counters.counted,
        "user_failures": counters.user_failures,
        "preemptions": counters.preemptions,
        "no_progress": counters.no_progress,
    }

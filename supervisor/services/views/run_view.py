"""A run as the API shows it: plain JSON values, made by hand because a list of a hundred runs must take milliseconds.

Every response is declared once, as a TypedDict beside the function that builds it. mypy compares the two, and the
OpenAPI document is made from the declaration: a schema has the name of its class, without `Json` at the end.

Money is in US dollars with at most six decimal places, times are RFC 3339, durations carry `_s`. What is not known is
null, never 0. Unknown prices are left out of the sums, and `cost.known` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import drill
from supervisor.contract.drill import Round
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.machines import Placement
from supervisor.domain.run import Outcome, Run, run_cost_usd, run_on_demand_usd
from supervisor.lifecycle.living.drilling import verdict_of
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.wording.forecast import drill_state, eta_s, live_pulse, needs_person, shown_progress
from supervisor.wording.run import next_action, status_text

GpuOf = Callable[[Placement], str | None]  # Parts.gpu
GpuName = Annotated[
    str | None,
    Field(description="GPUs of a machine of this shape for the training: L4, 8 × A100 80GB. null: none, or not known."),
]
Market = Annotated[str, Field(description="spot, on-demand or flex-start; clients must accept other words")]
CAUSE = "A word of the cause table; clients must accept words that they do not know."
CauseWord = Annotated[str | None, Field(description=CAUSE)]


class PlacementJson(TypedDict):
    provider: str
    region: str
    zone: str
    shape: str
    gpu: GpuName
    spot: bool
    market: Market


class BeatShown(TypedDict):
    age_s: float
    phase: str


class StallShown(TypedDict):
    polls: int
    limit: int


class Progress(TypedDict):
    """`guessed`: the command reports no steps; these are read from its log, and no decision uses them."""

    step: int | None
    total: int | None
    steps_per_s: float | None
    eta_s: float | None
    metrics: dict[str, float]
    guessed: bool


class Cost(TypedDict):
    """`known` false: the price of an attempt is not known and left out, so the sums are lower bounds."""

    usd: float
    on_demand_usd: float
    budget_usd: float | None
    known: bool


class Counters(TypedDict):
    attempts: int
    tries: int
    counted: int
    user_failures: int
    preemptions: int
    no_progress: int


class NextAction(TypedDict):
    what: str
    at: formats.Time | None


class Results(TypedDict):
    files: int
    size_bytes: int
    missing: Sequence[str]
    pulled: bool
    pull_required: bool


class ImageShown(TypedDict):
    """`name`: as in the spec. `digest`: the exact content that the machines run, null where it is not pinned (yet).
    `follow_tag`: each attempt uses the content that the tag names at its start."""

    name: str
    digest: str | None
    pinned: bool
    follow_tag: bool


class StopShown(TypedDict):
    actor: str
    at: formats.Time


class NoticeShown(TypedDict):
    notice_s: float
    survives: bool


class RoundShown(TypedDict):
    """One notice of the drill. `moment`: training, again (the second time in a row), warm_up, evaluation, checkpoint.
    `why_not`: why it does not count, null: it does. `lost_steps`: done and not saved. `first_step`: the first one after
    the restore. `data_off`: samples between the reported and the expected data position, null: not reported."""

    moment: str
    delivered: bool
    why_not: str | None
    step: int | None
    save_s: float | None
    upload_s: float | None
    lost_steps: int | None
    restored_step: int | None
    first_step: int | None
    first_step_s: float | None
    loss_before: float | None
    loss_after: float | None
    data_off: float | None


class DrillShown(TypedDict):
    """`going_on`: a drill is ordered and not over. `verdict`: survives, fails, not_drilled; null: no drill is over yet.
    `text`: the same in one line. `notices`: which notices it survives; empty: not known. `p95_s`: what leaving, saving
    and an upload on its way need. `ask_s`: the notice that a platform is asked for, null: its own."""

    going_on: bool
    verdict: str | None
    text: str
    notices: Sequence[NoticeShown]
    p95_s: float | None
    ask_s: float | None
    drilled_at: formats.Time | None
    rounds: Sequence[RoundShown]


class RunJson(TypedDict):
    """`machine_id`, `price_usd_per_h`: of the machine, until it is known gone. `attempt`: number of the newest."""

    run_id: str
    generation: int
    owner: str
    status: str
    cause: CauseWord
    status_text: str
    detail: str
    hold: str
    needs_person: str
    attempt: int | None
    placement: PlacementJson | None
    machine_id: str | None
    beat: BeatShown | None
    stall: StallShown
    progress: Progress | None
    checkpoint_step: int | None
    price_usd_per_h: float | None
    cost: Cost
    counters: Counters
    next_action: NextAction
    results_manifest_sha256: str | None
    results: Results | None
    purging: bool
    purged_at: formats.Time | None
    kept_until: formats.Time | None
    stop: StopShown | None
    image: ImageShown | None
    drill: DrillShown | None
    group: str | None
    max_parallel: int | None
    priority: int
    labels: Mapping[str, str]
    created_at: formats.Time
    generation_at: formats.Time
    status_since: formats.Time
    version: int


def not_known(placement: Placement) -> str | None:
    """A `GpuOf` without providers."""
    return None


def run_json(run: Run, now: float, labels: Mapping[str, str], gpu_of: GpuOf = not_known, trouble: str = "") -> RunJson:
    """In the order in which people look for the fields. `trouble`: as in `status_text`."""
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
        "next_action": {"what": action.what, "at": formats.maybe_time(action.at)},
        "results_manifest_sha256": outcome.results_sha256 if outcome is not None else None,
        "results": None if outcome is None else _results(run, outcome),
        "purging": run.files.purging,
        "purged_at": formats.maybe_time(run.files.purged_at),
        "kept_until": formats.maybe_time(run.kept_until),
        "stop": None if run.stop is None else {"actor": run.stop.actor, "at": formats.time_text(run.stop.at)},
        "image": _image(run),
        "drill": _drill(run) if run.drills.number else None,
        "group": run.policy.group or None,
        "max_parallel": run.policy.max_parallel,
        "priority": run.policy.priority,
        "labels": labels,
        "created_at": formats.time_text(run.created_at),
        "generation_at": formats.time_text(run.generation_at),
        "status_since": formats.time_text(run.status_since),
        "version": run.version,
    }


def _image(run: Run) -> ImageShown | None:
    if not run.policy.image:
        return None
    return {
        "name": run.policy.image,
        "digest": run.image.digest or None,
        "pinned": run.image.digest != "",
        "follow_tag": run.policy.follow_tag,
    }


def _drill(run: Run) -> DrillShown:
    drills, live = run.drills, run.live_attempt
    verdict, record = verdict_of(drills), drill.decode(drills.record)
    goes_on = live is not None and drills.launch_id == live.launch_id  # an order is closed by the next attempt only
    return {
        "going_on": goes_on,
        "verdict": None if verdict is None else verdict.word,
        "text": drill_state(verdict, goes_on=goes_on, was_cut=drills.launch_id != "" and not goes_on),
        "notices": [{"notice_s": length, "survives": yes} for length, yes in (verdict.notices if verdict else ())],
        "p95_s": None if verdict is None or verdict.p95_s is None else round(verdict.p95_s, 1),
        "ask_s": None if verdict is None else verdict.ask_s,
        "drilled_at": formats.maybe_time(drills.drilled_at),
        "rounds": [] if record is None else [*map(_round, record.rounds)],
    }


def _round(each: Round) -> RoundShown:
    lost = None if each.step is None or not each.delivered else max(0, each.step - (each.saved or 0))
    return {
        "moment": each.moment,
        "delivered": each.delivered,
        "why_not": each.why or None,
        "step": each.step,
        "save_s": each.leave_s,
        "upload_s": each.upload_s,
        "lost_steps": lost,
        "restored_step": each.restored,
        "first_step": each.first,
        "first_step_s": each.start_s,
        "loss_before": each.loss_before,
        "loss_after": each.loss_after,
        "data_off": each.data_off,
    }


def placement_json(placement: Placement, gpu_of: GpuOf) -> PlacementJson:
    return {
        "provider": placement.provider,
        "region": placement.region,
        "zone": placement.zone,
        "shape": placement.shape,
        "gpu": gpu_of(placement),
        "spot": placement.spot,
        "market": placement.market,
    }


def _present(run: Run) -> Attempt | None:
    """The attempt whose machine is not known gone yet: it has a placement, an id and a price."""
    return run.attempt if run.attempt is not None and run.attempt.gone_at is None else None


def _machine_id(run: Run, present: Attempt | None) -> str | None:
    """Where a person must decide, the id stays even when the machine is gone: an approval must name it."""
    named = run.attempt if run.person.why or run.billed is not None else present
    return named.machine_id if named is not None else None


def _placement(run: Run, attempt: Attempt | None) -> Placement | None:
    if run.open_try is not None:
        return run.open_try.placement
    return attempt.placement if attempt is not None else None


def _newest(checkpoint_step: int | None, pulse: Pulse) -> int | None:
    return max((step for step in (checkpoint_step, pulse.checkpoint_step) if step is not None), default=None)


def _progress(run: Run, pulse: Pulse | None, now: float) -> Progress | None:
    """Of the live attempt; else the last reported values, without a pace."""
    last = run.pulse
    if last is None:
        if run.files.checkpoint_step is None:
            return None
        last = Pulse(launch_id="", step=run.files.checkpoint_step)
    left_s, shown = eta_s(run, now), shown_progress(run, last)
    return {
        "step": shown.step,
        "total": shown.total,
        "steps_per_s": None if pulse is None else shown.steps_per_s,
        "eta_s": None if left_s is None else round(left_s, 1),
        "metrics": dict(last.metrics),
        "guessed": shown.guessed,
    }


def _cost(run: Run, now: float) -> Cost:
    live = run.live_attempt
    return {
        "usd": usd(run_cost_usd(run, now)),
        "on_demand_usd": usd(run_on_demand_usd(run, now)),
        "budget_usd": usd(run.policy.limits.budget_usd),
        "known": run.money.all_known and (live is None or live.price_usd_per_h is not None),
    }


def _results(run: Run, outcome: Outcome) -> Results:
    return {
        "files": outcome.files,
        "size_bytes": outcome.size_bytes,
        "missing": outcome.missing,
        "pulled": run.files.pulled_sha256 == outcome.results_sha256,
        "pull_required": run.policy.require_pull,
    }


def _counters(run: Run) -> Counters:
    counters = run.counters
    return {
        "attempts": counters.attempts,
        "tries": counters.tries,
        "counted": counters.counted,
        "user_failures": counters.user_failures,
        "preemptions": counters.preemptions,
        "no_progress": counters.no_progress,
    }

"""The plan of a submit: what it would do, by the same decisions as a real submit, and nothing of it is done.

No row, no key, no object and no machine is made. A body that a submit would refuse is refused alike, in the same order.
What only others know (the cloud's checks, capacity, a registry, the baton) is read side by side and within seconds; a
source that does not respond gets a line that says so, and delays nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from typing_extensions import TypedDict

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.callers import Caller
from supervisor.domain.errors import CodeNotFound, InvalidRequest, SpotError, Unavailable
from supervisor.domain.findings import Finding
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import ACTIVE
from supervisor.lifecycle.offers.choosing import queue, stops_of
from supervisor.lifecycle.phases.placing import next_try
from supervisor.lifecycle.rungs.survival import outlooks
from supervisor.ports.objectstore import ObjectMissing
from supervisor.ports.platform import PlanQuestion
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.machines.incidents import blocked_now
from supervisor.services.parts import Answer, Parts, ask_together
from supervisor.services.plan.course import History
from supervisor.services.plan.forecasting import ForecastShown, forecast_plan, history_of_all
from supervisor.services.plan.plan_view import (
    CREATE,
    RERUN,
    RESUME,
    UNCHANGED,
    UNNAMED,
    Forecast,
    Order,
    Plan,
    Readings,
    gate_findings,
    plan_json,
)
from supervisor.services.plan.spec_view import Preview
from supervisor.services.reading.profiles import offer_profile, placed_profile
from supervisor.services.runs import code
from supervisor.services.runs.changing import refuse_more
from supervisor.services.runs.keys import check_key
from supervisor.services.runs.money.caps import refuse_above
from supervisor.services.runs.money.plans import sign
from supervisor.services.runs.policy import REQUIRE, SecretUnreadable, Spec, secret_refusal, settled, warnings_of
from supervisor.services.runs.resume import ResumeRequest
from supervisor.services.runs.spec_secrets import hidden
from supervisor.services.runs.submit import SubmitRequest, named_run, new_run, subject_of
from supervisor.services.views import formats

WITHIN_S, LEAST_S = 4.0, 0.5  # for all sources together; the least that is left for the last of them
GB = 10**9
WHAT_IF_MOST, WHAT_IF_FUTURES = 24, 2000
SAME = "same"  # as in the spec
MARKETS: Mapping[str, Spec] = {
    "spot": {"spot": True, "allow_on_demand": False},
    "on_demand": {"spot": False, "allow_on_demand": False},
    "both": {"spot": True, "allow_on_demand": True},
}


@dataclass(frozen=True, slots=True)
class PlanSources:
    """What a plan reads beside the store. `checks`: the doctor's checks of the cloud; raises nothing. `preview`: what
    the launch of this try would send, as Platform.preview; raises LaunchRejected, NotSupported."""

    checks: Callable[[], Sequence[Finding]]
    preview: Preview
    within_s: float = WITHIN_S


def plan(
    parts: Parts, sources: PlanSources, request: SubmitRequest, caller: Caller, code_follows: bool = False
) -> Plan:
    """Raises what a submit raises, except the errors of a key that was used before: no key is looked up.
    `code_follows`: the code bundle is stored only with the submit itself, so it may be missing now."""
    until = time.monotonic() + sources.within_s
    if request.key is not None:
        check_key(request.key)
    refusal = code.refusal(parts, request.spec) or secret_refusal(request.spec, parts)
    is_missing = isinstance(refusal, CodeNotFound) and code_follows
    if is_missing or isinstance(refusal, SecretUnreadable):  # a line of the plan says so, beside what else is wrong
        refusal = None
    request = replace(request, spec=settled(request.spec, parts))
    if request.spec.get("same_region") == REQUIRE:
        _learn_places(parts, request, until - time.monotonic())
    now = parts.clock.now()
    forecast = forecast_submit(parts, request, caller, now, refusal)
    run = forecast.run
    # A live run may name a provider that this supervisor has no more.
    offers = {name: parts.providers[name].offers() for name in run.providers if name in parts.providers}
    history = history_of_all(parts, run.cell, now)
    world = World(parts.knobs, offers, zones=parts.store.zones(run.cell), outlooks=outlooks(history.calls, now))
    order = queue(run, world, now)
    outlook = forecast_plan(parts, run, history, now)  # before the questions: it takes of their time
    answers = ask_together(_questions(parts, sources, forecast, order), max(LEAST_S, until - time.monotonic()))
    readings = Readings(
        answers,
        _launch(sources, forecast, order, world=world, image=answers.get("image"), now=now),
        _price_sources(parts),
        parts.gpu,
        warnings_of(forecast.spec, *parts.traits_of(run)),
        offer_profile(parts, order[0][0], run) if order else None,
        is_missing,
        _stopped(parts, run, world, order, now),
    )
    shown = plan_json(forecast, order, readings, outlook, now)
    if forecast.update.limited is not None:
        signed = sign(parts, subject_of(request, forecast.update), run, caller, now)
        shown |= {"plan_id": signed.plan_id, "plan_expires_at": formats.time_text(signed.expires_at)}
    return shown


def _stopped(parts: Parts, run: Run, world: World, order: Order, now: float) -> list[Finding]:
    """What a gate would stop, by the last readings of this process; it may be that another one leads."""
    places = {replace(offer.placement, spot=True): offer for offer, _ in order}
    profiles = {(at.provider, at.zone): placed_profile(parts.providers[at.provider], run, at) for at in places}
    seen = replace(world, profiles=profiles, store_url=parts.objects.url, blocked=blocked_now(parts, run.cell))
    stops = {place: verdicts for place, offer in places.items() if (verdicts := stops_of(run, offer, seen, now))}
    return gate_findings(stops, len(places))


def forecast_submit(
    parts: Parts, request: SubmitRequest, caller: Caller, now: float, refusal: SpotError | None = None
) -> Forecast:
    """What a submit of this request would do now, its spec as it is stored. Writes nothing; raises what `submit`
    raises."""
    resumption = ResumeRequest(caller, request.spec, request.replace_spec, request.rerun, refusal)
    unnamed = request.run_id is None
    update = (new_run if unnamed else named_run)(parts, request, resumption, now)
    if update.limited is not None:
        _refuse_one_more(parts, update.run.owner, caller)
    if update.charge is not None and caller.caps.usd_per_day is not None:
        counted_micro = parts.store.counted_micro(caller.token_id, now)
        refuse_above(counted_micro, update.charge.most_micro, caller.caps.usd_per_day)
    if unnamed:
        update = replace(update, run=replace(update.run, run_id=UNNAMED))
    if update.before is None:
        return Forecast(CREATE, update)
    would = RERUN if request.rerun else RESUME
    return Forecast(would if update.changed else UNCHANGED, update)


def _refuse_one_more(parts: Parts, owner: str, caller: Caller) -> None:
    """Raises TooManyActiveRuns."""
    if caller.max_active_runs is not None:
        counts = parts.store.page(RunFilter(owner=owner), None, 1).counts
        refuse_more(sum(counts.get(status, 0) for status in ACTIVE), owner, caller)


# --- what if --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variations:
    """What is tried of each field; () = as in the spec. `zones`: their names, or how many of those that fit.
    `deadlines`: epoch seconds, None = no deadline. `markets`: of MARKETS."""

    zones: tuple[int | tuple[str, ...], ...] = ()
    deadlines: tuple[float | None, ...] = ()
    shapes: tuple[tuple[str, ...], ...] = ()
    markets: tuple[str, ...] = ()


class WhatIfRow(TypedDict):
    """One combination. `zones`, `shapes`: [] = all that fit. `market`: spot, on_demand or both. `refused`: why a submit
    would refuse it; then there is no forecast."""

    zones: list[str]
    deadline: formats.Time | None
    shapes: list[str]
    market: str
    refused: str | None
    forecast: ForecastShown | None


class WhatIf(TypedDict):
    rows: list[WhatIfRow]


def what_if(parts: Parts, request: SubmitRequest, variations: Variations, caller: Caller) -> WhatIf:
    """The forecast of each combination, by fewer futures than that of a plan. Raises what a submit of the spec itself
    raises; InvalidRequest where there are too many combinations."""
    now = parts.clock.now()
    spec = settled(request.spec, parts)
    run = forecast_submit(parts, replace(request, spec=spec), caller, now).run
    history = history_of_all(parts, run.cell, now)
    specs = list(_varied(spec, variations, _zones_in_order(parts, run, history, now)))
    if len(specs) > WHAT_IF_MOST:
        raise InvalidRequest(f"These are {len(specs)} combinations; at most {WHAT_IF_MOST} are forecast at once.", {})
    return {"rows": [_row(parts, replace(request, spec=each), caller, history, now) for each in specs]}


def _zones_in_order(parts: Parts, run: Run, history: History, now: float) -> list[str]:
    offers = {name: parts.providers[name].offers() for name in run.providers if name in parts.providers}
    world = World(parts.knobs, offers, zones=parts.store.zones(run.cell), outlooks=outlooks(history.calls, now))
    return list(dict.fromkeys(offer.placement.zone for offer, _ in queue(run, world, now)))


def _varied(spec: Spec, variations: Variations, zones: Sequence[str]) -> Iterator[Spec]:
    for zone, deadline, shapes, market in product(
        variations.zones or (None,), variations.deadlines or (SAME,), variations.shapes or (None,),
        variations.markets or (None,),
    ):  # fmt: skip
        changed = dict(spec)
        if zone is not None:
            changed["zones"] = list(zones[:zone] if isinstance(zone, int) else zone)
        if shapes is not None:
            changed["shapes"] = list(shapes)
        if market is not None:
            changed |= MARKETS[market]
        if deadline is not SAME:
            limits = {name: value for name, value in changed.get("limits", {}).items() if name != "deadline"}
            changed["limits"] = limits | ({} if deadline is None else {"deadline": formats.time_text(deadline)})
        yield {name: value for name, value in changed.items() if value not in ([], {}, None)}


def _row(parts: Parts, request: SubmitRequest, caller: Caller, history: History, now: float) -> WhatIfRow:
    spec, refused, shown = request.spec, None, None
    try:
        run = forecast_submit(parts, request, caller, now).run
        shown = forecast_plan(parts, run, history, now, futures=WHAT_IF_FUTURES)
    except Unavailable:
        raise
    except SpotError as error:
        refused = str(error)
    return {
        "zones": list(spec.get("zones", [])),
        "deadline": spec.get("limits", {}).get("deadline"),
        "shapes": list(spec.get("shapes", [])),
        "market": _market(spec),
        "refused": refused,
        "forecast": shown,
    }


def _market(spec: Spec) -> str:
    if not spec.get("spot", True):
        return "on_demand"
    return "both" if spec.get("allow_on_demand", False) else "spot"


def _learn_places(parts: Parts, request: SubmitRequest, within_s: float) -> None:
    """A submit uses what is known. A person waits for a plan, so the places of its data may be read first."""
    image = str(request.spec.get("image", ""))
    ask_together({"places": lambda: parts.platform.data_places((), image, ask=True)}, within_s / 2)


def _questions(parts: Parts, sources: PlanSources, forecast: Forecast, order: Order) -> dict[str, Callable[[], object]]:
    offers = tuple(offer for offer, _ in order)
    image, secrets = forecast.run.policy.image, forecast.spec.get("secrets", {})
    provider = parts.providers.get(forecast.run.provider)
    if provider is None:
        return {}

    def advice() -> object:
        kept = forecast.spec.get("checkpoints", {}).get("keep_last", batons.KEEP.last)
        return parts.platform.advise(
            PlanQuestion(offers, image, _checkpoint_bytes(parts, forecast), kept, bool(secrets))
        )

    questions: dict[str, Callable[[], object]] = {
        "checks": sources.checks,
        "advice": advice,
        "chances": lambda: parts.platform.chances(offers),
    }
    if image:
        questions["image"] = lambda: provider.pin(image)
    if secrets:
        questions["secrets"] = lambda: provider.check_secrets(set(secrets.values()))
    return questions


def _checkpoint_bytes(parts: Parts, forecast: Forecast) -> int | None:
    """Of the checkpoint that the run would resume from; else what its spec expects; None = not known. Raises
    StoreUnavailable."""
    expected_gb = forecast.spec.get("expect_checkpoint_gb")
    expected_bytes = None if expected_gb is None else int(expected_gb * GB)
    if forecast.would in (CREATE, RERUN):
        return expected_bytes
    try:
        pointer = batons.decode(parts.objects.get(runfiles.baton(forecast.run.run_id))[0]).checkpoint
    except (ObjectMissing, ValueError):
        return expected_bytes
    return expected_bytes if pointer is None else sum(file.size for file in pointer.files)


def _launch(
    sources: PlanSources, forecast: Forecast, order: Order, *, world: World, image: Answer | None, now: float
) -> Answer | None:
    """What the first try would send; None = there is no place to try."""
    if not order:
        return None
    run = forecast.run
    if image is not None and image.good and image.value and not run.image.digest:
        run = replace(run, image=replace(run.image, digest=str(image.value)))
    try:
        return Answer(sources.preview(run, next_try(run, order[0][0], world, now), hidden(forecast.spec)))
    except Exception as error:  # noqa: BLE001 - a line of the plan, which holds without it
        return Answer(error=error)


def _price_sources(parts: Parts) -> dict[tuple[str, str], tuple[str, str]]:
    """(shape, region) -> (source, day) of its price; empty where the platform has no prices."""
    try:
        return {(price.shape, price.region): (price.source, price.dated) for price in parts.platform.prices()}
    except (NotSupported, ProviderUnavailable):
        return {}

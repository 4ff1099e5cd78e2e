"""The plan as JSON: the sentence, the offers in the order of the tries, their cost, and a line for each check.

What is not known is null; what could not be read is a line that says so. Unknown prices never count as 0, and then
there is no "at most" either, unless a budget gives one. The image, the secrets and the code are judged here; all other
lines come as they are from the doctor and the platform.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.gates.verdicts import Verdict
from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.policies import Limits
from supervisor.domain.run import Run
from supervisor.ports.provider import ImageHidden, ImageMissing, NotSupported
from supervisor.services.doctor.checkup import FindingShown, finding_json
from supervisor.services.parts import Answer
from supervisor.services.plan.forecasting import ForecastShown
from supervisor.services.reading.profiles import ProfileShown
from supervisor.services.runs.changing import Update
from supervisor.services.runs.policy import Spec
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.services.views.run_view import GpuOf, PlacementJson, placement_json
from supervisor.wording.figures import after_colon, clip, count_text, money_text, until_text

CREATE, RESUME, RERUN, UNCHANGED = "create", "resume", "rerun", "unchanged"
UNNAMED = "run-xxxxxx"  # instead of a run id that the submit would generate
MADE_AT_LAUNCH = ("nonce",)  # what only a launch decides; the plan shows another value
HOUR_S = 3600.0
TIMES = "\N{MULTIPLICATION SIGN}"
_SOURCES = {
    "checks": "the cloud's checks",
    "advice": "advice on these machines",
    "chances": "capacity advice",
    "image": "the image",
    "secrets": "the secrets",
}

Order = Sequence[tuple[Offer, ZoneRecord | None]]


class PlannedPlace(PlacementJson):
    """One place to try, in the order of the tries. Prices in $/h of the whole machine, null = unknown.
    `price_source`, `price_dated`: where the price was read and on which day (YYYY-MM-DD). `cooling_until`: it refused a
    request lately and gets none before. `chance`: the platform's own estimate of a success now, 0 to 1."""

    price_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    price_source: str | None
    price_dated: str | None
    cooling_until: formats.Time | None
    cooling_why: str | None
    chance: float | None


class PlannedCost(TypedDict):
    """`usd_per_h`: of the first place. `known` false: a price is unknown and left out. `max_runtime_usd`: of the most
    expensive place for all of limits.max_runtime_s. `at_most_usd`: the smaller of that and the budget; null = there is
    no limit. `lines` say the same in words."""

    usd_per_h: float | None
    least_usd_per_h: float | None
    most_usd_per_h: float | None
    known: bool
    max_runtime_usd: float | None
    budget_usd: float | None
    at_most_usd: float | None
    lines: list[str]


class PlannedLimits(TypedDict):
    max_runtime_s: float | None
    deadline: formats.Time | None
    max_attempts: int
    max_user_failures: int
    wait_for_capacity_s: float
    budget_usd: float | None
    machine_max_s: float


class Plan(TypedDict):
    """What the submit would do; nothing of it is done. `run_id` null: the submit would generate one. `launch`: what the
    first try would send, in the platform's own words (null = nothing is sent, or it could not be made).
    `plan_id`: for a submit of the same request with the same token, until `plan_expires_at`, at these prices at most;
    null: nothing would start. `made_at_launch`: fields that are not known before. `profile`: of the machine that the
    first try requests; null: no offer fits."""

    would: Annotated[
        str, Field(description="create, resume, rerun or unchanged; clients must accept words that they do not know.")
    ]
    sentence: str
    run_id: str | None
    generation: int
    differs: list[str]
    warnings: list[str]
    zones: list[PlannedPlace]
    cost: PlannedCost
    limits: PlannedLimits
    checks: list[FindingShown]
    worst: str
    launch: dict[str, Any] | None
    made_at_launch: list[str]
    profile: ProfileShown | None
    forecast: ForecastShown
    plan_id: str | None
    plan_expires_at: formats.Time | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """`update`: what a submit would write."""

    would: str
    update: Update

    @property
    def run(self) -> Run:
        return self.update.run

    @property
    def spec(self) -> Spec:
        return self.update.spec or {}


@dataclass(frozen=True, slots=True)
class Readings:
    """`answers`: by source (services/plan/plan.py). `launch`: what the first try would send, None = there is none.
    `price_sources`: (shape, region) -> (source, day) of a price. `gpu_of`: Parts.gpu. `code_follows`: the code is not
    stored yet. `profile`: as in Plan. `gates`: the places that a gate would stop."""

    answers: Mapping[str, Answer]
    launch: Answer | None
    price_sources: Mapping[tuple[str, str], tuple[str, str]]
    gpu_of: GpuOf
    warnings: Sequence[str]
    profile: ProfileShown | None = None
    code_follows: bool = False
    gates: Sequence[Finding] = ()


def plan_json(forecast: Forecast, order: Order, readings: Readings, outlook: ForecastShown, now: float) -> Plan:
    run, limits = forecast.run, forecast.run.policy.limits
    findings = _findings(forecast, readings)
    unnamed = run.run_id == UNNAMED
    return {
        "would": forecast.would,
        "sentence": _sentence(forecast.would, run, order, now),
        "run_id": None if unnamed else run.run_id,
        "generation": run.generation,
        "differs": list(forecast.update.differs),
        "warnings": list(readings.warnings),
        "zones": [_place(offer, record, readings) for offer, record in order],
        "cost": cost_json([offer for offer, _ in order], limits),
        "limits": {
            "max_runtime_s": limits.max_runtime_s,
            "deadline": formats.maybe_time(limits.deadline),
            "max_attempts": limits.max_attempts,
            "max_user_failures": limits.max_user_failures,
            "wait_for_capacity_s": limits.wait_for_capacity_s,
            "budget_usd": usd(limits.budget_usd),
            "machine_max_s": limits.machine_max_s,
        },
        "checks": list(map(finding_json, findings)),
        "worst": max((finding.result for finding in findings), key=(OK, WARN, FAIL).index, default=OK),
        "launch": None if readings.launch is None else readings.launch.value,
        "made_at_launch": [*(["run_id"] if unnamed else []), *MADE_AT_LAUNCH],
        "profile": readings.profile,
        "forecast": outlook,
        "plan_id": None,
        "plan_expires_at": None,
    }


def _sentence(would: str, run: Run, order: Order, now: float) -> str:
    """What would happen, for a person."""
    name = "A new run" if run.run_id == UNNAMED else run.run_id
    if would == UNCHANGED:
        return f"{name} is {run.status} with the same spec: nothing would change."
    begins = {
        CREATE: f"{name} would be created",
        RESUME: f"{name} would be resumed as generation {run.generation}, {_from(run)}",
        RERUN: f"{name} would start over from nothing as generation {run.generation}",
    }[would]
    if not order:
        return f"{begins}, and wait: no offer fits it."
    offer, cooling = order[0]
    first = f"{_name(offer.placement)} in {offer.placement.zone}"
    if cooling is None:
        return f"{begins}. First try: {first}."
    wait = until_text(cooling.cool_until, now)
    return f"{begins}, and wait: every offer was refused lately. First try in {wait}: {first}."


def _from(run: Run) -> str:
    if run.files_gone:
        return "from nothing, because its files were purged"
    if run.files.checkpoint_step is None:
        return "from its newest checkpoint, if there is one"
    return f"from step {count_text(run.files.checkpoint_step)}"


def _name(place: Placement) -> str:
    return f"{place.shape} {place.market}"


def _place(offer: Offer, record: ZoneRecord | None, readings: Readings) -> PlannedPlace:
    place, chances = offer.placement, readings.answers.get("chances", Answer())
    source, dated = readings.price_sources.get((place.shape, place.region), ("", ""))
    return {
        **placement_json(place, readings.gpu_of),
        "price_usd_per_h": usd(offer.price_usd_per_h),
        "on_demand_usd_per_h": usd(offer.on_demand_usd_per_h),
        "price_source": source or None,
        "price_dated": dated or None,
        "cooling_until": None if record is None else formats.time_text(record.cool_until),
        "cooling_why": None if record is None else f"{record.cause}: {record.detail}",
        "chance": chances.value.get(offer_key(place)) if chances.good and chances.value else None,
    }


# --- the cost ---------------------------------------------------------------------------------------------------------


def cost_json(offers: Sequence[Offer], limits: Limits) -> PlannedCost:
    """`offers` in the order of the tries."""
    prices = [offer.price_usd_per_h for offer in offers]
    amounts = [price for price in prices if price is not None]
    most = max(amounts) if amounts and len(amounts) == len(prices) else None
    for_training = None
    if most is not None and limits.max_runtime_s is not None:
        for_training = most * limits.max_runtime_s / HOUR_S
    sums = [amount for amount in (for_training, limits.budget_usd) if amount is not None]
    return {
        "usd_per_h": usd(prices[0]) if prices else None,
        "least_usd_per_h": usd(min(amounts, default=None)),
        "most_usd_per_h": usd(most),
        "known": most is not None,
        "max_runtime_usd": usd(for_training),
        "budget_usd": usd(limits.budget_usd),
        "at_most_usd": usd(min(sums, default=None)),
        "lines": [*_price_lines(offers, amounts), *_limit_lines(limits, most, for_training)] if offers else [NO_PRICE],
    }


NO_PRICE = "No offer fits this run, so there is no price."


def _price_lines(offers: Sequence[Offer], amounts: Sequence[float]) -> list[str]:
    lines = [_first_line(offers[0])]
    if len(offers) > 1 and amounts:
        least, highest = min(amounts), max(amounts)
        spread = _per_h(least) if least == highest else f"{_per_h(least)} to {_per_h(highest)}"
        lines.append(f"All {len(offers)} offers: {spread}.")
    if len(amounts) < len(offers):
        places = [offer.placement for offer in offers if offer.price_usd_per_h is None]
        names = dict.fromkeys(f"{_name(place)} in {place.zone}" for place in places)
        lines.append(f"Unknown prices, not counted: {', '.join(names)}.")
    return lines


def _first_line(offer: Offer) -> str:
    place, price, on_demand = offer.placement, offer.price_usd_per_h, offer.on_demand_usd_per_h
    where = f"{_name(place)} in {place.zone}"
    if price is None:
        return f"First: {where}; its price is unknown."
    saved = ""
    if place.spot and on_demand is not None and on_demand > price:
        saved = f" (on-demand {_per_h(on_demand)}, {100 * (1 - price / on_demand):.0f} % saved)"
    return f"First: {where} at {_per_h(price)}{saved}."


def _limit_lines(limits: Limits, most: float | None, for_training: float | None) -> list[str]:
    lines = []
    if limits.max_runtime_s is not None:
        hours = _hours(limits.max_runtime_s)
        if for_training is None or most is None:
            lines.append(f"max_runtime {hours}: the sum is unknown, because a price is.")
        else:
            lines.append(
                f"max_runtime {hours} {TIMES} {_per_h(most)} = {money_text(for_training)} at most for training; "
                "boot, restore and lost work are extra."
            )
    if limits.budget_usd is not None:
        lines.append(f"The budget ends it at {money_text(limits.budget_usd)}.")
    elif limits.max_runtime_s is None and most is not None:
        lines.append(f"No limit is set: a day costs {money_text(24 * most)} at most.")
    return lines


def _per_h(price: float) -> str:
    """To the cent where that is exact, else with the digits that make the sums add up."""
    whole_cents = abs(price - round(price, 2)) < 0.00005
    return f"{money_text(price)}/h" if whole_cents else f"${price:,.4f}/h"


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    if hours >= 1:
        return f"{count_text(int(hours))} h" if hours == int(hours) else f"{hours:,.1f} h"
    return f"{seconds / 60:g} min"


# --- the checks -------------------------------------------------------------------------------------------------------


def _findings(forecast: Forecast, readings: Readings) -> list[Finding]:
    spec, answers, findings = forecast.spec, readings.answers, list[Finding]()
    if "code" in spec:
        state = "would be stored with the submit" if readings.code_follows else "is stored, and fits the command"
        findings.append(Finding("code", OK, f"bundle {spec['code'][:12]} {state}"))
    if "image" in answers:
        findings += _image(forecast.run.policy.image, answers["image"])
    if "secrets" in answers:
        findings.append(_secrets(spec.get("secrets", {}), answers["secrets"]))
    launch = readings.launch
    if launch is not None and launch.error is not None and not isinstance(launch.error, NotSupported):
        cause = "such a launch would be refused; the line above says how to fix it"
        findings.append(Finding("launch", FAIL, clip(str(launch.error), 400), cause))
    findings += readings.gates
    for name in ("checks", "advice", "chances"):
        answer = answers.get(name, Answer(()))
        if answer.good:
            findings += answer.value if name != "chances" else ()
        elif not isinstance(answer.error, NotSupported):
            findings.append(_unread(name, answer))
    return findings


def gate_findings(stops: Mapping[Placement, Sequence[Verdict]], places: int) -> list[Finding]:
    """A line for each check that would stop the launch at a place. `places`: how many the run may use."""
    result = WARN if len(stops) < places else FAIL
    cause = "the run would start elsewhere" if result == WARN else "the run would wait until this is fixed"
    return [
        Finding(f"{verdict.check} of {place.zone}", result, f"{verdict.code}: {verdict.fact}", cause, verdict.fix)
        for place, verdicts in stops.items()
        for verdict in verdicts
    ]


def _image(image: str, answer: Answer) -> list[Finding]:
    if answer.good:
        digest = str(answer.value).rpartition("@")[2][:19]
        return [Finding("image", OK, f"{image} is {digest} now")] if digest else []
    if isinstance(answer.error, ImageMissing):
        cause = f"{answer.error}; the run would fail before a machine is rented"
        return [Finding("image", FAIL, f"{image}: not found", cause, "push it, or name an image that exists")]
    if isinstance(answer.error, ImageHidden):
        cause = f"{answer.error}; machines get the tag, and may have access"
        fix = "give the accounts of the supervisor and of the machines roles/artifactregistry.reader on it"
        return [Finding("image", WARN, f"{image}: not seen", cause, fix)]
    return [_unread("image", answer)]


def _secrets(references: Mapping[str, str], answer: Answer) -> Finding:
    if not answer.good:
        return _unread("secrets", answer)
    bad = {name: why for name, ref in references.items() if (why := answer.value.get(ref, ""))}
    if not bad:
        return Finding("secrets", OK, f"{', '.join(sorted(references))}: no problem with their references")
    reasons = "; ".join(f"{name}: {after_colon(why)}" for name, why in sorted(bad.items()))
    cause = "no machine is launched while a secret cannot be read"
    return Finding("secrets", FAIL, reasons, cause, "put the value where the reference says, then repeat the plan")


def _unread(source: str, answer: Answer) -> Finding:
    """A source that could not be read is neither good nor bad."""
    why = "it did not respond in time" if answer.late else clip(str(answer.error), 400)
    return Finding(source, WARN, f"not read: {_SOURCES[source]}", why, "retry; this does not delay a run")

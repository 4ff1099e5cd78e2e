"""The plan as JSON: the sentence, the places in their order, what they cost, and a line for each check.

What is not known is null; what could not be read is a line that says so. The image, the secrets and the code are judged
here from what was read of them; all other lines come as they are from the doctor and the platform.

What a run that is not there yet would cost: prices of the places where it may run, and the most that its limits
allow. A price that is not known is said to be unknown and never counted as 0; then there is no "at most" either, unless
a budget gives one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.machines import Offer, ZoneRecord, offer_key
from supervisor.domain.policies import Limits
from supervisor.domain.run import Run
from supervisor.ports.provider import ImageHidden, ImageMissing, NotSupported
from supervisor.services.parts import Answer
from supervisor.services.runs.policy import Spec
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import GpuOf, Json, placement_json, usd
from supervisor.wording.figures import after_colon, clip, count_text, money_text, until_text

HOUR_S = 3600.0
TIMES = "\N{MULTIPLICATION SIGN}"


def cost_json(offers: Sequence[Offer], limits: Limits) -> Json:
    """`offers` in the order of the tries. Prices in $/h, sums in $; null = unknown, or without a limit."""
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
        "known": bool(prices) and len(amounts) == len(prices),
        "max_runtime_usd": usd(for_training),
        "budget_usd": usd(limits.budget_usd),
        "at_most_usd": usd(min(sums, default=None)),
        "lines": _lines(offers, amounts, most, for_training, limits),
    }


def _lines(
    offers: Sequence[Offer], amounts: list[float], most: float | None, for_training: float | None, limits: Limits
) -> list[str]:
    if not offers:
        return ["No place is offered to this run, so no price can be told."]
    lines = [_first(offers[0])]
    if len(offers) > 1 and amounts:
        least, highest = min(amounts), max(amounts)
        spread = f"{_per_h(least)}" if least == highest else f"{_per_h(least)} to {_per_h(highest)}"
        lines.append(f"All {len(offers)} places of the order: {spread}.")
    if len(amounts) < len(offers):
        lacking = dict.fromkeys(
            f"{_name(offer)} in {offer.placement.zone}" for offer in offers if offer.price_usd_per_h is None
        )
        lines.append(f"Unknown prices, not counted: {', '.join(lacking)}.")
    if limits.max_runtime_s is not None:
        hours = _hours(limits.max_runtime_s)
        if for_training is None or most is None:
            lines.append(f"max_runtime {hours}: the sum is unknown, because a price is.")
        else:
            lines.append(
                f"max_runtime {hours} {TIMES} {_per_h(most)} = {money_text(for_training)} at most for training; "
                "booting, restoring and lost work come on top."
            )
    if limits.budget_usd is not None:
        lines.append(f"The budget ends it at {money_text(limits.budget_usd)}.")
    elif limits.max_runtime_s is None and most is not None:
        lines.append(f"No limit is set: a day costs {money_text(24 * most)} at most, until it ends.")
    return lines


def _first(offer: Offer) -> str:
    price, on_demand = offer.price_usd_per_h, offer.on_demand_usd_per_h
    where = f"{_name(offer)} in {offer.placement.zone}"
    if price is None:
        return f"First: {where}; its price is unknown."
    saved = ""
    if offer.placement.spot and on_demand is not None and on_demand > price:
        saved = f" (on-demand {_per_h(on_demand)}, {100 * (1 - price / on_demand):.0f} % saved)"
    return f"First: {where} at {_per_h(price)}{saved}."


def _name(offer: Offer) -> str:
    return f"{offer.placement.shape} {'spot' if offer.placement.spot else 'on-demand'}"


def _per_h(price: float) -> str:
    """To the cent where that is all of it, else with the digits that make the sums add up."""
    whole_cents = abs(price - round(price, 2)) < 0.00005
    return f"{money_text(price)}/h" if whole_cents else f"${price:,.4f}/h"


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    if hours >= 1:
        return f"{count_text(int(hours))} h" if hours == int(hours) else f"{hours:,.1f} h"
    return f"{seconds / 60:g} min"


UNNAMED = "run-xxxxxx"  # in the place of a run id that the submit would make up
# What a launch alone decides; the plan shows another value in its place.
MADE_AT_LAUNCH = ("nonce",)
_NAMES = {
    "checks": "the cloud's checks",
    "advice": "advice on these machines",
    "chances": "capacity advice",
    "image": "the image",
    "secrets": "the secrets",
}

Order = Sequence[tuple[Offer, ZoneRecord | None]]


@dataclass(frozen=True, slots=True)
class Readings:
    """`answers` by question (services/plan/plan.py); `launch`: what the first try would send, None = there is none;
    `sources`: (shape, region) -> (source, day) of a price; `gpu_of`: Parts.gpu; `code_follows`: the
    code is not stored yet."""

    answers: Mapping[str, Answer]
    launch: Answer | None
    sources: Mapping[tuple[str, str], tuple[str, str]]
    gpu_of: GpuOf
    warnings: tuple[str, ...]
    code_follows: bool = False


def plan_json(
    would: str, run: Run, spec: Spec, *, differs: Sequence[str], order: Order, readings: Readings, now: float
) -> Json:
    """The fields of `Plan` in openapi/openapi.json."""
    findings = _findings(spec, run, readings)
    offers = [offer for offer, _ in order]
    limits = run.policy.limits
    return {
        "would": would,
        "sentence": sentence(would, run, order, now),
        "run_id": None if run.run_id == UNNAMED else run.run_id,
        "generation": run.generation,
        "differs": list(differs),
        "warnings": list(readings.warnings),
        "zones": [_place(offer, record, readings, now) for offer, record in order],
        "cost": cost_json(offers, limits),
        "limits": {
            "max_runtime_s": limits.max_runtime_s,
            "deadline": None if limits.deadline is None else rfc3339.text(limits.deadline),
            "max_attempts": limits.max_attempts,
            "max_user_failures": limits.max_user_failures,
            "wait_for_capacity_s": limits.wait_for_capacity_s,
            "budget_usd": usd(limits.budget_usd),
            "machine_max_s": limits.machine_max_s,
        },
        "checks": [asdict(finding) for finding in findings],
        "worst": max((finding.result for finding in findings), key=(OK, WARN, FAIL).index, default=OK),
        "launch": None if readings.launch is None else readings.launch.value,
        "made_at_launch": [*(["run_id"] if run.run_id == UNNAMED else []), *MADE_AT_LAUNCH],
    }


def sentence(would: str, run: Run, order: Order, now: float) -> str:
    """What would happen, for a person."""
    name = "A new run" if run.run_id == UNNAMED else run.run_id
    if would == "unchanged":
        return f"{name} is {run.status} with this very spec: nothing would change."
    begins = {
        "create": f"{name} would be created",
        "resume": f"{name} would be resumed as generation {run.generation}, {_from(run)}",
        "rerun": f"{name} would start over from nothing as generation {run.generation}",
    }[would]
    if not order:
        return f"{begins}, and wait: no place is offered to it."
    offer, cooling = order[0]
    place = offer.placement
    what = f"{place.shape} {'spot' if place.spot else 'on-demand'} in {place.zone}"
    if cooling is None:
        return f"{begins}. First try: {what}."
    wait = until_text(cooling.cool_until, now)
    return f"{begins}, and wait: every place refused lately. First try in {wait}: {what}."


def _from(run: Run) -> str:
    if run.files_gone:
        return "from nothing, because its files were purged"
    if run.files.checkpoint_step is None:
        return "from its newest checkpoint, if there is one"
    return f"from step {count_text(run.files.checkpoint_step)}"


def _place(offer: Offer, record: ZoneRecord | None, readings: Readings, now: float) -> Json:
    place, chances = offer.placement, readings.answers.get("chances", Answer())
    source, dated = readings.sources.get((place.shape, place.region), ("", ""))
    return {
        **placement_json(place, readings.gpu_of),
        "price_usd_per_h": usd(offer.price_usd_per_h),
        "on_demand_usd_per_h": usd(offer.on_demand_usd_per_h),
        "price_source": source or None,
        "price_dated": dated or None,
        "cooling_until": None if record is None else rfc3339.text(record.cool_until),
        "cooling_why": None if record is None else f"{record.cause}: {record.detail}",
        "chance": chances.value.get(offer_key(place)) if chances.good and chances.value else None,
    }


# --- the checks -------------------------------------------------------------------------------------------------------


def _findings(spec: Spec, run: Run, readings: Readings) -> list[Finding]:
    answers, findings = readings.answers, list[Finding]()
    if "code" in spec:
        size = "would be stored with the submit" if readings.code_follows else "is stored, and fits the command"
        findings.append(Finding("code", OK, f"bundle {spec['code'][:12]} {size}"))
    if "image" in answers:
        findings += _image(run.policy.image, answers["image"])
    if "secrets" in answers:
        findings += _secrets(spec.get("secrets", {}), answers["secrets"])
    launch = readings.launch
    if launch is not None and launch.error is not None and not isinstance(launch.error, NotSupported):
        cause = "such a launch would be refused; what mends it stands in the line above"
        findings.append(Finding("launch", FAIL, clip(str(launch.error), 400), cause))
    for name in ("checks", "advice", "chances"):
        answer = answers.get(name, Answer(()))
        if answer.good:
            findings += answer.value if name != "chances" else ()
        elif not isinstance(answer.error, NotSupported):
            findings.append(_unread(name, answer))
    return findings


def _image(image: str, answer: Answer) -> list[Finding]:
    if answer.good:
        digest = str(answer.value).rpartition("@")[2][:19]
        return [Finding("image", OK, f"{image} is {digest} now")] if digest else []
    if isinstance(answer.error, ImageMissing):
        fact, cause = f"{image}: not there", f"{answer.error}; the run would fail before anything is rented"
        return [Finding("image", FAIL, fact, cause, "push it, or name one that is there")]
    if isinstance(answer.error, ImageHidden):
        cause = f"{answer.error}; machines are given the tag, and may be let in"
        fix = "give the accounts of the supervisor and of the machines roles/artifactregistry.reader on it"
        return [Finding("image", WARN, f"{image}: not seen", cause, fix)]
    return [_unread("image", answer)]


def _secrets(references: Mapping[str, str], answer: Answer) -> list[Finding]:
    if not answer.good:
        return [_unread("secrets", answer)]
    bad = {name: why for name, ref in references.items() if (why := answer.value.get(ref, ""))}
    if not bad:
        names = ", ".join(sorted(references))
        return [Finding("secrets", OK, f"{names}: nothing speaks against their references")]
    reasons = "; ".join(f"{name}: {after_colon(why)}" for name, why in sorted(bad.items()))
    cause = "no machine is launched while a secret cannot be read"
    return [Finding("secrets", FAIL, reasons, cause, "put the value where the reference says, then look again")]


def _unread(name: str, answer: Answer) -> Finding:
    """Could not be read is neither well nor ill."""
    why = "it did not answer in time" if answer.late else clip(str(answer.error), 400)
    return Finding(name, WARN, f"not read: {_NAMES[name]}", why, "look again; a run is not held up by this")

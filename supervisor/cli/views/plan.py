"""plan, and submit --dry-run: what a submit would do, for people: where, for how much, until when, and which checks
fail; and the table of `plan --what-if`.

Passed checks share one line; every other check has its cause and its fix. What the first machine would receive is
shown as names and sizes; -o json holds it in full.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.options import duration_s
from supervisor.cli.output import Table, check_advice, check_lines, paragraph, paragraphs, safe, utc_minute
from supervisor.cli.views.profile import danger_lines, survival_lines
from supervisor.wording.figures import DASH, age_text, duration, epoch, money, plural, size_text

OLD_DAYS = 30  # an older price is shown with its age


def ask_plan(client: Client, body: Json, code_follows: bool) -> Json:
    """Raises the Problem that the submit would meet."""
    query = {"validate_only": "true", **({"code_follows": "true"} if code_follows else {})}
    # A submit carries a key: with one, the API makes its checks in the same order.
    headers = {"Idempotency-Key": "dry-run"}
    return dict(client.send("POST", "/v1/runs", query, body, headers=headers).json())


def show_plan(plan: Json, form: str) -> None:
    """`-o name` prints what would happen, as one word."""
    if not output.emit(plan, [plan], form, "would"):
        output.show(plan_lines(plan, datetime.now(UTC)))


def plan_lines(plan: Json, now: datetime) -> list[str]:
    nothing = "" if plan["would"] == "unchanged" else " Nothing was done yet."
    lines = paragraph(safe(plan["sentence"]) + nothing)
    if plan["differs"]:
        lines += paragraph(f"The spec differs in {', '.join(map(safe, plan['differs']))}.")
    for text in plan["warnings"]:
        lines += check_lines("warn", safe(text))
    if plan["zones"]:
        lines += ["", *_offer_lines(plan["zones"], now)]
    lines += ["", *paragraphs([*map(safe, plan["cost"]["lines"]), _limits(plan["limits"])], "  ")]
    lines += forecast_lines(plan.get("forecast"))
    profile = plan.get("profile")
    if profile is not None:
        dangers = danger_lines(profile)
        lines += [*(["", *dangers] if dangers else []), "", *survival_lines(profile)]
    return [*lines, "", *_checks(plan["checks"]), "", *_launch(plan["launch"]), *_id(plan)]


def _id(plan: Json) -> list[str]:
    """How this plan is submitted at these prices at most; none where nothing would start."""
    expires = plan.get("plan_expires_at")
    return ["", f"Until {utc_minute(expires)}, at these prices: --plan {safe(plan['plan_id'])}"] if expires else []


def forecast_lines(forecast: Json | None) -> list[str]:
    """The clause of the forecast, and what it assumes. None: an older supervisor makes none."""
    if forecast is None:
        return []
    text = safe(forecast["text"])
    if not forecast["futures"]:
        return ["", *paragraph(f"{text[:1].upper()}{text[1:]}.", "  ")]
    lines = ["", *paragraph(f"Forecast: {text}.", "  ")]
    lines += [
        f"  Of {plural(forecast['futures'], 'simulated future')}; eight of ten lie between the figures in brackets."
    ]
    for each in forecast["assumes"]:
        lines += paragraph(f"  {each['source']:<8}  {safe(each['text'])}", " " * 12)
    return lines


def _offer_lines(offers: Sequence[Json], now: datetime) -> list[str]:
    """The table of the order in which zones are tried, without the columns that are empty."""
    table = Table(
        "zone",
        {
            "#": lambda offer: str(offer["number"]),
            "ZONE": lambda offer: safe(offer["zone"]),
            "SHAPE": lambda offer: safe(offer["shape"]),
            "MARKET": lambda offer: safe(offer.get("market") or ("spot" if offer["spot"] else "on-demand")),
            "PRICE": lambda offer: _per_h(offer["price_usd_per_h"]),
            "ON-DEMAND": lambda offer: _per_h(offer["on_demand_usd_per_h"]),
            "CHANCE": lambda offer: DASH if offer["chance"] is None else f"{100 * offer['chance']:.0f} %",
            "PRICE READ": lambda offer: _price_source(offer, now),
            "NOTE": lambda offer: _retry(offer, now),
        },
    )
    numbered = [{**offer, "number": number} for number, offer in enumerate(offers, 1)]
    filled = {
        title: cell for title, cell in table.columns.items() if any(cell(row) not in ("", DASH) for row in numbered)
    }
    return replace(table, columns=filled).lines(numbered)


def _retry(offer: Json, now: datetime) -> str:
    until = epoch(offer["cooling_until"])
    if until is None:
        return ""
    return f"retry in {age_text(max(0.0, until - now.timestamp()))}: {safe(offer['cooling_why'])}"


def _per_h(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"{money(price)}/h" if price >= 0.1 or price == 0 else f"${price:.4f}/h"


def _price_source(offer: Json, now: datetime) -> str:
    """The date of the price, with its age from OLD_DAYS on; the source where it has no date."""
    source, dated = offer["price_source"], offer["price_dated"]
    if source is None:
        return DASH
    if dated is None:
        return safe(source)
    try:
        days = (now.date() - datetime.fromisoformat(dated).date()).days
    except ValueError:
        return safe(f"{source} {dated}")
    return safe(dated) + (f" ! {days} days old" if days > OLD_DAYS else "")


def _limits(limits: Mapping[str, Any]) -> str:
    waits = limits["wait_for_capacity_s"]
    parts = [
        f"{plural(limits['max_attempts'], 'attempt')} that count",
        f"{plural(limits['max_user_failures'], 'failure')} of the command",
        f"{duration(waits)} of waiting for capacity" if waits else "no waiting for capacity",
        f"{duration(limits['machine_max_s'])} for one machine",
    ]
    if limits["deadline"] is not None:
        parts.append(f"the deadline {safe(limits['deadline'])}")
    return f"Limits: {', '.join(parts)}."


def _checks(checks: Sequence[Json]) -> list[str]:
    passed = [safe(check["name"]) for check in checks if check["result"] == "ok"]
    lines = check_lines("ok", f"{plural(len(passed), 'check')} passed: {', '.join(passed)}") if passed else []
    others = (check for check in checks if check["result"] != "ok")
    for check in sorted(others, key=lambda check: bool(check["result"] != "fail")):  # the worst first
        lines += check_lines(check["result"], f"{safe(check['name'])}: {safe(check['fact'])}")
        lines += check_advice(check)
    return lines or ["No checks apply to this run."]


def _launch(launch: Json | None) -> list[str]:
    """Names and sizes of what the first machine would receive."""
    if launch is None:
        return ["It is unknown what the first machine would receive; the lines above say why."]
    metadata = launch.get("metadata")
    if isinstance(metadata, dict):
        head, sizes = "Metadata of the first machine", {key: len(str(metadata[key]).encode()) for key in metadata}
    else:
        head = f"The first machine ({safe(launch.get('kind', 'machine'))})"
        sizes = {key: len(json.dumps(launch[key])) for key in launch if key != "kind"}
    parts = ", ".join(f"{safe(key)} {size_text(size)}" for key, size in sizes.items())
    return [*paragraph(f"{head}: {parts}.", "  "), "All of it: spot submit --dry-run -o json"]


# --- what if ----------------------------------------------------------------------------------------------------------

BAR = 28
_FIELDS = {"zones": "zones", "deadline": "deadlines", "shape": "shapes", "spot": "markets"}
_MARKETS = {"yes": "spot", "no": "on_demand", "both": "both"}
_COLUMNS: Mapping[str, tuple[str, Callable[[Json], str]]] = {
    "zones": ("ZONES", lambda row: _zones(row["zones"])),
    "shapes": ("SHAPE", lambda row: safe("+".join(row["shapes"])) or "any"),
    "markets": ("SPOT", lambda row: {"spot": "yes", "on_demand": "no"}.get(row["market"], safe(row["market"]))),
    "deadlines": ("DEADLINE", lambda row: utc_minute(row["deadline"]) if row["deadline"] else "none"),
}


def variations_from(text: str, now: datetime) -> Json:
    """`zones=1/3,deadline=20h/40h` as the API takes it. Raises click.BadParameter."""
    wish: Json = {}
    for part in text.split(","):
        key, _, values = part.strip().partition("=")
        field = _FIELDS.get(key)
        if field is None or not values:
            raise click.BadParameter(f"--what-if: {part!r} is not zones=, deadline=, shape= or spot= with its values.")
        wish[field] = [_variation(field, value.strip(), now) for value in values.split("/")]
    return wish


def _variation(field: str, value: str, now: datetime) -> object:
    if field == "zones" and value.isdigit() and int(value):
        return int(value)
    if field == "markets":
        if value not in _MARKETS:
            raise click.BadParameter(f"--what-if: spot is yes, no or both, not {value!r}.")
        return _MARKETS[value]
    if field != "deadlines":
        return value.split("+")
    if value == "none":
        return None
    if "T" in value:
        return value
    try:
        return (now + timedelta(seconds=duration_s(value))).isoformat(timespec="seconds")
    except click.BadParameter:
        text = f"--what-if: deadline is a time from now (20h), a date (2030-01-31T08:00:00Z) or none, not {value!r}."
        raise click.BadParameter(text) from None


def show_what_if(answer: Json, wish: Json, form: str) -> None:
    """A row for each combination, with a bar of its cost from p10 to p90. Only what was varied has a column."""
    rows = answer["rows"]
    if output.emit(answer, rows, form, "market"):
        return
    most = max((cost_of(row)[2] for row in rows if cost_of(row)), default=0.0)
    shown = {title: cell for field, (title, cell) in _COLUMNS.items() if field in wish}
    bar = f"{'COST':<{BAR - 8}}{money(most) if most else '':>8}"
    table = Table(
        "market",
        {
            **shown,
            "COST ABOUT": cost_text,
            "DONE ABOUT": done_text,
            "KEPT": _kept_text,
            bar: lambda row: _bar(row, most),
        },
        (bar,),
    )
    output.show(table.lines(rows))
    reasons = [text for row in rows if (text := no_figure(row))]
    output.show(
        [line for text in dict.fromkeys(reasons) for line in paragraph(f"No figure: {safe(text).rstrip('.')}.", "  ")]
    )


def names_of(row: Json, wish: Mapping[str, Any]) -> str:
    """What sets this combination apart from the others: `spot both, zones all`."""
    return ", ".join(f"{title.lower()} {cell(row)}" for field, (title, cell) in _COLUMNS.items() if field in wish)


def cost_of(row: Json) -> list[float]:
    """p10, p50, p90; [] = not known."""
    costs = (row["forecast"] or {}).get("cost_usd")
    return [costs["p10"], costs["p50"], costs["p90"]] if costs else []


def no_figure(row: Json) -> str:
    return str(row["refused"] or "; ".join((row["forecast"] or {}).get("unknown", ())))


def _zones(zones: Sequence[str]) -> str:
    return safe(zones[0]) if len(zones) == 1 else f"{len(zones)}: {safe(zones[0])}, …" if zones else "all"


def cost_text(row: Json) -> str:
    cost = cost_of(row)
    return f"{money(cost[1])} ({money(cost[0])} to {money(cost[2])})" if cost else DASH


def done_text(row: Json) -> str:
    ends = (row["forecast"] or {}).get("ends_at")
    if not ends:
        return DASH
    p50, p90 = (utc_minute(ends[name]) if ends[name] else "never" for name in ("p50", "p90"))
    return f"{p50} (p90 {p90})"


def _kept_text(row: Json) -> str:
    kept = (row["forecast"] or {}).get("deadline_kept")
    return DASH if kept is None else f"{int(100 * kept + 1e-9)} %"


def _bar(row: Json, most: float) -> str:
    """`   |---O------|   `: p10, p50, p90 between 0 and the largest of all rows."""
    cost = cost_of(row)
    if not cost or most <= 0:
        return ""
    low, middle, high = (round(each / most * (BAR - 1)) for each in cost)
    line = [" "] * low + ["-"] * (high - low + 1)
    line[low], line[high], line[middle] = "|", "|", "O"
    return "".join(line)

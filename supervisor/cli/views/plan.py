"""submit --dry-run: the plan of a submit for a person. What would happen, where, for how much, and what speaks against.

Checks that are well share one line; what is not has its cause and its cure. What a machine would be sent is told by
names and sizes; -o json holds it in full.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from supervisor.cli import output
from supervisor.cli.client import Client, Json
from supervisor.cli.output import check_sign, coloured, safe
from supervisor.wording.figures import DASH, age_text, duration, epoch, money, plural, size_text

OLD_DAYS = 30  # a price that was read longer ago is shown with its age


def ask_plan(client: Client, body: Json, code_follows: bool) -> Json:
    """Raises the Problem that the submit would meet."""
    query = {"validate_only": "true", **({"code_follows": "true"} if code_follows else {})}
    # A submit of this command carries a key: the order of the checks is that of such a one.
    headers = {"Idempotency-Key": "dry-run"}
    answer: Json = client.send("POST", "/v1/runs", query, body, headers=headers).json()
    return answer


def show_plan(plan: Json, form: str) -> None:
    """In the form that was asked for; `-o name` says what would happen, in one word."""
    if output.emit(plan, [plan], form, "would"):
        return
    output.show(plan_lines(plan, datetime.now(UTC)))


def plan_lines(plan: Json, now: datetime) -> list[str]:
    said = "" if plan["would"] == "unchanged" else " Nothing was done yet."
    lines = output.paragraph(f"{safe(plan['sentence'])}{said}")
    if plan["differs"]:
        lines += output.paragraph(f"The spec differs in {', '.join(safe(name) for name in plan['differs'])}.")
    lines += [coloured(f"{check_sign('warn')} {safe(text)}", "warn") for text in plan["warnings"]]
    if plan["zones"]:
        lines += ["", *_places(plan["zones"], now)]
    lines += ["", *_paragraphs(plan["cost"]["lines"]), *_paragraphs([_limits(plan["limits"])])]
    lines += ["", *_checks(plan["checks"])]
    return [*lines, "", *_launch(plan)]


def _places(places: Sequence[Json], now: datetime) -> list[str]:
    """The table, without the columns that have nothing to say."""
    shown: output.Table = {
        "#": lambda place: str(place["number"]),
        "ZONE": lambda place: safe(place["zone"]),
        "SHAPE": lambda place: safe(place["shape"]),
        "MARKET": lambda place: "spot" if place["spot"] else "on-demand",
        "PRICE": lambda place: _per_h(place["price_usd_per_h"]),
        "ON-DEMAND": lambda place: _per_h(place["on_demand_usd_per_h"]),
        "CHANCE": lambda place: DASH if place["chance"] is None else f"{100 * place['chance']:.0f} %",
        "PRICE READ": lambda place: _read(place, now),
        "NOTE": lambda place: _note(place, now),
    }
    numbered = [{**place, "number": number} for number, place in enumerate(places, 1)]
    filled = {title for title, cell in shown.items() if any(cell(row) not in ("", DASH) for row in numbered)}
    return output.table({title: cell for title, cell in shown.items() if title in filled}, numbered)


def _note(place: Json, now: datetime) -> str:
    if place["cooling_until"] is None:
        return ""
    left_s = max(0.0, (epoch(place["cooling_until"]) or 0.0) - now.timestamp())
    return f"asked again in {age_text(left_s)}: {safe(place['cooling_why'])}"


def _per_h(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"{money(price)}/h" if price >= 0.1 or price == 0 else f"${price:.4f}/h"


def _read(place: Json, now: datetime) -> str:
    """Where the price comes from, and how old it is where that is worth knowing."""
    source, dated = place["price_source"], place["price_dated"]
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


def _checks(checks: Iterable[Json]) -> list[str]:
    results = list(checks)
    well = [safe(check["name"]) for check in results if check["result"] == "ok"]
    lines = []
    if well:
        first, *rest = output.paragraph(
            f"{check_sign('ok')} {plural(len(well), 'check')} well: {', '.join(well)}", "  "
        )
        lines += [coloured(first, "ok"), *rest]
    for check in sorted((check for check in results if check["result"] != "ok"), key=_worst_first):
        line = f"{check_sign(check['result'])} {safe(check['name'])}: {safe(check['fact'])}"
        first, *rest = output.paragraph(line, "  ")
        lines += [coloured(first, check["result"]), *rest]
        if check.get("cause"):
            lines += output.paragraph(f"    cause: {safe(check['cause'])}", " " * 11)
        if check.get("fix"):  # never broken: it is there to be pasted
            lines.append(f"    fix: {safe(check['fix'])}")
    return lines or ["No checks apply to this run."]


def _worst_first(check: Json) -> int:
    return 0 if check["result"] == "fail" else 1


def _launch(plan: Json) -> list[str]:
    launch = plan["launch"]
    if launch is None:
        return ["What a machine would be sent is not known; the lines above say why."]
    metadata = launch.get("metadata")
    hint = "spot submit --dry-run -o json shows all of it"
    if isinstance(metadata, dict):
        sizes = ", ".join(f"{safe(key)} {size_text(len(str(value).encode()))}" for key, value in metadata.items())
        return output.paragraph(f"Metadata of the first machine: {sizes}. {hint}.", "  ")
    parts = ", ".join(
        f"{safe(key)} {size_text(len(json.dumps(value)))}" for key, value in launch.items() if key != "kind"
    )
    return output.paragraph(f"The first machine ({safe(launch.get('kind', 'machine'))}): {parts}. {hint}.", "  ")


def _paragraphs(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in output.paragraph(safe(text), "  ")]

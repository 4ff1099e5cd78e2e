"""A run as a row of the runs page: everything that its cells say, made here once, so that the template only puts it in.

Fifty rows are made for each look, and one for each change that is pushed: a template that worked this out cell by cell
would take longer than the database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from supervisor.dashboard.drawing.sparkline import Spark, spark
from supervisor.dashboard.words import Look, ago, spent, status_look, what_next
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import DASH, age_text, count, money_text, percent, plural

LABELS_SHOWN = 3
LABEL_CHARACTERS = 28  # of one label; the whole is in its title
TO_BE_SEEN = frozenset({"partial", "failed"})  # ends for which the cause is worth a word
NEEDS_YOU = "needs you"  # also a next action of the API
SVG = Markup(  # as large as sparkline.py draws
    '<svg class="spark" viewBox="0 0 96 24" width="96" height="24" role="img" aria-label="%s">'
    '<title>%s</title><path class="band" d="%s"/><path class="line" d="%s"/></svg>'
)


class Label(NamedTuple):
    text: str
    whole: str
    address: str  # of the list of all runs that have it


class Row(NamedTuple):
    """Empty = there is nothing to tell. `share`: percent done. `marked`: a class of the row where a person must act."""

    look: Look
    cause: str
    labels: list[Label]
    more_labels: str
    share: str
    steps: str
    spark: Markup
    eta: str
    next: Markup
    person: str
    marked: str
    attempts: str
    preemptions: str
    zone: str
    gpu: str  # or the shape, where no GPU is known
    shape: str
    beat: Markup
    stall: str
    cost: str
    rate: str


def row_of(run: dict[str, Any], now: float) -> Row:
    """`run` as the API lists it. Without `sparkline` there is no line."""
    status, over = run["status"], run["status"] in TERMINAL
    progress, place = run["progress"] or {}, run["placement"] or {}
    counters, stall, what = run["counters"], run["stall"], run["next_action"]["what"]
    person = not over and (run["needs_person"] or what == NEEDS_YOU)
    labels = [_label(name, value) for name, value in sorted(run["labels"].items())]
    step, total = progress.get("step"), progress.get("total")
    price = run["price_usd_per_h"]
    return Row(
        look=status_look(status),
        cause=(run["cause"] or "").replace("_", " ") if not over or status in TO_BE_SEEN else "",
        labels=labels[:LABELS_SHOWN],
        more_labels=f"+{len(labels) - LABELS_SHOWN}" if len(labels) > LABELS_SHOWN else "",
        share=_share(status, step, total),
        steps=_steps(step, total),
        spark=_drawn(spark(run.get("sparkline", ()), now if run["beat"] is None and not over else None)),
        eta=_eta(progress.get("eta_s"), what),
        next=Markup("") if what in (DASH, NEEDS_YOU) else what_next(run["next_action"], now),
        person=NEEDS_YOU if person else "",
        marked="asks" if person else "",
        attempts=count(counters["attempts"]) if counters["attempts"] else "",
        preemptions=plural(counters["preemptions"], "preemption") if counters["preemptions"] else "",
        zone=place.get("zone", ""),
        gpu=(place.get("gpu") or place.get("shape", "")) + ("" if place.get("spot", True) else ", on demand"),
        shape=place.get("shape", ""),
        beat=_beat(run["beat"], now),
        stall=f"{stall['polls']}/{stall['limit']}" if stall["polls"] else "",
        cost=spent(run["cost"]),
        rate=f"{money_text(price)}/h" if price is not None and not over else "",
    )


def _label(name: str, value: str) -> Label:
    whole = f"{name}={value}"
    text = whole if len(whole) <= LABEL_CHARACTERS else whole[: LABEL_CHARACTERS - 1] + "…"
    return Label(text, whole, f"/ui/runs?label={quote(whole, safe='', errors='replace')}")


def _share(status: str, step: int | None, total: int | None) -> str:
    """Never 100 before the end."""
    share = 100.0 if status == "completed" else percent(step, total)
    return "" if share is None else f"{int(share)} %"


def _steps(step: int | None, total: int | None) -> str:
    if step is None:
        return ""
    return f"{count(step)} of {count(total)}" if total else f"step {count(step)}"


def _eta(eta_s: float | None, what: str) -> str:
    """Where the next action is not the end itself."""
    return "" if eta_s is None or what.startswith("ETA") else f"ETA {age_text(eta_s)}"


def _drawn(line: Spark | None) -> Markup:
    return Markup("") if line is None else SVG % (line.text, line.text, line.bands, line.line)


def _beat(beat: dict[str, Any] | None, now: float) -> Markup:
    if beat is None:
        return Markup("")
    at = datetime.fromtimestamp(now - beat["age_s"], UTC)
    return ago(at.isoformat(timespec="milliseconds")[:-6] + "Z", now)

"""A run as the templates show it: a row of the runs page, and what a person can do to it.

Fifty rows are made for each page, and one for each change that is pushed, so the work is done here: a template that
computed every cell would take longer than the database. The steps over time are a line a centimeter high, broken where
an attempt ended, with a band where nothing ran; it consists of paths with numbers only, so it needs no style of its
own. Which actions are offered follows from the status, as the API would decide; the API decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from supervisor.dashboard.words import ago, status_look, what_next
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import DASH, age_text, count, count_text, money_text, percent, plural, spent

WIDTH, HEIGHT = 96, 24
EDGE = 2.0  # keeps the width of the line inside
SOON_S = 30.0  # how exact a moving end is
BAND_MIN = 1.5  # a gap shorter than a pixel is visible, too
LABELS_SHOWN = 3
LABEL_CHARACTERS = 28  # of one label; its title has all
REMARKABLE = frozenset({"partial", "failed"})  # ends whose cause is worth a word
NEEDS_YOU, ENDS_BILL = "needs you", "end the bill"  # also next actions of the API
SVG = Markup(  # as large as `spark` draws
    '<svg class="spark" viewBox="0 0 96 24" width="96" height="24" role="img" aria-label="%s">'
    '<title>%s</title><path class="band" d="%s"/><path class="line" d="%s"/></svg>'
)

Json = dict[str, Any]
Place = tuple[float, float]


class Spark(NamedTuple):
    """`line`, `bands`: data of SVG paths, "" = none. `text`: the same in words."""

    line: str
    bands: str
    text: str


class Action(NamedTuple):
    name: str  # its page below that of the run
    text: str
    tone: str = ""  # primary: the person is asked for it now; danger: it cannot be undone


class Notice(NamedTuple):
    tone: str
    text: str


# The notice after a change, by the word in the address; its text never comes from there.
DONE = {
    "stop": Notice("wait", "The stop is recorded. The run saves a checkpoint first, then its machine is released."),
    "resume": Notice("good", "Resumed: it continues from its newest checkpoint."),
    "retry": Notice("good", "It goes on: its next attempt is placed on the coming tick."),
    "rerun": Notice("good", "It starts over from nothing."),
    "drill": Notice("good", "A drill is ordered. The page shows its verdict when it is over."),
    "approve": Notice("good", "Approved: the machine is released."),
    "ended": Notice("good", "Confirmed: its host is billed no more."),
    "loss": Notice("wait", "The results are given up, and the machine is released."),
    "change": Notice("good", "Changed. It applies from now on."),
    "same": Notice("still", "Nothing was changed: these values applied already."),
    "purge": Notice("wait", "Its files are deleted."),
}


def row_of(run: Json, now: float) -> SimpleNamespace:
    """The cells of runs_row.html, "" where there is nothing to show. `run` as the API lists it; without `sparkline`
    there is no line."""
    status, over = run["status"], run["status"] in TERMINAL
    progress, place = run["progress"] or {}, run["placement"] or {}
    counters, stall, what = run["counters"], run["stall"], run["next_action"]["what"]
    person = not over and (run["needs_person"] or what == NEEDS_YOU)
    labels = [_label(name, value) for name, value in sorted(run["labels"].items())]
    step, total, eta_s = progress.get("step"), progress.get("total"), progress.get("eta_s")
    share = 100.0 if status == "completed" else percent(step, total)
    about = "≈ " if progress.get("guessed") else ""
    steps = "" if step is None else f"{about}{count(step)} of {count(total)}" if total else f"step {about}{count(step)}"
    gpu = place.get("gpu") or place.get("shape", "")  # the shape, where no GPU is known
    price = run["price_usd_per_h"]
    return SimpleNamespace(
        look=status_look(status),
        cause=(run["cause"] or "").replace("_", " ") if not over or status in REMARKABLE else "",
        labels=labels[:LABELS_SHOWN],
        more_labels=f"+{len(labels) - LABELS_SHOWN}" if len(labels) > LABELS_SHOWN else "",
        share="" if share is None else f"{about}{int(share)} %",
        steps=steps,
        spark=_drawn(spark(run.get("sparkline", ()), now if run["beat"] is None and not over else None)),
        eta="" if eta_s is None or what.startswith("ETA") else f"ETA {about}{age_text(eta_s)}",
        next=Markup("") if what in (DASH, NEEDS_YOU) else what_next(run["next_action"], now),
        person=NEEDS_YOU if person else "",
        marked="asks" if person else "",  # a class of the row
        attempts=count(counters["attempts"]) if counters["attempts"] else "",
        preemptions=plural(counters["preemptions"], "preemption") if counters["preemptions"] else "",
        zone=place.get("zone", ""),
        gpu=gpu + ("" if place.get("spot", True) else f", {place['market']}"),
        shape=place.get("shape", ""),
        beat=_beat(run["beat"], now),
        stall=f"{stall['polls']}/{stall['limit']}" if stall["polls"] else "",
        cost=spent(run["cost"]),
        rate=f"{money_text(price)}/h" if price is not None and not over else "",
    )


def _label(name: str, value: str) -> SimpleNamespace:
    """`address`: of the list of all runs that have it."""
    whole = f"{name}={value}"
    text = whole if len(whole) <= LABEL_CHARACTERS else whole[: LABEL_CHARACTERS - 1] + "…"
    return SimpleNamespace(text=text, whole=whole, address=f"/ui/runs?label={quote(whole, safe='', errors='replace')}")


def _drawn(line: Spark | None) -> Markup:
    return Markup("") if line is None else SVG % (line.text, line.text, line.bands, line.line)


def _beat(beat: Json | None, now: float) -> Markup:
    if beat is None:
        return Markup("")
    at = datetime.fromtimestamp(now - beat["age_s"], UTC)
    return ago(at.isoformat(timespec="milliseconds")[:-6] + "Z", now)


def spark(points: Sequence[dict[str, Any]], until: float | None = None) -> Spark | None:
    """`points` as the API has them. `until`: nothing has run since the newest point until this time; None: the run
    continues, or is over. Returns None where there is nothing to draw."""
    if not points:
        return None
    line = tuple((point["at"], point["step"], point["gap"]) for point in points)
    return _spark(line, None if until is None else until // SOON_S * SOON_S)


@lru_cache(1024)  # a line stays the same for a minute, and on all pages
def _spark(points: tuple[tuple[str, int, bool], ...], until: float | None) -> Spark:
    line = [(datetime.fromisoformat(at).timestamp(), step) for at, step, _ in points]
    first, last = line[0][0], max(line[-1][0], until or 0.0)
    low, high = min(step for _, step in line), max(step for _, step in line)
    across = (WIDTH - 2 * EDGE) / max(1.0, last - first)
    up = (HEIGHT - 2 * EDGE) / max(1, high - low)
    drawn = [(EDGE + (at - first) * across, HEIGHT - EDGE - (step - low) * up) for at, step in line]
    gaps = [False, *(gap for _, _, gap in points[1:])]
    bands = [_band(before[0], x) for before, (x, _), gap in zip(drawn, drawn[1:], gaps[1:], strict=False) if gap]
    if until is not None and last > line[-1][0]:
        bands.append(_band(drawn[-1][0], WIDTH - EDGE))
    broken = sum(gaps)
    text = f"Steps {count_text(line[0][1])} to {count_text(line[-1][1])} in {age_text(line[-1][0] - first)}"
    return Spark(_line(drawn, gaps), "".join(bands), text + (f", {plural(broken, 'interruption')}" if broken else ""))


def _line(drawn: Sequence[Place], gaps: Sequence[bool]) -> str:
    """A point between two gaps becomes a dot: a line of no length with round ends."""
    parts = []
    for number, ((x, y), gap) in enumerate(zip(drawn, gaps, strict=True)):
        begins = number == 0 or gap
        parts.append(f"{'M' if begins else 'L'}{x:.1f} {y:.1f}")
        if begins and (number + 1 == len(drawn) or gaps[number + 1]):
            parts.append("h0")
    return "".join(parts)


def _band(left: float, right: float) -> str:
    """From top to bottom."""
    width = max(BAND_MIN, right - left)
    return f"M{left:.1f} 0h{width:.1f}v{HEIGHT}h-{width:.1f}z"


def run_actions(run: Json) -> list[Action]:
    """`run` as the API shows it; the most urgent action first."""
    status, over = run["status"], run["status"] in TERMINAL
    actions = []
    if _may_approve(run):
        actions.append(Action("approve", "Approve teardown" if status != "finishing" else "Give up results", "primary"))
    if status == "waiting" and run["needs_person"]:
        actions.append(Action("retry", "Go on", "primary"))
    if not over and status != "awaiting_teardown" and run["stop"] is None:
        actions.append(Action("stop", "Stop"))
    if over and not run["purging"]:
        actions.append(Action("resume", "Start over" if status == "completed" else "Resume"))
    if status == "running" and run["stop"] is None and not (run["drill"] and run["drill"]["going_on"]):
        actions.append(Action("drill", "Drill"))
    if not over:
        actions.append(Action("change", "Change limits"))
    if over and (run["purging"] or run["purged_at"] is None):  # repeating an interrupted purge finishes it
        actions.append(Action("purge", "Purge files", "danger"))
    return actions


def duty_of(run: Json) -> Notice:
    """Whether a person must act, in one sentence."""
    status = run["status"]
    if run["next_action"]["what"] == ENDS_BILL:
        return Notice("", "You need to do nothing: the bill of its host is being ended, and a later read confirms it.")
    if _may_approve(run):
        return Notice("person", "You must act: approve the teardown." if status != "finishing" else "You must act.")
    if status not in TERMINAL:
        return Notice("person", "You must act.") if run["needs_person"] else Notice("", "You need to do nothing.")
    if status == "completed":
        return Notice("", "Done; there is nothing left to do.")
    if status == "stopped":
        return Notice("", "It stays stopped until you resume it.")
    return Notice("bad", "It does not continue by itself: you have to look at it.")


def _may_approve(run: Json) -> bool:
    status = run["status"]
    return status == "awaiting_teardown" or (status == "finishing" and bool(run["needs_person"]))

"""A run as a row of the runs page: everything that its cells say, made here once, so that the template only puts it in.

Fifty rows are made for each look, and one for each change that is pushed: a template that worked this out cell by cell
would take longer than the database. Its steps over time are a line a centimetre high: broken where an attempt ended,
with a band where nothing ran; only paths with numbers in them, so that nothing needs a style of its own.

What a person can do to a run now stands here, too: by its status, as the API would judge it. The API has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from supervisor.dashboard.words import ago, status_look, what_next
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import DASH, Look, age_text, count, count_text, money_text, percent, plural, spent

WIDTH, HEIGHT = 96, 24
EDGE = 2.0  # so that the line's own width is not cut off
SOON_S = 30.0  # how exact an end is that moves on
BAND_MIN = 1.5  # a gap that is shorter than a pixel is seen all the same

Point = tuple[float, float]


class Spark(NamedTuple):
    """`line`, `bands`: data of SVG paths, "" = there is none. `text`: the same in words."""

    line: str
    bands: str
    text: str


def spark(points: Sequence[dict[str, Any]], until: float | None = None) -> Spark | None:
    """`points` as the API tells them. `until`: nothing has run from the newest point to this time; None: it goes on, or
    is over. None where there is nothing to draw."""
    if not points:
        return None
    line = tuple((point["at"], point["step"], point["gap"]) for point in points)
    return _spark(line, None if until is None else until // SOON_S * SOON_S)


@lru_cache(1024)  # lines stay the same for a minute, and all pages show the same
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


def _line(drawn: Sequence[Point], gaps: Sequence[bool]) -> str:
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


LABELS_SHOWN = 3
LABEL_CHARACTERS = 28  # of one label; the whole is in its title
TO_BE_SEEN = frozenset({"partial", "failed"})  # ends for which the cause is worth a word
NEEDS_YOU = "needs you"  # also a next action of the API
SVG = Markup(  # as large as `spark` draws
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


class Action(NamedTuple):
    name: str  # its page below that of the run
    text: str
    tone: str = ""  # primary: what is asked of the person now; danger: it cannot be undone


class Did(NamedTuple):
    """A sentence and its tone."""

    tone: str
    text: str


# The notice after a change, by the word in the address: never text from there.
DID = {
    "stop": Did("wait", "The stop is on record. Its checkpoint is saved first, then its machine is released."),
    "resume": Did("good", "Resumed: it goes on from its newest checkpoint."),
    "rerun": Did("good", "It starts over from nothing."),
    "approve": Did("good", "Approved: the machine is released."),
    "loss": Did("wait", "The results are given up, and the machine is released."),
    "change": Did("good", "Changed. It counts from now on."),
    "same": Did("still", "Nothing was changed: these values counted already."),
    "purge": Did("wait", "Its files are deleted."),
}


def run_actions(run: dict[str, Any]) -> list[Action]:
    """Of a run as the API shows it; the most pressing first."""
    status = run["status"]
    actions = []
    if may_approve(run):
        actions.append(Action("approve", "Approve teardown" if status != "finishing" else "Give up results", "primary"))
    if may_stop(run):
        actions.append(Action("stop", "Stop"))
    if may_resume(run):
        actions.append(Action("resume", "Start over" if status == "completed" else "Resume"))
    if status not in TERMINAL:
        actions.append(Action("change", "Change limits"))
    if may_purge(run):
        actions.append(Action("purge", "Purge files", "danger"))
    return actions


def duty_of(run: dict[str, Any]) -> Did:
    """Whether somebody must act, in one sentence."""
    status = run["status"]
    if may_approve(run):
        return Did("person", "You must act: approve the teardown." if status != "finishing" else "You must act.")
    if status not in TERMINAL:
        return Did("person", "You must act.") if run["needs_person"] else Did("", "You need to do nothing.")
    if status == "completed":
        return Did("", "Done; nothing is left to do.")
    if status == "stopped":
        return Did("", "It stays so until somebody resumes it.")
    return Did("bad", "It does not go on by itself: somebody has to look.")


def may_approve(run: dict[str, Any]) -> bool:
    status = run["status"]
    return status == "awaiting_teardown" or (status == "finishing" and bool(run["needs_person"]))


def may_stop(run: dict[str, Any]) -> bool:
    return run["status"] not in TERMINAL and run["status"] != "awaiting_teardown" and run["stop"] is None


def may_resume(run: dict[str, Any]) -> bool:
    return run["status"] in TERMINAL and not run["purging"]


def may_purge(run: dict[str, Any]) -> bool:
    """A purge that was cut off is finished by asking again."""
    return run["status"] in TERMINAL and (run["purging"] or run["purged_at"] is None)

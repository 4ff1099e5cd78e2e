"""The attempts of a run as bars on one axis of wall time, from what the API says of them.

A bar is cut into the phases of its attempt; the axis is empty while the run had ended or no machine was requested. All
positions and lengths are percent of the axis, so that a bar is as wide as its page. A phase too short to be seen is
drawn as a hair; its title and the table below say how long it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from supervisor.dashboard.drawing.charts import time_marks
from supervisor.dashboard.words import whole_time
from supervisor.domain.status import TERMINAL
from supervisor.wording.attempt import end_word
from supervisor.wording.figures import DASH, age_text, count_text, epoch

Json = Mapping[str, Any]

NEWEST = 12  # bars that are shown unless all are requested
MARKS = 5
EDGE = 4.0  # percent: a mark closer to an end would be cut off
HAIR = 0.25  # percent
LETTER = 1.8  # percent of a bar that a letter takes at most where names are shown (static/run.css)
SHORTEST_S = 1.0  # of an axis
EFFECTIVE = "training"
_PLAIN = ("waiting", "provisioning", "boot", "pull", "restore", "training")
PHASES = {**{name: name for name in _PLAIN}, "lost": "lost work"}  # in the order of the legend


class Part(NamedTuple):
    """One phase of a bar. `name` is written into it; "" where it does not fit."""

    phase: str
    x: float
    width: float
    title: str
    name: str


class Failed(NamedTuple):
    """A request that brought no machine."""

    x: float
    title: str


class Bar(NamedTuple):
    """`attempt`: as the API has it. `placed` False: it is being placed now, so `took_s` is None and `steps` is "".
    `cause`: why it ended, or its current phase."""

    attempt: Json
    placed: bool
    zone: str
    cause: str
    live: bool
    took_s: float | None
    steps: str
    parts: list[Part]
    failed: list[Failed]


class Timeline(NamedTuple):
    """`marks`: (percent, text). `now`: percent, None where the axis ends earlier. `hidden`: the number of older
    attempts that are not shown. `shares`: (phase, name, percent) of the time of all attempts; `effective`: percent,
    None where no time has passed."""

    bars: list[Bar]
    marks: list[tuple[float, str]]
    now: float | None
    hidden: int
    shares: list[tuple[str, str, float]]
    effective: float | None
    phases: list[tuple[str, str]]


class _Axis(NamedTuple):
    begin: float
    end: float

    def at(self, moment: float) -> float:
        return round(min(100.0, max(0.0, 100.0 * (moment - self.begin) / (self.end - self.begin))), 3)


def timeline(run: Json, answer: Json, now: float, newest: int | None = NEWEST) -> Timeline:
    """`answer`: the response of /v1/runs/{id}/attempts. `newest` None = all."""
    every, following = list(answer["attempts"]), answer["next"]
    shown = every if newest is None else every[-newest:]
    placing = following is not None and (following["spans"] or following["tries"])
    axis = _axis(run, [*shown, *([following] if placing else [])], now)
    bars = [_bar(attempt, axis, now) for attempt in shown]
    if placing:
        bars.append(_placing_bar(run, following, axis))
    sums = _sums([*every, *([following] if following is not None else [])])
    whole = sum(sums.values())
    marks = [(axis.at(at), text) for at, text in time_marks(axis.begin, axis.end, MARKS)]
    return Timeline(
        bars=bars,
        marks=[(x, text) for x, text in marks if EDGE <= x <= 100 - EDGE],
        now=axis.at(now) if run["status"] not in TERMINAL else None,
        hidden=len(every) - len(shown),
        shares=[(phase, PHASES.get(phase, phase), 100 * length / whole) for phase, length in sums.items() if length],
        effective=100 * sums[EFFECTIVE] / whole if whole else None,
        phases=list(PHASES.items()),
    )


def _axis(run: Json, attempts: Sequence[Json], now: float) -> _Axis:
    moments = [_epoch(span[side]) for attempt in attempts for span in attempt["spans"] for side in ("since", "until")]
    moments += [_epoch(request["requested_at"]) for attempt in attempts for request in attempt["tries"]]
    begin = min(moments, default=_epoch(run["created_at"]))
    until = _epoch(run["status_since"]) if run["status"] in TERMINAL else now
    return _Axis(begin, max([until, *moments, begin + SHORTEST_S]))


def _epoch(moment: str) -> float:
    return epoch(moment) or 0.0


def _bar(attempt: Json, axis: _Axis, now: float) -> Bar:
    live = attempt["ended_at"] is None
    return Bar(
        attempt=attempt,
        placed=True,
        zone=attempt["placement"]["zone"],
        cause=end_word(
            attempt["cause"] or (_phase_now(attempt, "begins") if live else "ended"), attempt.get("evidence") or ""
        ).replace("_", " "),
        live=live,
        took_s=(now if live else _epoch(attempt["ended_at"])) - _epoch(attempt["started_at"]),
        steps=_steps(attempt),
        parts=_parts(attempt["spans"], axis),
        failed=_failed(attempt["tries"], axis),
    )


def _placing_bar(run: Json, following: Json, axis: _Axis) -> Bar:
    return Bar(
        attempt=following,
        placed=False,
        zone=run["placement"]["zone"] if run["placement"] is not None else "",
        cause=_phase_now(following, "not placed"),
        live=bool(following["spans"]),
        took_s=None,
        steps="",
        parts=_parts(following["spans"], axis),
        failed=_failed(following["tries"], axis),
    )


def _phase_now(attempt: Json, otherwise: str) -> str:
    spans = attempt["spans"]
    return PHASES.get(spans[-1]["phase"], spans[-1]["phase"]) if spans else otherwise


def _steps(attempt: Json) -> str:
    """`8,120 → 11,900`: resumed from, kept. A live attempt has not kept its last step yet."""
    first, last = attempt["step_from"], attempt["step_kept"]
    if first is None and last is None and attempt["step_last"] is None:
        return DASH
    end = "…" if attempt["ended_at"] is None else DASH if last is None else count_text(last)
    return f"{count_text(first or 0)} → {end}"


def _parts(spans: Sequence[Json], axis: _Axis) -> list[Part]:
    """The longest first: a hair is drawn over its neighbors."""
    parts = []
    for span in spans:
        since, until = _epoch(span["since"]), _epoch(span["until"])
        x = axis.at(since)
        width = round(axis.at(until) - x, 3)
        name = str(PHASES.get(span["phase"], span["phase"]))
        title = f"{name} {age_text(until - since)}, from {whole_time(span['since'])}"
        fitting = name if width >= LETTER * len(name) else ""
        parts.append(Part(span["phase"], min(x, 100 - HAIR), max(width, HAIR), title, fitting))
    return sorted(parts, key=lambda part: -part.width)


def _failed(tries: Sequence[Json], axis: _Axis) -> list[Failed]:
    return [
        Failed(
            axis.at(_epoch(request["requested_at"])),
            f"no machine in {request['placement']['zone']}: {request['cause']}, {whole_time(request['requested_at'])}",
        )
        for request in tries
    ]


def _sums(attempts: Sequence[Json]) -> dict[str, float]:
    """Seconds by phase, in the order of the legend; unknown phases come last."""
    sums = dict.fromkeys(PHASES, 0.0)
    for span in (span for attempt in attempts for span in attempt["spans"]):
        sums[span["phase"]] = sums.get(span["phase"], 0.0) + _epoch(span["until"]) - _epoch(span["since"])
    return sums

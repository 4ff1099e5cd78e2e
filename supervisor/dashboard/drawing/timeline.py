"""The attempts of a run as bars on one axis of wall time: pure, from what the API says of them.

A bar is cut into the phases of its attempt; where nothing stands on the axis the run had ended, or nobody had asked for
it. All places and lengths are percent of the axis, so that a bar is as wide as its page. A phase too short to be seen
is drawn as wide as a hair; its title and the table below tell the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.dashboard.drawing.axis import time_marks
from supervisor.dashboard.words import whole_time
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import DASH, age_text, count_text, epoch

Json = Mapping[str, Any]
NEWEST = 12  # bars that are shown where nobody asks for all
MARKS = 5
EDGE = 4.0  # percent: no mark so near to an end, where its text would be cut off
HAIR = 0.25  # percent
LETTER = 1.8  # percent of a bar that a letter takes at most where names are shown (static/run.css)
SHORTEST_S = 1.0  # of an axis
EFFECTIVE = "training"
_PLAIN = ("waiting", "provisioning", "boot", "pull", "restore", "training")
PHASES = {**{name: name for name in _PLAIN}, "lost": "lost work"}  # in the order of the legend


@dataclass(frozen=True, slots=True)
class Part:
    """One phase of a bar. `name` is written into it; "" where there is no room."""

    phase: str
    x: float
    width: float
    title: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request that brought no machine."""

    x: float
    title: str


@dataclass(frozen=True, slots=True)
class Bar:
    """`attempt`: as the API has it. `cause`: why it ended, or what it does. `took_s`, `steps`: None, "" = it has no
    machine."""

    attempt: Json
    placed: bool  # False = it is being placed now
    zone: str
    cause: str
    live: bool
    took_s: float | None
    steps: str
    parts: tuple[Part, ...]
    failed: tuple[Failed, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """`marks`: (percent, text). `now`: percent, None where the axis ends before. `hidden`: older attempts that are not
    shown. `shares`: (phase, name, percent) of the time of all attempts; `effective`: percent, None where no time has
    passed."""

    bars: tuple[Bar, ...]
    marks: tuple[tuple[float, str], ...]
    now: float | None
    hidden: int
    shares: tuple[tuple[str, str, float], ...]
    effective: float | None
    phases: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    begin: float
    end: float

    def at(self, moment: float) -> float:
        return round(min(100.0, max(0.0, 100.0 * (moment - self.begin) / (self.end - self.begin))), 3)


def timeline(run: Json, answer: Json, now: float, newest: int | None = NEWEST) -> Timeline:
    """`told`: the answer of /v1/runs/{id}/attempts. `newest` None = all."""
    every = list(answer["attempts"])
    following = answer["next"]
    shown = every if newest is None else every[-newest:]
    placed = following is not None and (following["spans"] or following["tries"])
    axis = _axis(run, [*shown, *([following] if placed else [])], now)
    bars = [_bar(attempt, axis, now) for attempt in shown]
    if placed:
        bars.append(_placing_bar(run, following, axis))
    sums = _sums([*every, *([following] if following is not None else [])])
    whole = sum(sums.values())
    return Timeline(
        tuple(bars),
        tuple((x, text) for x, text in _marks(axis) if EDGE <= x <= 100 - EDGE),
        axis.at(now) if run["status"] not in TERMINAL else None,
        len(every) - len(shown),
        tuple((phase, PHASES.get(phase, phase), 100 * length / whole) for phase, length in sums.items() if length),
        100 * sums[EFFECTIVE] / whole if whole else None,
        tuple(PHASES.items()),
    )  # fmt: skip


def _axis(run: Json, attempts: Sequence[Json], now: float) -> _Axis:
    moments = [moment for attempt in attempts for moment in _moments(attempt)]
    begin = min(moments, default=_epoch(run["created_at"]))
    until = _epoch(run["status_since"]) if run["status"] in TERMINAL else now
    return _Axis(begin, max([until, *moments, begin + SHORTEST_S]))


def _marks(axis: _Axis) -> list[tuple[float, str]]:
    return [(axis.at(at), text) for at, text in time_marks(axis.begin, axis.end, MARKS)]


def _moments(attempt: Json) -> list[float]:
    spans = [_epoch(span[side]) for span in attempt["spans"] for side in ("since", "until")]
    return spans + [_epoch(try_["requested_at"]) for try_ in attempt["tries"]]


def _epoch(moment: str) -> float:
    return epoch(moment) or 0.0


def _bar(attempt: Json, axis: _Axis, now: float) -> Bar:
    live = attempt["ended_at"] is None
    cause = attempt["cause"] or (_doing(attempt) if live else "ended")
    return Bar(
        attempt,
        True,
        attempt["placement"]["zone"],
        cause.replace("_", " "),
        live,
        (now if live else _epoch(attempt["ended_at"])) - _epoch(attempt["started_at"]),
        _steps(attempt),
        _parts(attempt["spans"], axis),
        _failed(attempt["tries"], axis),
    )


def _placing_bar(run: Json, following: Json, axis: _Axis) -> Bar:
    zone = run["placement"]["zone"] if run["placement"] is not None else ""
    spans = following["spans"]
    doing = PHASES.get(spans[-1]["phase"], spans[-1]["phase"]) if spans else "not placed"
    return Bar(
        following, False, zone, doing, bool(spans), None, "", _parts(spans, axis), _failed(following["tries"], axis)
    )


def _steps(attempt: Json) -> str:
    """`8,120 → 11,900`: resumed from, kept. A live one has not kept its last yet."""
    first, last = attempt["step_from"], attempt["step_kept"]
    if first is None and last is None and attempt["step_last"] is None:
        return DASH
    end = "…" if attempt["ended_at"] is None else DASH if last is None else count_text(last)
    return f"{count_text(first or 0)} → {end}"


def _doing(attempt: Json) -> str:
    spans = attempt["spans"]
    return PHASES.get(spans[-1]["phase"], spans[-1]["phase"]) if spans else "begins"


def _parts(spans: Sequence[Json], axis: _Axis) -> tuple[Part, ...]:
    """The longest first: what is as thin as a hair is drawn over its neighbours."""
    parts = []
    for span in spans:
        since, until = _epoch(span["since"]), _epoch(span["until"])
        x = axis.at(since)
        width = round(axis.at(until) - x, 3)
        name = str(PHASES.get(span["phase"], span["phase"]))
        title = f"{name} {age_text(until - since)}, from {whole_time(span['since'])}"
        part = Part(span["phase"], min(x, 100 - HAIR), max(width, HAIR), title)
        parts.append(replace(part, name=name) if width >= LETTER * len(name) else part)
    return tuple(sorted(parts, key=lambda part: -part.width))


def _failed(tries: Sequence[Json], axis: _Axis) -> tuple[Failed, ...]:
    return tuple(
        Failed(
            axis.at(_epoch(try_["requested_at"])),
            f"no machine in {try_['placement']['zone']}: {try_['cause']}, {whole_time(try_['requested_at'])}",
        )
        for try_ in tries
    )


def _sums(attempts: Sequence[Json]) -> dict[str, float]:
    """Seconds by phase, in the order of the legend; phases that we do not know come last."""
    sums = dict.fromkeys(PHASES, 0.0)
    for attempt in attempts:
        for span in attempt["spans"]:
            length = _epoch(span["until"]) - _epoch(span["since"])
            sums[span["phase"]] = sums.get(span["phase"], 0.0) + length
    return sums

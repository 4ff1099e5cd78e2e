"""The series of a run for a chart: step, pace, figures of the machine, as few points as a chart can show.

Points are read page by page and gathered into spans of equal length on the way, so that a month of a run is never held
at once. Spans begin at whole multiples of their length, which comes from a fixed ladder: asked again a minute later,
the points that were there are the same. A line must not be drawn across the end of an attempt, nor across silence:
`gap` says so.

What the cloud itself recorded of a run's machines, in one time line with our own events.

Ours keep their order and their pages: the cloud's are laid between them by their time. A page gets those of the time
that it covers, so that pages that are read one after the other hold each of them once. The cloud's clock is not ours:
two lines close to each other may stand the wrong way round. What could not be read is said, and ours come all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.machines import MachineRef
from supervisor.domain.policies import STALLING_POLLS
from supervisor.domain.run import Run
from supervisor.ports.history import StoredEvent
from supervisor.ports.platform import PlatformEvent
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.ports.store import Sample
from supervisor.services.parts import Parts
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json

POINTS_MAX = 2000
PAGE = 500  # points in memory at once
MINUTE_S, COARSE_S, DAY_S = 60.0, 600.0, 86_400.0
LADDER_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
SILENT = 2.5  # pauses of the usual pace: so long a hole is no line any more


@dataclass(slots=True)
class _Span:
    """What fell into one span of the newest attempt in it; figures are summed up."""

    last: Sample
    first_at: float
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, figure: float | None) -> None:
        if figure is not None:
            self.sums[name] = self.sums.get(name, 0.0) + figure
            self.counts[name] = self.counts.get(name, 0) + 1

    def mean(self, name: str) -> float | None:
        count = self.counts.get(name, 0)
        mean = self.sums[name] / count if count else None
        return mean if mean is not None and math.isfinite(mean) else None


def series_json(parts: Parts, run: Run, since: float | None, until: float | None, points: int) -> Json:
    """Oldest first, at most `points` of them. `since` None = from the submit on, `until` None = until now; nothing lies
    outside of these. Raises InvalidRequest."""
    if since is not None and until is not None and until < since:
        raise InvalidRequest("`until` lies before `since`.", {}, [("?until", "lies before since")])
    now = parts.clock.now()
    begin = min(now, run.created_at if since is None else max(since, run.created_at))
    end = now if until is None else min(now, max(until, begin))
    most = min(points, POINTS_MAX)
    every_s = _every_s(parts, run, begin, end, most)
    spans = list(_spans(_samples(parts, run, begin, end), every_s))
    return {
        "run_id": run.run_id,
        "since": rfc3339.text(begin),
        "until": rfc3339.text(end),
        "every_s": every_s,
        "points": [_point(span, before, every_s, now) for before, span in zip([None, *spans], spans, strict=False)],
    }


def _every_s(parts: Parts, run: Run, begin: float, end: float, most: int) -> float | None:
    """Length of a span; None = there are so few points that each is shown."""
    first = parts.store.samples(run.key, begin, 1)
    if not first:
        return None
    kept = sum(1 for _ in zip(_samples(parts, run, begin, end), range(most + 1), strict=False))
    if kept <= most:
        return None
    last = min(end, parts.clock.now())
    for length_s in LADDER_S:
        if last // length_s - first[0].at // length_s + 1 <= most:
            return float(length_s)
    days = 1
    while last // (days * DAY_S) - first[0].at // (days * DAY_S) + 1 > most:
        days *= 2
    return days * DAY_S


def _samples(parts: Parts, run: Run, begin: float, end: float) -> Iterator[Sample]:
    """In order of time, a page at a time."""
    at = begin
    while True:
        page = parts.store.samples(run.key, at, PAGE)
        for sample in page:
            if sample.at > end:
                return
            yield sample
        if len(page) < PAGE:
            return
        at = page[-1].at + 0.001  # times are kept in milliseconds


def _spans(samples: Iterator[Sample], every_s: float | None) -> Iterator[_Span]:
    """Where two attempts share a span the newer one is told: it has the line from there on."""
    span: _Span | None = None
    for sample in samples:
        if span is not None and (every_s is None or sample.at // every_s != span.last.at // every_s):
            yield span
            span = None
        if span is None or span.last.attempt != sample.attempt:
            span = _Span(sample, sample.at)
        span.last = sample
        for name, figure in _figures(sample):
            span.add(name, figure)
    if span is not None:
        yield span


def _figures(sample: Sample) -> Sequence[tuple[str, float | None]]:
    machine, pulse = sample.figures, sample.pulse
    return (
        ("steps_per_s", pulse.steps_per_s),
        ("gpu_pct", machine.gpu_pct),
        ("gpu_memory_pct", machine.gpu_memory_pct),
        ("memory_bytes", machine.memory_bytes),
        ("disk_free_pct", machine.free_bytes_pct),
        *((f"metric {name}", figure) for name, figure in pulse.metrics.items()),
    )


def _point(span: _Span, before: _Span | None, every_s: float | None, now: float) -> Json:
    last, pulse = span.last, span.last.pulse
    metrics = {name: span.mean(f"metric {name}") for name in pulse.metrics}
    return {
        "at": rfc3339.text(last.at),
        "attempt": last.attempt,
        "gap": before is not None and _is_gap(before.last, span, every_s, now),
        "phase": pulse.phase,
        "step": pulse.step,
        "total": pulse.total,
        "checkpoint_step": pulse.checkpoint_step,
        "steps_per_s": _rounded(span.mean("steps_per_s")),
        "gpu_pct": _rounded(span.mean("gpu_pct")),
        "gpu_memory_pct": _rounded(span.mean("gpu_memory_pct")),
        "memory_bytes": _rounded(span.mean("memory_bytes")),
        "disk_free_pct": _rounded(span.mean("disk_free_pct")),
        "metrics": {name: figure for name, figure in metrics.items() if figure is not None},
    }


def _is_gap(before: Sample, span: _Span, every_s: float | None, now: float) -> bool:
    """Points older than a day were thinned out to one in ten minutes: they lie further apart, and are no silence."""
    if before.attempt != span.last.attempt or max(_stalls(before), _stalls(span.last)) >= STALLING_POLLS:
        return True
    return is_silence(before.at, span.first_at, now=now, spacing_s=every_s or 0.0)


def _stalls(sample: Sample) -> int:
    return sample.pulse.stall_polls


def is_silence(before: float, after: float, *, now: float, spacing_s: float) -> bool:
    """Whether more is missing between two points than lies between points anyway. `spacing_s`: of those asked for."""
    kept_s = COARSE_S if now - before > DAY_S else MINUTE_S
    return after - before > SILENT * max(kept_s, spacing_s)


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 6)


SUPERVISOR, CLOUD = "supervisor", "cloud"
MACHINES = 100  # of a run, the newest: the cloud is asked about no more
EARLY_S = 120.0  # the cloud's clock may be behind ours when the first machine is asked for


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line of the cloud's stands in the run's history."""

    ref: MachineRef
    generation: int
    attempt: int
    requested_at: float


@dataclass(frozen=True, slots=True)
class Page:
    """One page of our own events, oldest first. `complete`: nothing beyond it was left out. `backwards`: what was left
    out is older. `after_at`: the time of the last event of the page before, -inf where there was none. `until`: that of
    the first event of the page after, inf where there was none."""

    own: Sequence[StoredEvent]
    complete: bool
    backwards: bool
    after_at: float
    since: float
    until: float = math.inf

    def covers(self, at: float) -> bool:
        first, last = self.after_at, self.until
        if not self.complete and self.own:
            if self.backwards:
                first = max(first, self.own[0].at)
            else:
                last = min(last, self.own[-1].at)
        return at >= self.since and first < at <= last


def with_cloud(parts: Parts, run: Run, page: Page, shown: Sequence[Json]) -> tuple[list[Json], str | None]:
    """(both, oldest first; why the cloud's could not be read or None). `shown`: the events of `page`."""
    if run.provider not in parts.providers or parts.cells[run.provider] != run.cell:
        return list(shown), "its machines belong to another supervisor's place"
    places = _places(parts, run)
    since = max(page.since, page.after_at, run.created_at - EARLY_S)
    try:
        history = parts.platform.history([place.ref for place in places.values()], since) if places else ()
    except NotSupported:
        return list(shown), None
    except ProviderUnavailable as error:
        return list(shown), str(error)
    cloud = [event for event in history if page.covers(event.at)]
    return _laid_between(page.own, shown, cloud, run, places), None


def _laid_between(
    own: Sequence[StoredEvent],
    shown: Sequence[Json],
    cloud: Sequence[PlatformEvent],
    run: Run,
    places: Mapping[str, Place],
) -> list[Json]:
    """Ours stay in their order, even where our clock was set back."""
    lines, waiting = list[Json](), [(event.at, _shown(event, run, places)) for event in cloud]
    for stored, line in zip(own, shown, strict=True):
        while waiting and waiting[0][0] < stored.at:
            lines.append(waiting.pop(0)[1])
        lines.append(line)
    return lines + [line for _, line in waiting]


def _shown(event: PlatformEvent, run: Run, places: Mapping[str, Place]) -> Json:
    """`id` is null: only ours are counted, and a page goes on after one of ours."""
    place = places.get(event.machine_name)
    return {
        "id": None,
        "run_id": run.run_id,
        "at": rfc3339.text(event.at),
        "generation": place.generation if place else run.generation,
        "attempt": place.attempt if place else 0,
        "kind": event.kind,
        "text": f"{event.machine_name}: {event.text}",
        "actor": event.actor,
        "data": {"operation_id": event.event_id, "machine": event.machine_name, "zone": event.zone},
        "source": CLOUD,
    }


def _places(parts: Parts, run: Run) -> dict[str, Place]:
    """By machine name: of the attempts, and of the tries that obtained none; the newest."""
    places = {}
    for try_ in parts.store.tries(run.key):
        generation = parse_launch_id(try_.launch_id)[0]
        places[try_.machine_name] = Place(try_.ref, generation, try_.attempt, try_.requested_at)
    for attempt in parts.store.attempts(run.key):
        places[attempt.machine_name] = Place(attempt.ref, attempt.generation, attempt.number, attempt.requested_at)
    newest = sorted(places.items(), key=lambda item: item[1].requested_at)[-MACHINES:]
    return dict(newest)

"""The history as lists of events, of one run or of all; of one run also with what the cloud itself recorded.

Our events keep their order and their pages; the cloud's events are merged in by their time. A page contains the cloud's
events of the time that it covers, so that pages which are read one after the other contain each of them once. The cloud
has another clock: two events close to each other may be in the wrong order. Where the cloud's events cannot be read,
the response says why and contains ours alone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.machines import MachineRef
from supervisor.domain.run import Run
from supervisor.ports.history import StoredEvent
from supervisor.ports.platform import PlatformEvent
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.views import formats

SUPERVISOR, CLOUD = "supervisor", "cloud"
MACHINES = 100  # of a run: the newest, whose events are read from the cloud
EARLY_S = 120.0  # the cloud's clock may be this far behind ours when the first machine is requested


class EventShown(TypedDict):
    """`source`: supervisor or cloud. An event of the cloud has no id of ours (null), its kind is the cloud's word, and
    its `data` has the operation's id, the machine and the zone."""

    id: int | None
    run_id: str | None
    at: formats.Time
    generation: int
    attempt: int
    kind: str
    text: str
    actor: str
    data: dict[str, Any]
    source: str


class EventList(TypedDict):
    """`cloud_unread`: why the cloud's own events, which the request asks for, are not included."""

    events: list[EventShown]
    complete: bool
    cloud_unread: str | None


@dataclass(frozen=True, slots=True)
class EventQuery:
    """At most `limit` events with an id above `after` and below `before`. `since` (epoch seconds) reads the newest
    `limit` events only, and returns the ones from that time on, oldest first. `owner`: of a run. None = any."""

    after: int = 0
    limit: int = 100
    newest_first: bool = False
    since: float | None = None
    before: int | None = None
    owner: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class _Period:
    """The time that a page covers: from `since` on, later than `after`, up to `until`."""

    since: float
    after: float
    until: float

    def covers(self, at: float) -> bool:
        return at >= self.since and self.after < at <= self.until


@dataclass(frozen=True, slots=True)
class _Launch:
    """The attempt or the try that a machine belongs to."""

    ref: MachineRef
    generation: int
    attempt: int
    requested_at: float


def list_events(parts: Parts, run: Run | None, query: EventQuery, *, cloud: bool = False) -> EventList:
    """`run` None: of all runs and of the supervisor itself. `complete`: there are no others in this direction."""
    backwards = query.newest_first or query.since is not None
    run_id = None if run is None else run.run_id
    page = parts.store.events(
        run_id, query.after, query.limit, backwards, owner=query.owner, actor=query.actor, before_id=query.before
    )
    complete = len(page) < query.limit
    if query.since is not None:
        complete = complete or page[-1].at < query.since
        page = [stored for stored in page if stored.at >= query.since]
    if backwards:
        page.reverse()
    events, unread = [event_json(stored) for stored in page], None
    if cloud and run is not None:
        period = _period(parts, run.run_id, query, page, cut="" if complete else "begin" if backwards else "end")
        try:
            events = _merged(page, events, _of_cloud(parts, run, period))
        except ProviderUnavailable as error:
            unread = str(error)
    if query.newest_first:
        events.reverse()
    return {"events": events, "complete": complete, "cloud_unread": unread}


def event_json(stored: StoredEvent) -> EventShown:
    event = stored.event
    return {
        "id": stored.id,
        "run_id": stored.run_id or None,
        "at": formats.time_text(stored.at),
        "generation": stored.generation,
        "attempt": stored.attempt,
        "kind": event.kind,
        "text": event.text,
        "actor": event.actor,
        "data": dict(event.data),
        "source": SUPERVISOR,
    }


def _period(parts: Parts, run_id: str, query: EventQuery, page: Sequence[StoredEvent], cut: str) -> _Period:
    """`cut`: at which end of the page events were left out; "" = none were."""
    after = _time_of(parts, run_id, query.after, -math.inf)
    until = math.inf if query.before is None else _time_of(parts, run_id, query.before, math.inf)
    if page and cut == "begin":
        after = max(after, page[0].at)
    if page and cut == "end":
        until = min(until, page[-1].at)
    return _Period(-math.inf if query.since is None else query.since, after, until)


def _time_of(parts: Parts, run_id: str, event_id: int, otherwise: float) -> float:
    """`otherwise`: where that event does not exist any more."""
    events = parts.store.events(run_id, event_id - 1, 1) if event_id > 0 else []
    return events[0].at if events and events[0].id == event_id else otherwise


def _merged(
    page: Sequence[StoredEvent], events: Sequence[EventShown], of_cloud: Sequence[tuple[float, EventShown]]
) -> list[EventShown]:
    """By time. Each of the two keeps its own order, also where our clock was set back. The cloud's times end with the
    millisecond: within one, what we did comes before what the cloud records of it."""
    own = [(stored.at, event) for stored, event in zip(page, events, strict=True)]
    return [event for _, event in heapq.merge(own, of_cloud, key=lambda row: int(row[0] * 1000 + 0.01))]


def _of_cloud(parts: Parts, run: Run, period: _Period) -> list[tuple[float, EventShown]]:
    """(time, event), oldest first. Raises ProviderUnavailable."""
    if parts.cells.get(run.provider) != run.cell:
        raise ProviderUnavailable("its machines belong to another supervisor")
    launches = _launches(parts, run)
    since = max(period.since, period.after, run.created_at - EARLY_S)
    try:
        history = parts.platform.history([launch.ref for launch in launches.values()], since) if launches else ()
    except NotSupported:
        return []
    return [(event.at, _cloud_event(event, run, launches)) for event in history if period.covers(event.at)]


def _cloud_event(event: PlatformEvent, run: Run, launches: Mapping[str, _Launch]) -> EventShown:
    """`id` is null: the next page starts after an id of ours."""
    launch = launches.get(event.machine_name)
    return {
        "id": None,
        "run_id": run.run_id,
        "at": formats.time_text(event.at),
        "generation": launch.generation if launch else run.generation,
        "attempt": launch.attempt if launch else 0,
        "kind": event.kind,
        "text": f"{event.machine_name}: {event.text}",
        "actor": event.actor,
        "data": {"operation_id": event.event_id, "machine": event.machine_name, "zone": event.zone},
        "source": CLOUD,
    }


def _launches(parts: Parts, run: Run) -> dict[str, _Launch]:
    """By machine name, the newest: of the attempts, and of the tries that brought no machine."""
    launches = {}
    for try_ in parts.store.tries(run.key):
        generation = parse_launch_id(try_.launch_id)[0]
        launches[try_.machine_name] = _Launch(try_.ref, generation, try_.attempt, try_.requested_at)
    for attempt in parts.store.attempts(run.key):
        launches[attempt.machine_name] = _Launch(attempt.ref, attempt.generation, attempt.number, attempt.requested_at)
    newest = sorted(launches.items(), key=lambda item: item[1].requested_at)[-MACHINES:]
    return dict(newest)

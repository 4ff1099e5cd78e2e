"""What the cloud itself recorded of a run's machines, in one time line with our own events.

Ours keep their order and their pages: the cloud's are laid between them by their time. A page gets those of the time
that it covers, so that pages that are read one after the other hold each of them once. The cloud's clock is not ours:
two lines close to each other may stand the wrong way round. What could not be read is said, and ours come all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.machines.machine import MachineRef
from supervisor.domain.run import Run
from supervisor.ports.history import StoredEvent
from supervisor.ports.platform import PlatformEvent
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json

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
        found = parts.platform.history([place.ref for place in places.values()], since) if places else ()
    except NotSupported:
        return list(shown), None
    except ProviderUnavailable as error:
        return list(shown), str(error)
    cloud = [event for event in found if page.covers(event.at)]
    return _laid_between(page.own, shown, cloud, run, places), None


def _laid_between(
    own: Sequence[StoredEvent],
    shown: Sequence[Json],
    cloud: Sequence[PlatformEvent],
    run: Run,
    places: Mapping[str, Place],
) -> list[Json]:
    """Ours stay in their order, even where our clock was set back."""
    found, waiting = list[Json](), [(event.at, _shown(event, run, places)) for event in cloud]
    for stored, told in zip(own, shown, strict=True):
        while waiting and waiting[0][0] < stored.at:
            found.append(waiting.pop(0)[1])
        found.append(told)
    return found + [told for _, told in waiting]


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
    found = {}
    for one in parts.store.tries(run.key):
        generation = parse_launch_id(one.launch_id)[0]
        found[one.machine_name] = Place(one.ref, generation, one.attempt, one.requested_at)
    for attempt in parts.store.attempts(run.key):
        found[attempt.machine_name] = Place(
            attempt.ref, attempt.generation, attempt.number, attempt.requested_at
        )
    newest = sorted(found.items(), key=lambda item: item[1].requested_at)[-MACHINES:]
    return dict(newest)

"""The world of one tick: settings, offers, what zones taught, how fresh each source is, and which breakers are open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import OfferKey, ZoneRecord
from supervisor.domain.observation import BEATS, MACHINES, World, sources_of
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers import breaker as breakers
from supervisor.lifecycle.offers.breaker import Breaker
from supervisor.ports.provider import Provider
from supervisor.reconciler.observing.observe import Snapshot


@dataclass
class Worldview:
    knobs: Knobs
    providers: Mapping[str, Provider]
    runs: Mapping[int, Run] = field(default_factory=dict)  # of the cell, as the tick holds them
    breakers: dict[str, Breaker] = field(init=False)  # source -> its own
    _sources: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._sources = sources_of(self.providers)
        self.breakers = {source: Breaker() for source in (BEATS, *self._sources.values())}

    def prove(self, snapshot: Snapshot) -> list[Event]:
        """Close each breaker whose source has just been proven fresh; the events that tell of it."""
        events = []
        for source in snapshot.fresh:
            before = self.breakers[source]
            read_at = snapshot.monotonic - snapshot.ages.get(source, 0.0)
            after = breakers.prove_fresh(before, read_at, snapshot.monotonic)
            self.breakers[source] = after
            if before.open and not after.open:
                events.append(
                    Event(EventKind.BREAKER_CLOSED, f"{source} are proven fresh again; ends are let through slowly.")
                )
        return events

    def world(self, snapshot: Snapshot, zones: Mapping[OfferKey, ZoneRecord], wall_ahead_s: float = 0.0) -> World:
        return World(
            knobs=self.knobs,
            offers={name: provider.offers() for name, provider in self.providers.items()},
            zones=zones,
            observing_since=snapshot.observing_since or {},
            fresh=snapshot.fresh,
            breakers_open=frozenset(name for name, one in self.breakers.items() if one.open),
            sources=self._sources,
            unread=snapshot.unread,
            wall_ahead_s=wall_ahead_s,
            irreplaceable=frozenset(name for name, provider in self.providers.items() if provider.traits.irreplaceable),
        )

    def admit(self, decisions: Sequence[Decision], active: int, monotonic: float) -> tuple[list[Decision], list[Event]]:
        """The decisions without those ends that the breakers do not let through, and what there is to tell. `active`:
        how many attempts live."""
        wanted = Counter(decision.inferred for decision in decisions if decision.inferred)
        if not wanted:
            return list(decisions), []
        events, left = [], {}
        for source, count in wanted.items():
            before = self.breakers[source]
            self.breakers[source], left[source] = breakers.admit(
                before, count, self._read_from(source, active), monotonic, self.knobs.poll_interval_s
            )
            if self.breakers[source].open and not before.open:
                text = f"{count} runs look dead at once by their {source}: nothing is ended until these are fresh."
                events.append(Event(EventKind.BREAKER_OPENED, text, data={"source": source, "count": count}))
        kept = []
        for decision in decisions:
            if decision.inferred:
                if left[decision.inferred] <= 0:
                    continue
                left[decision.inferred] -= 1
            kept.append(decision)
        return kept, events

    def _read_from(self, source: str, active: int) -> int:
        """How many of the live attempts are read from this source: a share is one of these."""
        if source in (BEATS, MACHINES):
            return active
        attempts = (run.live_attempt for run in self.runs.values())
        return sum(
            attempt is not None and self._sources.get(attempt.placement.provider) == source for attempt in attempts
        )

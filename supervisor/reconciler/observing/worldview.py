"""The world of one tick: settings, offers, what zones taught, how fresh each source is, and which breakers are open."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Meter, OfferKey, Outlook, ZoneRecord
from supervisor.domain.observation import BEATS, MACHINES, World, sources_of
from supervisor.domain.policies import Knobs
from supervisor.domain.profile import Profile
from supervisor.domain.run import Run
from supervisor.lifecycle.breaker import Breaker, admitted, prove_fresh
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.rungs.survival import CALLS_READ, outlooks
from supervisor.ports.provider import Provider, quotas_of
from supervisor.ports.store import Store, StoreDown
from supervisor.reconciler.observing.observe import Snapshot
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

OUTLOOK_EVERY_S = 120.0


@dataclass
class Outlooks:
    """What our calls of the past say about each offer. They are read from the attempts and tries every two minutes, so
    a restart forgets nothing. Where they cannot be read, the last ones count."""

    store: Store
    cell: str
    by_offer: Mapping[OfferKey, Outlook] = field(default_factory=dict)
    _read_at: float | None = None  # None = never in this leadership

    def restart(self) -> None:
        """A new leadership: they are read at once."""
        self._read_at = None

    def refresh(self, now: float) -> None:
        """At the start of a tick."""
        if self._read_at is not None and 0.0 <= now - self._read_at < OUTLOOK_EVERY_S:
            return
        self._read_at = now
        try:
            self.by_offer = outlooks(self.store.past_calls(self.cell, CALLS_READ), now)
        except StoreDown as error:
            extra = {telemetry.ACTION: "observe", telemetry.ERROR: str(error)}
            log.warning("own calls of the past not read", extra=extra)


class _Profiles(dict[tuple[str, str], Profile]):
    """By (provider, zone), as they are when a decision first needs them in this tick."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        super().__init__()
        self._providers = providers

    def __missing__(self, key: tuple[str, str]) -> Profile:
        name, zone = key
        profile = self[key] = self._providers[name].profile(zone)
        return profile


@dataclass
class Worldview:
    knobs: Knobs
    providers: Mapping[str, Provider]
    runs: Mapping[int, Run] = field(default_factory=dict)  # of the cell, as the tick holds them
    store_url: str = ""
    breakers: dict[str, Breaker] = field(init=False)  # source -> its own
    meters: Mapping[tuple[str, str], Meter] = field(init=False)  # by provider and zone
    _sources: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._sources = sources_of(self.providers)
        self.meters = {
            (name, zone): meter
            for name, provider in self.providers.items()
            if provider.meters is not None
            for zone, meter in provider.meters.by_zone.items()
        }
        self.breakers = {source: Breaker() for source in (BEATS, *self._sources.values())}

    def world(self, snapshot: Snapshot, zones: Mapping[OfferKey, ZoneRecord], wall_ahead_s: float = 0.0) -> World:
        return World(
            knobs=self.knobs,
            offers={name: provider.offers() for name, provider in self.providers.items()},
            zones=zones,
            observing_since=snapshot.observing_since,
            fresh=frozenset(snapshot.fresh),
            breakers_open=frozenset(source for source, breaker in self.breakers.items() if breaker.open),
            sources=self._sources,
            unread=snapshot.unread,
            wall_ahead_s=wall_ahead_s,
            irreplaceable=frozenset(name for name, provider in self.providers.items() if provider.traits.irreplaceable),
            memory_grows=frozenset(name for name, provider in self.providers.items() if provider.traits.memory_grows),
            races=frozenset(name for name, provider in self.providers.items() if provider.traits.races),
            warnings_s={name: each.traits.warning_s for name, each in self.providers.items() if each.traits.warning_s},
            profiles=_Profiles(self.providers),
            store_url=self.store_url,
            meters=self.meters,
            quotas=quotas_of(self.providers),
        )

    def prove(self, snapshot: Snapshot) -> list[Event]:
        """Close each breaker whose source has just been proven fresh; the events about it."""
        events = []
        for source, age_s in snapshot.fresh.items():
            before = self.breakers[source]
            after = self.breakers[source] = prove_fresh(before, snapshot.monotonic - age_s, snapshot.monotonic)
            if before.open and not after.open:
                text = f"{source} are proven fresh again. Runs may end by them again, a few in each tick."
                events.append(Event(EventKind.BREAKER_CLOSED, text))
        return events

    def admit(self, decisions: Sequence[Decision], monotonic: float) -> tuple[list[Decision], list[Event]]:
        """The decisions without those ends that the breakers do not admit, and the events about it."""
        if not any(decision.inferred for decision in decisions):
            return list(decisions), []
        poll_s = self.knobs.poll_interval_s
        changed, kept, events = admitted(self.breakers, decisions, self._attempts_read_from, monotonic, poll_s)
        self.breakers |= changed
        return kept, events

    def _attempts_read_from(self, source: str) -> int:
        """Live attempts: a breaker's share is one of these, without runs that wait for a machine."""
        attempts = [attempt for run in self.runs.values() if (attempt := run.live_attempt) is not None]
        if source in (BEATS, MACHINES):
            return len(attempts)
        return sum(self._sources.get(attempt.placement.provider) == source for attempt in attempts)

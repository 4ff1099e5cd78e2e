"""The application: store, adapters, services, loop and API, connected to each other from the settings.

`adapters` opens the providers and the object store; `bootstrap` opens and closes the whole.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.api.streams.listeners import Limits
from supervisor.api.wire.deps import Services, assemble, with_tokens, without_tokens
from supervisor.api.wire.rates import Rates
from supervisor.domain import machines
from supervisor.objectstores.counted import CountedStore
from supervisor.objectstores.mirror import Mirrors
from supervisor.objectstores.reading import open_objects
from supervisor.objectstores.relay import Homes, RelayedStore
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.objectstore import ReachableStore
from supervisor.ports.opening import OpenedProvider, Publish
from supervisor.ports.provider import Provider
from supervisor.ports.store import Store
from supervisor.reconciler import gauges
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.launches import Paces
from supervisor.reconciler.acting.sweeping import Sweeper
from supervisor.reconciler.delivering.announcer import LEASE as OUTBOX
from supervisor.reconciler.delivering.announcer import Announcer
from supervisor.reconciler.delivering.patrolling import Patrol, greet
from supervisor.reconciler.fleet import Fleet
from supervisor.reconciler.leader import Leader, Takeover
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.observing.observe import Observer, Pushed
from supervisor.reconciler.observing.readers import Readers
from supervisor.reconciler.observing.resting import Resting
from supervisor.reconciler.observing.sampling import Sampler, SampleWriter
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.rotation import Publishing, Rotation
from supervisor.reconciler.system_clock import SteadyClock, SystemClock
from supervisor.reconciler.tick import Tick
from supervisor.services.bases.working import BaseWork
from supervisor.services.doctor.state import in_bucket
from supervisor.services.machines.gpus import Gpus
from supervisor.services.parts import Defaults, Elsewhere, Parts
from supervisor.services.plan.forecasting import FirstForecasts
from supervisor.services.reading import scrape
from supervisor.services.reading.about import About, version
from supervisor.services.reading.health import LoopStatus, full_disk
from supervisor.services.reading.scrape import Readings
from supervisor.services.runs.dev import Dev
from supervisor.services.runs.handover import Handover
from supervisor.services.runs.heartbeat import BeatInbox, granted
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.telemetry.metrics import Reading
from supervisor.wiring import adapters as adapters_of
from supervisor.wiring import outlets
from supervisor.wiring.adapters import Adapters
from supervisor.wiring.platforms import Platforms
from supervisor.wiring.settings import digest
from supervisor.wiring.surroundings import door_of, preview_of, surroundings

RELAYED_URL = "(a folder on the host, which the launch makes)"
PAGE_PATIENCE_S = 1.0  # a page of a run waits so long for the object store


@dataclass(frozen=True, slots=True)
class Application:
    """`handover` None: this process alone serves the database."""

    services: Services
    loop: Loop
    handover: Handover | None
    adapters: Adapters
    announcer: Announcer
    mirrors: Mirrors

    def also_after_tick(self, act: Callable[[], None]) -> None:
        before = self.loop.after_tick

        def both() -> None:
            before()
            act()

        self.loop.after_tick = both

    def start(self) -> None:
        # After the first tick, which makes the server ready and needs the processor too. Earlier uses import by need.
        warm = threading.Thread(target=self.adapters.warm, name="warm", daemon=True)
        self.also_after_tick(lambda: None if warm.ident else warm.start())
        if self.handover is not None:
            self.handover.start()
        self.services.identity.start()
        leader = self.loop.leader
        greet(self.loop.store, leader.cell, leader.alone, version(), self.loop.clock.now())
        self.announcer.start()
        self.mirrors.start()
        self.loop.start()

    def stop(self) -> None:
        self.announcer.stop()
        self.mirrors.stop()  # first: the loop waits for its launches, and these may send files for hours
        self.loop.stop()
        if self.handover is not None:
            self.handover.stop()
        self.services.identity.stop()
        self.adapters.close()


@dataclass(frozen=True, slots=True)
class Wakes:
    """`loop` wakes the loop of this process, `everywhere` the loops of all processes on the database."""

    loop: Wake
    everywhere: Wake


def build(settings: Settings, store: Store, wakes: Wakes) -> Application:
    """Connect everything, but start nothing."""
    clock = SteadyClock(SystemClock(), settings.knobs.poll_interval_s)
    alone = settings.database_url.startswith("sqlite")  # the data folder's lock proves it
    adapters = adapters_of.choose(settings, store, clock)
    reachable = adapters.objects if isinstance(adapters.objects, ReachableStore) else None
    adapters = replace(adapters, objects=CountedStore(adapters.objects))
    parts = parts_of(settings, store, adapters, clock, wakes.everywhere)
    cell, owner = parts.cells[parts.own_provider], f"{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def elected() -> None:
        tick.restart()

    leader = Leader(store, cell, owner, clock, alone, elected, wakes.loop.set)
    inbox, handover = _beats(parts, leader)
    beats = handover or inbox
    paces = {name: _paces(settings, parts, opened) for name, opened in adapters.opened.items()}
    homes, mirrors = _relaying(parts, adapters, settings.data_dir / "transfers")
    observer = _observer(parts, beats.take, adapters.opened[adapters.namesake].scope, mirrors)
    publishers = {name: each.publish for name, each in adapters.opened.items() if each.publish is not None}
    tick = _tick(parts, wakes.loop, observer, inbox.forget, paces=paces, homes=homes, publishers=publishers)
    cells = cells_of(settings, adapters)
    takeover = Takeover(store, leader, tuple(name for name in cells.values() if name != cell), frozenset(cells))

    def after_tick() -> None:
        mirrors.wake()
        beats.set_active(tick.runs.values())
        beats.grant(granted(*observer.granted, parts.knobs))
        if takeover.run():
            tick.incidents.restart()  # those of the other cell count here now

    loop = Loop(
        tick,
        leader,
        store,
        clock,
        wakes.everywhere,
        parts.knobs.poll_interval_s,
        after_tick,
        None if alone else Leader(store, "retention", owner, clock, alone, lambda: None),
        Patrol(store, settings.alerts.patrol_every_s).run,
        _chores(parts),
    )
    outbox = leader if alone else Leader(store, OUTBOX, owner, clock, alone, lambda: None)
    others = {"retention": loop.housekeeper, "outbox": outbox}
    announcer = outlets.announcer_of(settings, store, clock, outbox, shared=alone)
    services = assemble(
        parts,
        inbox,
        lambda: _loop_status(loop, others),
        around=surroundings(settings, adapters, store.supervisor_id),
        dev=_dev(parts, adapters),
        live=lambda key: tick.runs.get(key) if leader.lease() is not None else None,
        beat_host=settings_of.public_host(settings),
        preview=preview_of(parts, paces),
    )
    cards = next((opened.cards for opened in adapters.opened.values() if opened.cards is not None), None)
    services = replace(services, gpus=Gpus(parts, cards), readings=_readings(settings, parts, loop, others))
    services = replace(services, door=door_of(settings, parts, adapters, inbox, paces=paces, reachable=reachable))
    return Application(_with_access(settings, services), loop, handover, adapters, announcer, mirrors)


def cells_of(settings: Settings, adapters: Adapters) -> Mapping[str, str]:
    """Provider -> the cell that a supervisor with only this provider would lead. The namesake's cell is that of all."""
    return {name: machines.cell(name, opened.scope, settings.store_url) for name, opened in adapters.opened.items()}


def _chores(parts: Parts) -> Callable[[float], None]:
    """One after the other, in one thread."""
    bases, forecasts = BaseWork(parts), FirstForecasts(parts)

    def work(now: float) -> None:
        bases.run(now)
        forecasts.run(now)

    return work


def _dev(parts: Parts, adapters: Adapters) -> Dev | None:
    disasters = {name: each.disasters for name, each in adapters.opened.items() if each.disasters is not None}
    return Dev(parts, disasters) if disasters else None


def _with_access(settings: Settings, services: Services) -> Services:
    """With tokens, or without, and with the limits of requests and streams."""
    access = settings.access
    rates = Rates(access.rate_per_s, access.rate_burst)
    return replace(
        without_tokens(services) if access.insecure_loopback else with_tokens(services, rates),
        streams=Limits(access.streams_max, access.streams_per_token),
        about=About(digest(settings), database=_kind_of_database(settings)),
        open_operations=open_operations(settings),
        exec_for_others=settings.access.exec_for_others,
    )


def open_operations(settings: Settings) -> frozenset[str]:
    """Names of operations that normally need a token, but not with these settings."""
    return frozenset({"show_document"} if settings.access.docs_public else ())


def parts_of(settings: Settings, store: Store, adapters: Adapters, clock: Clock, wake: Wake) -> Parts:
    opened = adapters.opened
    members: Mapping[str, Provider] = {name: each.provider for name, each in opened.items()}
    platforms = {name: each.platform for name, each in opened.items()}
    several, poll_interval_s = len(opened) > 1, settings.knobs.poll_interval_s

    def late_listing(took_s: float) -> None:
        if took_s > poll_interval_s:  # else the next tick reads it soon enough
            wake.set()

    return Parts(
        store=store,
        objects=adapters.objects,
        clock=clock,
        wake=wake,
        providers=Fleet(members, clock.monotonic, came_late=late_listing) if several else members,
        cells=dict.fromkeys(opened, cells_of(settings, adapters)[adapters.namesake]),
        knobs=replace(settings.knobs, supervisor_id=store.supervisor_id),
        platform=Platforms(platforms) if several else adapters.first.platform,
        defaults=Defaults(
            limits=settings.limits,
            stall=settings.stall,
            stop_grace_s=settings.machines.stop_grace_s,
            gpu_timeout_s={
                name: settings_of.gpu_timeout_s(settings, each.provider.traits) for name, each in opened.items()
            },
            store_usd_per_gib_month=settings.store_usd_per_gib_month,
            image=settings.machines.default_image,
        ),
        closing=adapters.closing,
        elsewhere=Elsewhere(
            open_objects,
            settings.data_dir / "imports",
            # The first platform with a named account.
            lambda: next((account for each in opened.values() if (account := each.account())), ""),
        ),
        courier=outlets.courier_of(settings, store),
        platforms=platforms,
        images={name: each.images for name, each in opened.items() if each.images is not None},
        bills={name: each.bills for name, each in opened.items() if each.bills is not None},
        impatient=adapters.impatient(PAGE_PATIENCE_S) if any(each.relay for each in opened.values()) else None,
    )


def _beats(parts: Parts, leader: Leader) -> tuple[BeatInbox, Handover | None]:
    inbox = BeatInbox(parts.store, parts.clock, parts.wake, parts.knobs.beat_push_s)
    if leader.alone:
        inbox.useful = lambda: leader.lease() is not None
        return inbox, None
    return inbox, Handover(parts.store, inbox, parts.clock, parts.wake, leader.lease)


def _paces(settings: Settings, parts: Parts, opened: OpenedProvider) -> Paces:
    return Paces(
        store_url=parts.objects.url if opened.relay is None else RELAYED_URL,
        server_file=opened.server_file,
        poll_interval_s=settings.knobs.poll_interval_s,
        results_save_max_mb=settings.machines.results_save_max_mb,
        **settings_of.agent_paces(settings, opened.provider.traits),
    )


def _kind_of_database(settings: Settings) -> str:
    return settings.database_url.partition(":")[0].partition("+")[0]


def _readings(
    settings: Settings, parts: Parts, loop: Loop, others: Mapping[str, Leader | None]
) -> Mapping[str, Readings]:
    """What a scrape of metrics reads, by part."""
    most, tick = settings.log.metrics_per_run, loop.tick

    def runs() -> Iterable[Reading]:
        leads = most > 0 and loop.leader.lease() is not None
        return scrape.runs(list(tick.runs.values()), most, parts.clock.now()) if leads else ()

    return {
        "build": lambda: scrape.build(parts, _kind_of_database(settings)),
        "loop": lambda: gauges.readings(loop, others),
        "runs": runs,
        "database": lambda: scrape.database(parts),
    }


def _observer(parts: Parts, pushed: Callable[[], Pushed], scope: str, mirrors: Mirrors) -> Observer:
    return Observer(
        parts.providers,
        parts.objects,
        pushed,
        parts.clock,
        parts.store.supervisor_id,
        parts.knobs.poll_interval_s,
        scope,
        mirrors.beats,
        Resting(parts.knobs.beat_store_s, parts.knobs.poll_interval_s) if in_bucket(parts.objects) else None,
    )


def _relaying(parts: Parts, adapters: Adapters, folder: Path) -> tuple[Homes, Mirrors]:
    """For the hosts that cannot reach our object store. `folder`: of transfers that were cut off."""
    made = {name: each.relay for name, each in adapters.opened.items() if each.relay is not None}
    relays = {name: relay(parts.store.supervisor_id) for name, relay in made.items()}
    mirrors = Mirrors(parts.objects, relays, folder, parts.clock.monotonic)
    return Homes(parts.objects, relays, folder), mirrors


def _tick(
    parts: Parts,
    wake: Wake,
    observer: Observer,
    forget: Callable[[str], None],
    *,
    paces: Mapping[str, Paces],
    homes: Homes,
    publishers: Mapping[str, Publish],
) -> Tick:
    """The loop reads and writes each baton where it lies. Services only read, and see the last state that is here."""
    store, clock, providers = parts.store, parts.clock, parts.providers
    objects = RelayedStore(parts.objects, homes.relays)
    own, outcomes = parts.own_provider, Outcomes()
    actor = Actor(
        store,
        objects,
        providers,
        outcomes,
        clock,
        wake,
        paces[own],
        forget,
        launch_threads=providers[own].traits.launches_at_once,
        paces_of=paces,
        homes=homes if homes.relays else None,  # else a launch would read the baton once more for nothing
        publishers=publishers,
    )
    return Tick(
        store=store,
        cell=parts.cells[own],
        observer=observer,
        worldview=Worldview(parts.knobs, providers, store_url=objects.url),
        readers=Readers(objects, providers),
        actor=actor,
        outcomes=outcomes,
        sampler=Sampler(store, SampleWriter(store)),
        sweeper=Sweeper(store.supervisor_id),
        rotation=Rotation(parts.knobs.poll_interval_s, parts.knobs.stop_poll_s),
        clock=clock,
        publishing=Publishing(publishers, parts.knobs.poll_interval_s) if publishers else None,
    )


def _loop_status(loop: Loop, others: Mapping[str, Leader | None]) -> LoopStatus:
    status, leads = loop.status, loop.leader.lease() is not None
    follows = not leads and not loop.leader.alone
    last = None if follows else status.last_tick_at
    held = {name: leader.lease() is not None for name, leader in others.items() if leader is not None}
    trouble = loop.tick.observer.store_trouble
    if status.error:
        trouble = full_disk(status.error) or "the database does not respond"
    return LoopStatus(
        None if last is None else loop.clock.monotonic() - last,
        leads,
        follows,
        status.last_tick_s,
        status.lag_s,
        status.ticks,
        {"cell": leads, **held},
        trouble if leads else "",
        *(gauges.listings(loop) if leads else ()),
    )

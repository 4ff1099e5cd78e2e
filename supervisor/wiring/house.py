"""The house: store, adapters, services, loop and doors, wired to each other from settings, but not started.

Which provider and which object store there are is chosen in `adapters`; who opens and closes it all is `bootstrap`.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from supervisor.api.streams.listeners import Limits
from supervisor.api.wire.deps import Services, assemble, with_tokens, without_tokens
from supervisor.api.wire.rates import Rates
from supervisor.domain import machines
from supervisor.domain.attempt import Try
from supervisor.domain.run import Run
from supervisor.objectstores.counted import CountedStore
from supervisor.objectstores.reading import open_objects
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.opening import OpenedProvider
from supervisor.ports.platform import Platform
from supervisor.ports.provider import Provider
from supervisor.ports.store import Store
from supervisor.reconciler import gauges
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.jobs import Paces, launch_request
from supervisor.reconciler.acting.outcomes import Outcomes
from supervisor.reconciler.acting.sweeping import Sweeper
from supervisor.reconciler.delivering.announcer import LEASE as OUTBOX
from supervisor.reconciler.delivering.announcer import Announcer
from supervisor.reconciler.delivering.patrolling import Patrol, greet
from supervisor.reconciler.fleet import Fleet
from supervisor.reconciler.leader import Leader, Takeover
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.observing.observe import Observer
from supervisor.reconciler.observing.readers import Readers
from supervisor.reconciler.observing.sampling import Rotation, Sampler
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.reconciler.system_clock import SteadyClock, SystemClock
from supervisor.reconciler.tick import Tick
from supervisor.services.machines.machines import Gpus
from supervisor.services.parts import Defaults, Elsewhere, Parts
from supervisor.services.plan.plan import Preview
from supervisor.services.reading import health
from supervisor.services.reading.health import About, LoopStatus, Readings, full_disk, version
from supervisor.services.runs.dev import Dev
from supervisor.services.runs.handover import Handover
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.runs.policy import Spec
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.telemetry.metrics import Reading
from supervisor.wiring import adapters as adapters_of
from supervisor.wiring import outlets
from supervisor.wiring.adapters import Adapters
from supervisor.wiring.platforms import Platforms
from supervisor.wiring.settings import digest
from supervisor.wiring.surroundings import surroundings

SHOWN_NONCE = "(made at the launch)"


@dataclass(frozen=True, slots=True)
class House:
    """`handover` is None where one process alone serves the database."""

    services: Services
    loop: Loop
    handover: Handover | None
    adapters: Adapters
    announcer: Announcer

    def also_after_tick(self, act: Callable[[], None]) -> None:
        before = self.loop.after_tick

        def both() -> None:
            before()
            act()

        self.loop.after_tick = both

    def start(self) -> None:
        # After the first tick, which makes us ready and wants the processor too. What is needed earlier loads itself.
        warm = threading.Thread(target=self.adapters.warm, name="warm", daemon=True)
        self.also_after_tick(lambda: None if warm.ident else warm.start())
        if self.handover is not None:
            self.handover.start()
        self.services.identity.start()
        leader = self.loop.leader
        greet(self.loop.store, leader.cell, leader.alone, version(), self.loop.clock.now())
        self.announcer.start()
        self.loop.start()

    def stop(self) -> None:
        self.announcer.stop()
        self.loop.stop()
        if self.handover is not None:
            self.handover.stop()
        self.services.identity.stop()
        self.adapters.close()


@dataclass(frozen=True, slots=True)
class Wakes:
    """`loop` wakes the loop of this process, `everywhere` those of all that share the database."""

    loop: Wake
    everywhere: Wake


def build(settings: Settings, store: Store, wakes: Wakes) -> House:
    """Everything that lives behind the doors, wired but not started."""
    clock = SteadyClock(SystemClock(), settings.poll_interval_s)
    alone = settings.database_url.startswith("sqlite")  # the data folder's lock proves it
    adapters = adapters_of.choose(settings, store, clock)
    adapters = replace(adapters, objects=CountedStore(adapters.objects))
    cells = cells_of(settings, adapters)
    cell = cells[adapters.namesake]
    parts = parts_of(settings, store, adapters, clock, wakes.everywhere, cell)

    owner = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def elected() -> None:
        tick.begin_anew()

    leader = Leader(store, cell, owner, clock, alone, elected, wakes.loop.set)
    inbox, handover = _beats(settings, parts, leader)
    beats = handover or inbox
    observer = _observer(parts, beats, adapters.opened[adapters.namesake].scope)
    paces = {name: _paces(settings, parts, opened) for name, opened in adapters.opened.items()}
    tick = _tick(parts, wakes.loop, cell, observer, inbox, paces)
    other_cells = tuple(name for name in cells.values() if name != cell)
    takeover = Takeover(store, leader, other_cells, frozenset(cells))
    loop = Loop(
        tick,
        leader,
        store,
        clock,
        wakes.everywhere,
        parts.knobs.poll_interval_s,
        lambda: _after_look(beats, tick, takeover),
        None if alone else Leader(store, "retention", owner, clock, alone, lambda: None),
        Patrol(store, settings.patrol_every_s).look,
    )
    outbox = leader if alone else Leader(store, OUTBOX, owner, clock, alone, lambda: None)
    announcer = outlets.announcer_of(settings, store, clock, outbox, shared=alone)
    others = {"retention": loop.housekeeper, "outbox": outbox}
    services = assemble(
        parts,
        inbox,
        lambda: _loop_status(loop, others),
        around=surroundings(settings, adapters, store.supervisor_id),
        dev=_dev(parts, adapters),
        live=lambda key: tick.runs.get(key) if leader.lease() is not None else None,
        beat_host=settings_of.public_host(settings),
        preview=_preview(parts, paces),
    )
    cards = next((one.cards for one in adapters.opened.values() if one.cards is not None), None)
    services = replace(services, gpus=Gpus(parts, cards))
    asked = replace(_asked(settings, services), readings=_readings(settings, parts, loop, others))
    return House(asked, loop, handover, adapters, announcer)


def cells_of(settings: Settings, adapters: Adapters) -> Mapping[str, str]:
    """Provider -> the cell that a supervisor with this provider alone would lead. The namesake's is that of all."""
    return {name: machines.cell(name, opened.scope, settings.store_url) for name, opened in adapters.opened.items()}


def _after_look(beats: BeatInbox | Handover, tick: Tick, takeover: Takeover) -> None:
    beats.looked(tick.runs.values())
    takeover.look()


def _dev(parts: Parts, adapters: Adapters) -> Dev | None:
    struck = {name: one.disasters for name, one in adapters.opened.items() if one.disasters is not None}
    return Dev(parts, struck) if struck else None


def _asked(settings: Settings, services: Services) -> Services:
    """With who is asked who he is, and how much of everything there may be."""
    rates = Rates(settings.rate_per_s, settings.rate_burst)
    asked = without_tokens(services) if settings.insecure_loopback else with_tokens(services, rates)
    streams = Limits(settings.streams_max, settings.streams_per_token)
    about = About(digest(settings), database=_kind_of_database(settings))
    return replace(asked, streams=streams, about=about, open_operations=open_operations(settings))


def open_operations(settings: Settings) -> frozenset[str]:
    """Names of the operations that need no token under these settings, although they need one by themselves."""
    return frozenset({"show_document"} if settings.docs_public else ())


def parts_of(settings: Settings, store: Store, adapters: Adapters, clock: Clock, wake: Wake, cell: str) -> Parts:
    knobs = settings_of.knobs(settings, store.supervisor_id)
    defaults = Defaults(
        settings_of.limit_defaults(settings),
        settings_of.stall_defaults(settings),
        settings.stop_grace_s,
        {name: settings_of.gpu_timeout_s(settings, opened.provider.traits) for name, opened in adapters.opened.items()},
        settings.store_usd_per_gib_month,
        settings.default_image,
    )
    return Parts(
        store,
        adapters.objects,
        clock,
        wake,
        _providers(adapters, clock, wake, knobs.poll_interval_s),
        dict.fromkeys(adapters.opened, cell),
        knobs,
        _platform(adapters),
        defaults,
        adapters.closing,
        Elsewhere(open_objects, settings.data_dir / "imports", lambda: _account(adapters)),
        outlets.courier_of(settings, store),
        {name: opened.platform for name, opened in adapters.opened.items()},
    )


def _providers(adapters: Adapters, clock: Clock, wake: Wake, poll_interval_s: float) -> Mapping[str, Provider]:
    members = {name: opened.provider for name, opened in adapters.opened.items()}

    def came_late(took_s: float) -> None:
        if took_s > poll_interval_s:  # else the next look takes it soon enough
            wake.set()

    return Fleet(members, clock.monotonic, came_late=came_late) if len(members) > 1 else members


def _platform(adapters: Adapters) -> Platform:
    several = {name: opened.platform for name, opened in adapters.opened.items()}
    return Platforms(several) if len(several) > 1 else adapters.first.platform


def _account(adapters: Adapters) -> str:
    """Who asks the first platform that knows anybody by name."""
    return next((name for opened in adapters.opened.values() if (name := opened.account())), "")


def _observer(parts: Parts, beats: BeatInbox | Handover, scope: str) -> Observer:
    supervisor_id, every_s = parts.store.supervisor_id, parts.knobs.poll_interval_s
    return Observer(parts.providers, parts.objects, beats.take, parts.clock, supervisor_id, every_s, scope)


def _beats(settings: Settings, parts: Parts, leader: Leader) -> tuple[BeatInbox, Handover | None]:
    inbox = BeatInbox(parts.store, parts.clock, parts.wake, settings.beat_push_s)
    if leader.alone:
        inbox.useful = lambda: leader.lease() is not None
        return inbox, None
    return inbox, Handover(parts.store, inbox, parts.clock, parts.wake, leader.lease)


def _paces(settings: Settings, parts: Parts, opened: OpenedProvider) -> Paces:
    return Paces(
        store_url=parts.objects.url,
        server_file=opened.server_file,
        poll_interval_s=settings.poll_interval_s,
        results_save_max_mb=settings.results_save_max_mb,
        **settings_of.agent_paces(settings, opened.provider.traits),
    )


def _preview(parts: Parts, paces: Mapping[str, Paces]) -> Preview:
    """What a launch would send, but for what the launch itself makes: its nonce."""

    def preview(run: Run, try_: Try, spec: Spec) -> Mapping[str, object]:
        request = launch_request(
            run,
            try_,
            spec,
            nonce=SHOWN_NONCE,
            supervisor_id=parts.store.supervisor_id,
            paces=paces[try_.placement.provider],
        )
        return parts.platform.preview(request)

    return preview


def _kind_of_database(settings: Settings) -> str:
    return settings.database_url.partition(":")[0].partition("+")[0]


def _readings(
    settings: Settings, parts: Parts, loop: Loop, others: Mapping[str, Leader | None]
) -> Mapping[str, Readings]:
    """What a scrape reads, by part."""
    most, tick = settings.metrics_per_run, loop.tick

    def runs() -> Iterable[Reading]:
        leads = most > 0 and loop.leader.lease() is not None
        return health.runs(list(tick.runs.values()), most, parts.clock.now()) if leads else ()

    return {
        "build": lambda: health.build(parts, _kind_of_database(settings)),
        "loop": lambda: gauges.readings(loop, others),
        "runs": runs,
        "database": lambda: health.database(parts),
    }


def _tick(
    parts: Parts, wake: Wake, cell: str, observer: Observer, inbox: BeatInbox, paces: Mapping[str, Paces]
) -> Tick:
    store, objects, clock, providers = parts.store, parts.objects, parts.clock, parts.providers
    own = parts.own_provider
    outcomes = Outcomes()
    return Tick(
        store=store,
        cell=cell,
        observer=observer,
        worldview=Worldview(parts.knobs, providers),
        readers=Readers(objects, providers),
        actor=Actor(
            store,
            objects,
            providers,
            outcomes,
            clock,
            wake,
            paces[own],
            inbox.forget,
            launch_threads=providers[own].traits.launches_at_once,
            paces_of=paces,
        ),
        outcomes=outcomes,
        sampler=Sampler(store),
        sweeper=Sweeper(store.supervisor_id),
        rotation=Rotation(parts.knobs.poll_interval_s, parts.knobs.stop_poll_s),
        clock=clock,
    )


def _loop_status(loop: Loop, others: Mapping[str, Leader | None]) -> LoopStatus:
    last = loop.status.last_tick_at
    leads = loop.leader.lease() is not None
    follows = not leads and not loop.leader.alone
    age_s = None if last is None or follows else loop.clock.monotonic() - last
    held = {name: leader.lease() is not None for name, leader in others.items() if leader is not None}
    status, leases = loop.status, {"cell": leads, **held}
    trouble = loop.tick.observer.store_trouble
    if status.error:
        trouble = full_disk(status.error) or "the database does not answer"
    return LoopStatus(
        age_s,
        leads,
        follows,
        status.last_tick_s,
        status.lag_s,
        status.ticks,
        leases,
        trouble if leads else "",
        *(gauges.listings(loop) if leads else ()),
    )

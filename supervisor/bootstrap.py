"""The composition root: it builds the house from settings (store, adapters, services, loop, doors).

It opens everything in an order in which a failure leaves nothing behind, and closes it in the reverse order, with
every training untouched. Which provider and which object store there are is chosen in `adapters`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from supervisor import adapters as adapters_of
from supervisor import settings as settings_of
from supervisor import telemetry
from supervisor.adapters import Adapters
from supervisor.api import server
from supervisor.api.deps import Services, assemble
from supervisor.api.server_file import ServerFile
from supervisor.domain import cells
from supervisor.notifiers.log import LogNotifier
from supervisor.ports.store import Store
from supervisor.ports.wake import Wake
from supervisor.reconciler.act import Actor
from supervisor.reconciler.event_wake import EventWake
from supervisor.reconciler.jobs import Paces
from supervisor.reconciler.leader import Leader
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.observe import Observer
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.readers import Readers
from supervisor.reconciler.rotation import Rotation
from supervisor.reconciler.sampling import Sampler
from supervisor.reconciler.sweeping import Sweeper
from supervisor.reconciler.system_clock import SystemClock
from supervisor.reconciler.tick import Tick
from supervisor.reconciler.worldview import Worldview
from supervisor.services.dev import Dev
from supervisor.services.doctor import Surroundings
from supervisor.services.handover import Handover
from supervisor.services.health import LoopStatus
from supervisor.services.heartbeat import BeatInbox
from supervisor.services.parts import Defaults, Parts
from supervisor.settings import Settings
from supervisor.storage import schema
from supervisor.storage import store as storage
from supervisor.storage.folder_lock import FolderLock

log = logging.getLogger(__name__)

# A computing tick holds the interpreter lock; the short switch keeps the API's answers quick beside it.
SWITCH_INTERVAL_S = 0.0002
# Our values hold no cycles, but ten thousand runs are a million objects, and a full pass of the collector over them
# stops every thread for 0.2 s. At Python's own thresholds a tick made that happen; it took a quarter of its time.
COLLECT_AFTER = (20_000, 50, 100)


def serve(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit code of the process. Raises SpotError where it cannot start."""
    tune_interpreter()
    with contextlib.ExitStack() as opened:
        opened.callback(log.info, "closed", extra={telemetry.ACTION: "serve"})
        lock = FolderLock(settings.data_dir)
        lock.take()
        opened.callback(lock.give_back)
        listener = server.bind(settings.host, settings.port)
        opened.callback(listener.close)
        store = storage.open_store(settings.database_url, migrate=True)
        opened.callback(store.close)
        house = build(settings, store, opened.enter_context(_wakes(store)))
        address = server.url_of(listener)
        told = opened.enter_context(ServerFile(settings.data_dir / "server.json", address))
        house.also_after_tick(told.keep)
        opened.callback(house.stop)
        house.start()
        server.run(house.services, listener, lambda: _tell_ready(address, settings))
    return 0


def tune_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECT_AFTER)


def migrate(settings: Settings) -> None:
    """Bring the database to this version's schema. Raises SpotError when the data folder is being served."""
    lock = FolderLock(settings.data_dir)
    lock.take()
    try:
        schema.migrate(settings.database_url)
    finally:
        lock.give_back()


@dataclass(frozen=True, slots=True)
class House:
    """`handover` is None where one process alone serves the database."""

    services: Services
    loop: Loop
    handover: Handover | None
    adapters: Adapters

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
        self.loop.start()

    def stop(self) -> None:
        self.loop.stop()
        if self.handover is not None:
            self.handover.stop()
        self.adapters.close()


@dataclass(frozen=True, slots=True)
class Wakes:
    """`loop` wakes the loop of this process, `everywhere` those of all that share the database."""

    loop: Wake
    everywhere: Wake


def build(settings: Settings, store: Store, wakes: Wakes) -> House:
    """Everything that lives behind the doors, wired but not started."""
    clock = SystemClock()
    alone = settings.database_url.startswith("sqlite")  # the data folder's lock proves it
    adapters = adapters_of.choose(settings, store, clock)
    cell = cells.cell(settings.provider, adapters.scope, settings.store_url)
    parts = _parts(settings, store, adapters, clock, wakes.everywhere, cell)

    owner = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def elected() -> None:
        tick.begin_anew()

    leader = Leader(store, cell, owner, clock, alone, elected, wakes.loop.set)
    inbox, handover = _beats(settings, parts, leader)
    beats = handover or inbox
    observer = Observer(
        parts.providers,
        parts.objects,
        beats.take,
        clock,
        store.supervisor_id,
        parts.knobs.poll_interval_s,
        adapters.scope,
    )
    tick = _tick(settings, parts, adapters, wakes.loop, cell, observer, inbox)
    loop = Loop(
        tick,
        leader,
        store,
        {"log": LogNotifier()},
        clock,
        wakes.everywhere,
        parts.knobs.poll_interval_s,
        lambda: beats.looked(tick.runs.values()),
        None if alone else Leader(store, "announcements and retention", owner, clock, alone, lambda: None),
    )
    services = assemble(
        parts,
        inbox,
        lambda: _loop_status(loop),
        _surroundings(settings, adapters),
        Dev(parts, adapters.disasters) if adapters.disasters is not None else None,
        lambda key: tick.runs.get(key) if leader.lease() is not None else None,
        settings_of.public_host(settings),
    )
    return House(services, loop, handover, adapters)


@contextlib.contextmanager
def _wakes(store: storage.SqlStore) -> Iterator[Wakes]:
    here = EventWake()
    if store.database.dialect == "sqlite":
        yield Wakes(here, here)
        return
    from supervisor.storage.notify_wake import NotifyWake

    everywhere = NotifyWake(store.database, here)
    everywhere.start()
    try:
        yield Wakes(here, everywhere)
    finally:
        everywhere.close()


def _parts(
    settings: Settings, store: Store, adapters: Adapters, clock: SystemClock, wake: Wake, cell: str
) -> Parts:
    name = settings.provider
    knobs = settings_of.knobs(settings, store.supervisor_id)
    defaults = Defaults(
        settings_of.limit_defaults(settings),
        settings_of.stall_defaults(settings),
        settings.stop_grace_s,
        {name: settings_of.gpu_timeout_s(settings, name)},
        settings.store_usd_per_gib_month,
        settings.default_image,
    )
    providers, named = {name: adapters.provider}, {name: cell}
    return Parts(store, adapters.objects, clock, wake, providers, named, knobs, defaults, adapters.closing)


def _surroundings(settings: Settings, adapters: Adapters) -> Surroundings:
    promised = max(settings.local_gpus.values(), default=0) if adapters.disasters is not None else 0
    return Surroundings(
        settings.data_dir,
        adapters.agent,
        adapters.cards,
        promised,
        adapters.checks,
        settings.log_chunk_s,
        settings.public_url != "" or adapters.server_file is not None,
    )


def _beats(settings: Settings, parts: Parts, leader: Leader) -> tuple[BeatInbox, Handover | None]:
    store, clock, push_s = parts.store, parts.clock, settings.beat_push_s
    if leader.alone:
        inbox = BeatInbox(store, clock, parts.wake, push_s)
        inbox.useful = lambda: leader.lease() is not None
        return inbox, None
    urgent = EventWake()
    inbox = BeatInbox(store, clock, urgent, push_s)
    return inbox, Handover(store, inbox, clock, parts.wake, urgent, leader.lease)


def _tick(
    settings: Settings,
    parts: Parts,
    adapters: Adapters,
    wake: Wake,
    cell: str,
    observer: Observer,
    inbox: BeatInbox,
) -> Tick:
    store, objects, clock, providers = parts.store, parts.objects, parts.clock, dict(parts.providers)
    outcomes = Outcomes()
    paces = Paces(
        store_url=objects.url,
        server_file=adapters.server_file,
        poll_interval_s=settings.poll_interval_s,
        **settings_of.agent_paces(settings, settings.provider),
    )
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
            paces,
            inbox.forget,
            launch_threads=adapters.launch_threads,
        ),
        outcomes=outcomes,
        sampler=Sampler(store),
        sweeper=Sweeper(store.supervisor_id),
        rotation=Rotation(parts.knobs.poll_interval_s, parts.knobs.stop_poll_s),
        clock=clock,
    )


def _loop_status(loop: Loop) -> LoopStatus:
    last = loop.status.last_tick_at
    leads = loop.leader.lease() is not None
    follows = not leads and not loop.leader.alone
    age_s = None if last is None or follows else loop.clock.monotonic() - last
    return LoopStatus(age_s, leader=leads, follower=follows)


def _tell_ready(address: str, settings: Settings) -> None:
    log.info("serving", extra={telemetry.ACTION: "serve", "url": address, "data_dir": str(settings.data_dir)})

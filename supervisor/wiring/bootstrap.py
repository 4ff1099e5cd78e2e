"""The composition root of a process: what `spot serve` and `spot migrate` open, in which order, and close again.

It opens everything in an order in which a failure leaves nothing behind, and closes it in the reverse order, with
every training untouched. What stands behind the doors is built in `house`.

What systemd is told of this process: it serves, its loop ticks, it ends (sd_notify(3)).

One datagram each to the socket that NOTIFY_SOCKET names; without it nobody asked and nothing is sent. The watchdog is
fed from the thread that answers requests, and only while the scheduler loop ticks too: what hangs in either of them is
started anew. A database that is away stops neither.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from supervisor.api import server
from supervisor.api.server import ServerFile
from supervisor.dashboard import app as dashboard
from supervisor.domain.errors import SettingsRefused, Unavailable
from supervisor.domain.machines import Offer
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.reconciler.system_clock import EventWake
from supervisor.services.access.data_folder import Ownership, ensure_admin_token
from supervisor.services.reading.health import ticks
from supervisor.settings import access as settings_access
from supervisor.settings.loading import Settings
from supervisor.settings.serving_process import began
from supervisor.storage import store as storage
from supervisor.storage.engine import schema
from supervisor.storage.engine.data_folder import FolderLock, database_file, make_private, shown
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import redaction
from supervisor.wiring import adapters
from supervisor.wiring.house import House, Wakes, build
from supervisor.wiring.outlets import CHANNELS

FEED_SHARE = 0.4  # of the watchdog's time: one datagram may be lost


class ServiceManager:
    """`fresh()`: does the loop tick as it should? Every method may be called wherever the process was started."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        monotonic: Callable[[], float] = time.monotonic,
        pid: int | None = None,
    ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._monotonic = monotonic
        self._every_s = FEED_SHARE * _watchdog_s(environ, os.getpid() if pid is None else pid)
        self._fed_at = -float("inf")

    def ready(self, url: str) -> None:
        self._send(f"READY=1\nSTATUS=Serving at {url}\nMAINPID={os.getpid()}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=Closing; trainings go on")

    def feed(self, fresh: Callable[[], bool]) -> None:
        """To be called again and again; sends as often as the watchdog needs it."""
        now = self._monotonic()
        if self._every_s and now - self._fed_at >= self._every_s and fresh():
            self._fed_at = now
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        # "@" stands for the zero byte that an abstract address begins with.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # Nobody listens any more, or its queue is full: that must not end a supervisor.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), address)


def _watchdog_s(environ: Mapping[str, str], pid: int) -> float:
    """0 = none is wanted, or of another process (sd_watchdog_enabled(3))."""
    usec, wanted = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
    return int(usec) / 1e6 if usec.isdigit() and wanted == str(pid) else 0.0


log = logging.getLogger(__name__)

# A computing tick holds the interpreter lock; the short switch keeps the API's answers quick beside it.
SWITCH_INTERVAL_S = 0.0002
# Our values hold no cycles, but ten thousand runs are a million objects, and a full pass of the collector over them
# stops every thread for 0.2 s. At Python's own thresholds a tick made that happen; it took a quarter of its time.
COLLECT_AFTER = (20_000, 50, 100)


def serve(settings: Settings, start_over: bool = False) -> int:
    """Run until SIGTERM or SIGINT; the exit code of the process. `start_over`: a new database may be made beside a
    folder or store of another supervisor. Raises SpotError where it cannot start."""
    tune_interpreter()
    redaction.hide(settings.alert_url, settings.alert_secret)
    with contextlib.ExitStack() as opened:
        opened.callback(log.info, "closed", extra={telemetry.ACTION: "serve"})
        with _in_one_sentence(settings):
            listener, house = _open(settings, start_over, opened)
        address = server.url_of(listener)
        manager = ServiceManager()
        opened.callback(manager.stopping)
        server.run(
            house.services,
            listener,
            lambda: _tell_ready(address, settings, house, manager),
            answering=lambda: manager.feed(lambda: ticks(house.services.loop(), settings.poll_interval_s)),
            hosts=settings_access.own_names(settings),
            add=dashboard.mount,
        )
    return 0


def _open(settings: Settings, start_over: bool, opened: contextlib.ExitStack) -> tuple[socket.socket, House]:
    """Everything that a start may fail at. Raises SpotError, and what `_in_one_sentence` makes one of."""
    lock = FolderLock(settings.data_dir)
    lock.take()
    opened.callback(lock.give_back)
    make_private(settings.data_dir, database_file(settings.database_url))
    listener = server.bind(settings.host, settings.port)
    opened.callback(listener.close)
    ownership = Ownership(settings.data_dir, lambda: adapters.stored_objects(settings), start_over)
    store = storage.open_store(settings.database_url, True, CHANNELS, ownership.allow_new)
    opened.callback(store.close)
    ownership.keep(store.supervisor_id)
    if not settings.insecure_loopback:
        ensure_admin_token(store, settings.data_dir, time.time())
    house = build(settings, store, opened.enter_context(_wakes(store)))
    told = opened.enter_context(ServerFile(settings.data_dir / "server.json", server.url_of(listener)))
    began(settings.data_dir)
    house.also_after_tick(told.keep)
    opened.callback(house.stop)
    house.start()
    return listener, house


@contextlib.contextmanager
def _in_one_sentence(settings: Settings) -> Iterator[None]:
    """What is away or in the way at a start is one sentence with the command that helps. A mistake of ours still shows
    where it happened."""
    try:
        yield
    except StoreDown as error:
        place = shown(settings.database_url)
        raise Unavailable(
            f"The database {place} cannot be used: {error}. No training is touched by this. `spot doctor --here` looks "
            "again; a damaged file is restored from a backup (docs/operations.md#backup-and-restore).",
            {"database": place},
        ) from None
    except (StoreUnavailable, ProviderUnavailable) as error:
        raise Unavailable(f"{error}. Nothing was started; `spot doctor --here` looks again.") from None
    except OSError as error:
        path = error.filename or settings.data_dir
        raise SettingsRefused(
            f"{path}: {error.strerror or error}. Nothing was started; take away what is in the way, or name another "
            "data folder (--data-dir).",
            {"path": str(path)},
        ) from None


def tune_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECT_AFTER)


def migrate(settings: Settings) -> None:
    """Bring the database to this version's schema. Raises SpotError when the data folder is being served."""
    lock = FolderLock(settings.data_dir)
    lock.take()
    try:
        with _in_one_sentence(settings):
            make_private(settings.data_dir, database_file(settings.database_url))
            schema.migrate(settings.database_url)
    finally:
        lock.give_back()


def backup(settings: Settings, target: Path) -> int:
    """A copy of the database, whether or not somebody serves it; its bytes. Raises SettingsRefused, Unavailable,
    OSError."""
    from supervisor.storage.engine.schema import copy_to

    try:
        return copy_to(settings.database_url, target)
    except StoreDown as error:
        raise Unavailable(str(error)) from None


def examine(settings: Settings, alert_test: bool, deadline_s: float) -> dict[str, Any]:
    """The doctor's report on these settings, whether or not somebody serves them; nothing is locked or changed."""
    from supervisor.wiring.examining import examine as examine_alone

    return examine_alone(settings, alert_test, deadline_s)


def trial_offers(settings: Settings) -> tuple[Offer, ...]:
    """Where a trial may rent its machine, and for how much. Raises SettingsRefused."""
    from supervisor.wiring import trial_cloud

    return trial_cloud.offers(settings)


def remove_trial(settings: Settings, say: Callable[[str], None]) -> tuple[int, int]:
    """(machines, objects) of a trial that were still there and are gone now. Raises SpotError."""
    from supervisor.wiring import trial_cloud

    with _in_one_sentence(settings):
        return trial_cloud.remove(settings, say)


@contextlib.contextmanager
def _wakes(store: storage.SqlStore) -> Iterator[Wakes]:
    here = EventWake()
    if store.database.dialect == "sqlite":
        yield Wakes(here, here)
        return
    from supervisor.storage.engine.notify_wake import NotifyWake

    everywhere = NotifyWake(store.database, here, store.written_elsewhere)
    store.history.wake_others = everywhere.notify_events
    everywhere.start()
    try:
        yield Wakes(here, everywhere)
    finally:
        everywhere.close()


def _tell_ready(address: str, settings: Settings, house: House, manager: ServiceManager) -> None:
    manager.ready(address)
    opened = house.adapters.opened.values()
    rented = [each.platform.account_so_far().name for each in opened if each.provider.traits.rented]
    where = {"project": ", ".join(rented)} if rented else {}
    pages = f"{address}/ui/runs"
    log.info(
        "serving",
        extra={
            telemetry.ACTION: "serve", "url": address, "dashboard": pages, "data_dir": str(settings.data_dir), **where,
        },
    )  # fmt: skip

"""A process of the composition root: what `spot serve`, `spot migrate` and `spot backup` open, in order, and close.

Everything is opened in an order in which a failure leaves nothing behind, and closed in the reverse order; trainings
are not touched. `application` connects the parts.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from supervisor.api import server
from supervisor.api.server import ServerFile
from supervisor.dashboard import mounting
from supervisor.domain.errors import SettingsRefused, Unavailable
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.reconciler.system_clock import EventWake
from supervisor.services.access.data_folder import Ownership, ensure_admin_token
from supervisor.services.reading.health import ticks
from supervisor.settings import access as settings_access
from supervisor.settings import credentials
from supervisor.settings.loading import Settings
from supervisor.settings.serving_process import ServiceManager, began
from supervisor.storage import store as storage
from supervisor.storage.engine import schema
from supervisor.storage.engine.data_folder import FolderLock, database_file, make_private, shown
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import redaction
from supervisor.wiring import adapters
from supervisor.wiring.application import Application, Wakes, build
from supervisor.wiring.outlets import CHANNELS

log = logging.getLogger(__name__)

# A computing tick holds the interpreter lock; a short switch interval keeps the API responsive beside it.
SWITCH_INTERVAL_S = 0.0002
# Our values have no cycles, but 10,000 runs are a million objects, and a full pass of the garbage collector over them
# stops every thread for 0.2 s. With Python's own thresholds every tick caused one, a quarter of its time.
COLLECT_AFTER = (20_000, 50, 100)


def serve(settings: Settings, start_over: bool = False) -> int:
    """Run until SIGTERM or SIGINT; the exit code of the process. `start_over`: allow a new database beside a folder or
    store of another supervisor. Raises SpotError if it cannot start."""
    tune_interpreter()
    redaction.hide(settings.alerts.alert_url, settings.alerts.alert_secret)
    with contextlib.ExitStack() as opened:
        opened.callback(log.info, "closed", extra={telemetry.ACTION: "serve"})
        with start_errors(settings):
            listener, application = _open(settings, start_over, opened)
        address = server.url_of(listener)
        manager = ServiceManager()
        opened.callback(manager.stopping)
        server.run(
            application.services,
            listener,
            lambda: _announce_ready(address, settings, application, manager),
            answering=lambda: manager.feed(lambda: ticks(application.services.loop(), settings.knobs.poll_interval_s)),
            hosts=settings_access.own_names(settings.access),
            add=mounting.mount,
        )
    return 0


def _open(settings: Settings, start_over: bool, opened: contextlib.ExitStack) -> tuple[socket.socket, Application]:
    """Every step that can fail at a start. Raises SpotError, and the errors of `start_errors`."""
    lock = FolderLock(settings.data_dir)
    lock.take()
    opened.callback(lock.give_back)
    make_private(settings.data_dir, database_file(settings.database_url))
    listener = server.bind(settings.access.host, settings.access.port)
    opened.callback(listener.close)
    ownership = Ownership(settings.data_dir, lambda: adapters.stored_objects(settings), start_over)
    store = storage.open_store(settings.database_url, True, CHANNELS, ownership.allow_new)
    opened.callback(store.close)
    ownership.keep(store.supervisor_id)
    if not settings.access.insecure_loopback:
        given = credentials.secret_of("admin_token", settings.access.admin_token)
        ensure_admin_token(store, settings.data_dir, time.time(), given)
    application = build(settings, store, opened.enter_context(_wakes(store)))
    server_file = opened.enter_context(ServerFile(settings.data_dir / "server.json", server.url_of(listener)))
    began(settings.data_dir)
    application.also_after_tick(server_file.keep)
    opened.callback(application.stop)
    application.start()
    return listener, application


@contextlib.contextmanager
def start_errors(settings: Settings) -> Iterator[None]:
    """Turn an unavailable or blocking part into one sentence with the command that helps. A programming error keeps its
    traceback."""
    try:
        yield
    except StoreDown as error:
        place = shown(settings.database_url)
        raise Unavailable(
            f"The database {place} cannot be used: {error}. Trainings are not affected. `spot doctor --here` checks it "
            "again; restore a damaged file from a backup (docs/operations.md#backup-and-restore).",
            {"database": place},
        ) from None
    except (StoreUnavailable, ProviderUnavailable) as error:
        raise Unavailable(f"{error}. Nothing was started; `spot doctor --here` checks it again.") from None
    except OSError as error:
        path = error.filename or settings.data_dir
        raise SettingsRefused(
            f"{path}: {error.strerror or error}. Nothing was started; remove the obstacle, or choose another data "
            "folder (--data-dir).",
            {"path": str(path)},
        ) from None


def tune_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECT_AFTER)
    gc.freeze()  # no later pass looks at the modules
    gc.enable()


def migrate(settings: Settings) -> None:
    """Bring the database to this version's schema. Raises SpotError if a supervisor serves the data folder."""
    lock = FolderLock(settings.data_dir)
    lock.take()
    try:
        with start_errors(settings):
            make_private(settings.data_dir, database_file(settings.database_url))
            schema.migrate(settings.database_url)
    finally:
        lock.give_back()


def backup(settings: Settings, target: Path) -> int:
    """Copy the database, whether or not a supervisor serves it; its bytes. Raises SettingsRefused, Unavailable,
    OSError."""
    try:
        return schema.copy_to(settings.database_url, target)
    except StoreDown as error:
        raise Unavailable(str(error)) from None


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


def _announce_ready(address: str, settings: Settings, application: Application, manager: ServiceManager) -> None:
    manager.ready(address)
    opened = application.adapters.opened.values()
    rented = [each.platform.account_so_far().name for each in opened if each.provider.traits.rented]
    fields = {telemetry.ACTION: "serve", "url": address, "dashboard": f"{address}/ui/runs"}
    fields |= {"data_dir": str(settings.data_dir)} | ({"project": ", ".join(rented)} if rented else {})
    log.info("serving", extra=fields)

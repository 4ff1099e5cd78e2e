"""The doctor without a supervisor: the same parts are wired, but nothing is locked, migrated, started or made.

What is not there yet (a database, a folder of objects) is no fault before the first start, and is told as such. An old
schema, a database that cannot be opened, a port that somebody else has: each is a line. The database of a supervisor
that runs is only opened beside it, as any other reader and writer of it would.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from supervisor.domain.errors import SchemaMismatch, SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.machinefolder.agent_archive import agent_path
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.store import Store, StoreDown
from supervisor.providers.kinds import PROVIDERS
from supervisor.reconciler.system_clock import EventWake, SystemClock
from supervisor.services.doctor.checkup import report
from supervisor.services.doctor.doctor import Setup, Surroundings, examine_alone
from supervisor.services.doctor.state import old_schema, unwritten
from supervisor.services.parts import Parts
from supervisor.settings import loading as settings_of
from supervisor.settings.loading import Settings
from supervisor.storage import store as storage
from supervisor.storage.engine.data_folder import database_file, holder
from supervisor.wiring import adapters as adapters_of
from supervisor.wiring.adapters import Adapters
from supervisor.wiring.house import cells_of, parts_of
from supervisor.wiring.stores import store_beside
from supervisor.wiring.surroundings import alerts, settings_lines, surroundings

CLOSE_S = 0.5
CONNECT_S = 0.5
LEAST_S = 1.2


@dataclass(frozen=True, slots=True)
class _Wired:
    objects: ObjectStore | None
    parts: Parts | None
    around: Surroundings
    instead: tuple[Finding, ...] = ()


def examine(settings: Settings, alert_test: bool, deadline_s: float) -> dict[str, Any]:
    """The doctor's report; raises nothing. `deadline_s` counts from now, with what is opened first; the questions get
    LEAST_S of it, whatever is left."""
    began = time.monotonic()
    opened = contextlib.ExitStack()
    try:
        clock = SystemClock()
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="spot-doctor-")))
        store, instead = _database(settings)
        if store is not None:
            opened.callback(store.close)
        try:
            wired = _wired(settings, store, clock, folder, opened)
        except SettingsRefused as error:
            return refused(error.detail, settings_lines(settings))
        knobs = settings_of.knobs(settings, store.supervisor_id if store is not None else "")
        setup = Setup(
            clock, knobs, wired.objects, store, wired.parts,
            (*instead, *wired.instead, port_line(settings.data_dir, settings.host, settings.port)),
        )  # fmt: skip
        left_s = round(max(LEAST_S, deadline_s - (time.monotonic() - began)), 1)
        return examine_alone(setup, wired.around, alert_test, left_s)
    finally:
        _close(opened)


def refused(detail: str, others: tuple[Finding, ...] = ()) -> dict[str, Any]:
    """The report where the settings themselves are refused: nothing else can be asked then."""
    line = Finding(
        "settings", FAIL, "refused", detail, "correct them as told; spot config show --origin tells where each is from"
    )
    return report([line, *(one for one in others if one.name != "settings")])


def port_line(data_dir: Path, host: str, port: int) -> Finding:
    """Whether `spot serve` could listen, or already does."""
    try:
        pid = holder(data_dir)
    except OSError as error:
        fix = "ls -l on the folder shows whose it is"
        return Finding("port", WARN, "who serves the data folder was not read", str(error), fix)
    if pid is not None:
        return Finding("port", OK, f"the data folder {data_dir} is served already, by pid {pid}")
    if port == 0:
        return Finding("port", OK, "any free one is taken at the start")
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except TimeoutError as error:
        cause, fix = str(error), f"ss -ltnp 'sport = :{port}' shows who has it"
        return Finding("port", WARN, f"{host}:{port} does not say whether it is free", cause, fix)
    except OSError:
        return Finding("port", OK, f"{host}:{port} is free")
    cause = "another program listens there, so that `spot serve` could not start"
    fix = f"spot serve --port 0; or end that program: ss -ltnp 'sport = :{port}' shows it"
    return Finding("port", FAIL, f"{host}:{port} is taken", cause, fix)


def _database(settings: Settings) -> tuple[storage.SqlStore | None, tuple[Finding, ...]]:
    file = database_file(settings.database_url)
    if file is not None and not file.exists():
        fact = f"none yet at {file}: the first `spot serve` makes it"
        return None, (Finding("database", OK, fact),)
    try:
        return storage.open_store(settings.database_url, migrate=False), ()
    except SchemaMismatch as error:
        return None, (old_schema(error),)
    except StoreDown as error:
        return None, (unwritten(error),)
    except SettingsRefused as error:
        cause, fix = error.detail, "set database_url to a database that this version can use"
        return None, (Finding("database", FAIL, "cannot be opened", cause, fix),)


def _wired(
    settings: Settings, store: Store | None, clock: SystemClock, folder: Path, opened: contextlib.ExitStack
) -> _Wired:
    """`folder`: for what has to be written to be examined. Raises SettingsRefused."""
    if all(PROVIDERS[section.kind].leaves_no_trace for section in settings.sections.values()):
        adapters = adapters_of.choose(settings, None, clock, folder)
        opened.callback(adapters.close)
        around = surroundings(settings, adapters, store.supervisor_id if store is not None else "")
        parts = None if store is None else _parts(settings, store, adapters, clock)
        return _Wired(adapters.objects, parts, _there(around))
    objects, instead = store_beside(settings)
    # Opening a provider that makes its folders is left to `spot serve`.
    around = Surroundings(
        settings.data_dir, agent_path(folder), settings=settings_lines(settings), alerts=alerts(settings, "")
    )
    return _Wired(objects, None, _there(around), instead)


def _parts(settings: Settings, store: Store, adapters: Adapters, clock: Clock) -> Parts:
    cell = cells_of(settings, adapters)[adapters.namesake]
    return parts_of(settings, store, adapters, clock, EventWake(), cell)


def _there(around: Surroundings) -> Surroundings:
    """The disk is that of the data folder, or of the folder in which it will be made."""
    folder = around.data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return replace(around, data_dir=folder)


def _close(opened: contextlib.ExitStack) -> None:
    """What still hangs is left behind: a person waits, and the process ends soon."""
    closing = threading.Thread(target=opened.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)

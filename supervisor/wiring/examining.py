"""The doctor without a supervisor: the same parts are connected, but nothing is locked, migrated, started or created.

Before the first start, a missing database or object folder is no fault, and its line says so. An old schema, a database
that cannot be opened, and an occupied port each have a line. The database of a running supervisor is only opened beside
it, as any other reader and writer would open it.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.domain.errors import SchemaMismatch, SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.machinefolder.agent_archive import agent_path
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.store import Store, StoreDown
from supervisor.providers.kinds import PROVIDERS
from supervisor.reconciler.system_clock import EventWake, SystemClock
from supervisor.services.doctor.checkup import DoctorReport, report
from supervisor.services.doctor.doctor import Setup, Surroundings, examine_alone
from supervisor.services.doctor.state import old_schema, unwritten
from supervisor.services.parts import Parts
from supervisor.settings.loading import Settings
from supervisor.storage import store as storage
from supervisor.storage.engine.data_folder import database_file, holder
from supervisor.wiring import adapters as adapters_of
from supervisor.wiring.application import parts_of
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


def examine(settings: Settings, alert_test: bool, deadline_s: float) -> DoctorReport:
    """The doctor's report; raises nothing. `deadline_s` includes the opening of the parts; the checks get at least
    LEAST_S."""
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
        knobs = replace(settings.knobs, supervisor_id=store.supervisor_id if store is not None else "")
        setup = Setup(
            clock, knobs, wired.objects, store, wired.parts,
            (*instead, *wired.instead, port_line(settings.data_dir, settings.access.host, settings.access.port)),
        )  # fmt: skip
        left_s = round(max(LEAST_S, deadline_s - (time.monotonic() - began)), 1)
        return examine_alone(setup, wired.around, alert_test, left_s)
    finally:
        _close(opened)


def refused(detail: str, others: tuple[Finding, ...] = ()) -> DoctorReport:
    """The report if the settings themselves are refused: then nothing else can be checked."""
    fix = "correct them as described; spot config show --origin shows where each comes from"
    line = Finding("settings", FAIL, "refused", detail, fix)
    return report([line, *(other for other in others if other.name != "settings")])


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
        fact = f"none yet at {file}: the first `spot serve` creates it"
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
    """`folder`: for files that a check has to write. Raises SettingsRefused."""
    if all(PROVIDERS[section.kind].leaves_no_trace for section in settings.sections.values()):
        adapters = adapters_of.choose(settings, None, clock, folder)
        opened.callback(adapters.close)
        around = surroundings(settings, adapters, store.supervisor_id if store is not None else "")
        parts = None if store is None else parts_of(settings, store, adapters, clock, EventWake())
        return _Wired(adapters.objects, parts, _existing(around))
    objects, instead = adapters_of.store_beside(settings)
    # Only `spot serve` opens a provider that creates folders.
    around = Surroundings(
        settings.data_dir, agent_path(folder), settings=settings_lines(settings), alerts=alerts(settings, "")
    )
    return _Wired(objects, None, _existing(around), instead)


def _existing(around: Surroundings) -> Surroundings:
    """With the data folder, or the folder in which it will be created."""
    folder = around.data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return replace(around, data_dir=folder)


def _close(opened: contextlib.ExitStack) -> None:
    """Without waiting for hanging parts: a user waits, and the process ends soon."""
    closing = threading.Thread(target=opened.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)

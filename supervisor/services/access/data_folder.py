"""Two private files of a data folder: the id of its supervisor, and the admin token for its owner.

A database that was deleted, lost its write-ahead log or has zero bytes would silently become a new supervisor: live
machines would be foreign to it, and nothing would release them or resume their runs. So the supervisor's id is also in
DATA_DIR/supervisor-id, in the files of the machines on this computer, and in the object store (in the name of the
canary object). A start with a new database is refused if any of them names a supervisor. Folders of earlier versions
get their id file at the next start.

The admin token is created at the first start, in DATA_DIR/admin-token, readable by its owner only. Its row is written
before the file: a start that is interrupted in between leaves a token that nobody has, and the next start revokes it.
A token that a person has revoked is not replaced.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from supervisor.contract import runfiles
from supervisor.domain import callers
from supervisor.domain.callers import Caller, Scope, Token
from supervisor.domain.errors import DatabaseNew, DatabaseOther, SettingsRefused, Unavailable
from supervisor.ports.objectstore import ObjectReader, StoreUnavailable
from supervisor.ports.store import Store
from supervisor.services.access import tokens
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

ID_FILE = "supervisor-id"
ID = re.compile(r"[0-9a-f]{16}\b")
RESTORE = "Restore the database from a backup (docs/operations.md#backup-and-restore)"
START_OVER = "or start over with `spot serve --start-over`: the new database does not know the old runs and machines"
ADMIN_FILE = "admin-token"
ADMIN_NAME = "local"  # of the token; also the owner of its runs, as before tokens existed
TOKENS_READ = 1000
_SUPERVISOR = Caller(actor="supervisor")

Opened = Callable[[], AbstractContextManager[ObjectReader | None]]


class Ownership:
    """Whose data folder this is. `objects` opens the object store; None = there is no store yet."""

    def __init__(self, data_dir: Path, objects: Opened, start_over: bool = False) -> None:
        self._data_dir = data_dir
        self._file = data_dir / ID_FILE
        self._objects = objects
        self._start_over = start_over

    def allow_new(self) -> None:
        """Call it before a database is created. Raises DatabaseNew if folder, machines or store belong to a supervisor;
        Unavailable if the store cannot be read, which is not the same as empty."""
        if self._start_over:
            return
        mark = self._in_folder() or next(self._of_machines(), None) or self._in_store()
        if mark is not None:
            place, owner_id = mark
            raise DatabaseNew(
                f"The database is new or empty, but {place} belongs to supervisor {owner_id}. Nothing was started or "
                f"changed. {RESTORE}, {START_OVER}.",
                {"place": place, "supervisor_id": owner_id},
            )

    def keep(self, supervisor_id: str) -> None:
        """Mark the folder as this database's. Raises DatabaseOther if it belongs to another one, SettingsRefused."""
        mark = self._in_folder()
        if mark is not None and mark[1] == supervisor_id:
            return
        if mark is not None and not self._start_over:
            raise DatabaseOther(
                f"The database belongs to supervisor {supervisor_id}, but {mark[0]} belongs to {mark[1]}. Nothing was "
                f"started or changed. Use the database of this folder. {RESTORE}, {START_OVER}.",
                {"place": mark[0], "supervisor_id": mark[1], "database_id": supervisor_id},
            )
        try:
            write_private(self._file, supervisor_id)
        except OSError as error:
            raise _unusable(self._file, error, "supervisor's id") from None

    def _in_folder(self) -> tuple[str, str] | None:
        try:
            text = self._file.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._file, error, "supervisor's id") from None
        return f"the data folder {self._data_dir}", text

    def _of_machines(self) -> Iterator[tuple[str, str]]:
        """From machines on this computer. An unreadable file names nobody; the provider reports it."""
        for path in sorted((self._data_dir / "machines").glob("*/job.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                owner_id = str(json.loads(path.read_bytes())["supervisor_id"])
                yield f"the machine {path.parent.name} in {self._data_dir}", owner_id

    def _in_store(self) -> tuple[str, str] | None:
        prefix = runfiles.canary("")
        try:
            with self._objects() as objects:
                for page in objects.pages(prefix) if objects is not None else ():
                    for info in page.objects:
                        if match := ID.match(info.key.removeprefix(prefix)):
                            return f"the object store {objects.url if objects else ''}", match[0]
        except StoreUnavailable as error:
            raise Unavailable(
                f"The database is new, and the object store cannot be read: {error}. So it is not known whether the "
                "store belongs to another supervisor, and nothing was started. `spot doctor` shows what is wrong; "
                "`spot serve --start-over` starts without this check."
            ) from None
        return None


def ensure_admin_token(store: Store, data_dir: Path, now: float, given: str = "") -> None:
    """After this, the file holds a token of this database, or a revoked one. `given`: the token of the setting
    admin_token; "" = the folder makes its own. Raises SettingsRefused if it is none, or if the file cannot be read or
    written; StoreDown."""
    if given and not callers.is_token(given):
        text = "admin_token: it is not a token. `spot token generate` prints a new one"
        raise SettingsRefused(text, {"name": "admin_token"})
    path = data_dir / ADMIN_FILE
    try:
        text = _read_private(path)
        if given and text != given:
            _revoke_earlier(store, path, now)
            write_private(path, given)
            text = given
        token = store.tokens.find(callers.digest(store.secret, text)) if callers.is_token(text) else None
        if token is None:
            _make_admin_token(store, path, now, given)
        elif not token.valid(now):
            fields = {telemetry.ACTION: "admin_token", "path": str(path), "token_id": token.token_id}
            fix = "set another admin_token" if given else f"remove {path}"
            log.warning("The admin token is revoked. For a new one, %s and start again.", fix, extra=fields)
    except OSError as error:
        raise _unusable(path, error, "admin token") from None


def _read_private(path: Path) -> str:
    """ "" = there is no file. A file that others can read is made private."""
    try:
        with open(path, "rb", opener=_no_link) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
                fields = {telemetry.ACTION: "admin_token", "path": str(path)}
                log.warning("Others could read the admin token; its file is private now.", extra=fields)
            return file.read(1000).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _no_link(path: str, flags: int) -> int:
    """We must not change the mode of a link's target."""
    return os.open(path, flags | os.O_NOFOLLOW)


def _revoke_earlier(store: Store, path: Path, now: float) -> None:
    """Those that this folder has made."""
    for earlier in store.tokens.newest(TOKENS_READ):
        if earlier.created_by == _creator(path) and earlier.revoked_at is None:
            tokens.revoke_token(store, earlier, _SUPERVISOR, now)


def _creator(path: Path) -> str:
    return f"{callers.FOLDER_CREATOR}{socket.gethostname()}:{path.parent}"


def _make_admin_token(store: Store, path: Path, now: float, given: str) -> None:
    """Replicas with the same `given` token may do this at once: one row is left."""
    if not given:
        _revoke_earlier(store, path, now)
    token_id = f"tok-{secrets.token_hex(tokens.ID_BYTES)}"
    creator = f"{callers.FOLDER_CREATOR}the setting admin_token" if given else _creator(path)
    made = Token(token_id, ADMIN_NAME, ADMIN_NAME, frozenset({Scope.ADMIN}), now, creator)
    text = given or callers.write(secrets.token_bytes(callers.RANDOM_BYTES))
    tokens.add(store, made, _SUPERVISOR, text)
    if given:
        return
    write_private(path, text)
    fields = {telemetry.ACTION: "admin_token", "path": str(path), "token_id": token_id}
    log.info("An admin token was created; `spot` finds it in its file.", extra=fields)


def write_private(path: Path, text: str) -> None:
    """Atomically, and never readable by others."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _unusable(path: Path, error: OSError, content: str) -> SettingsRefused:
    text = f"{path}: {error.strerror}. It holds the {content}; the data folder must be the supervisor's own."
    return SettingsRefused(text, {"path": str(path)})

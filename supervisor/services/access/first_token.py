"""The admin token of a data folder: made at the first start, so that whoever owns the folder is let in.

It lies in DATA_DIR/admin-token, readable by its owner only. The row is written before the file: a start that is cut
off between the two leaves a token that nobody has, which the next start revokes. A token that somebody has revoked is
not made anew behind his back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
from pathlib import Path

from supervisor.domain.access import tokens
from supervisor.domain.access.callers import Caller, Scope
from supervisor.domain.access.tokens import Token
from supervisor.domain.errors import SettingsRefused
from supervisor.ports.store import Store
from supervisor.services.access.tokens import ID_BYTES, add, revoke_found
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

FILE = "admin-token"
NAME = "local"  # of the token, and of whose runs it submits: as it was before there were tokens
EARLIER = 1000
_SUPERVISOR = Caller(actor="supervisor")


def ensure(store: Store, data_dir: Path, now: float) -> None:
    """The file holds a token of this database, or one that was revoked. Raises SettingsRefused where it cannot be read
    or written, StoreDown."""
    path = data_dir / FILE
    try:
        text = _read(path)
        found = store.tokens.find(tokens.digest(store.secret, text)) if tokens.is_token(text) else None
        if found is None:
            _make(store, path, now)
        elif not found.valid(now):
            _tell_revoked(path, found)
    except OSError as error:
        raise SettingsRefused(
            f"{path}: {error.strerror}. The admin token is kept there; the data folder must be the supervisor's own.",
            {"path": str(path)},
        ) from None


def _read(path: Path) -> str:
    """Empty where there is none. What others can read is made private."""
    try:
        with open(path, "rb", opener=_no_link) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                os.fchmod(file.fileno(), 0o600)
                told = {telemetry.ACTION: "admin_token", "path": str(path)}
                log.warning("Others could read the admin token; its file is private now.", extra=told)
            return file.read(1000).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _no_link(path: str, flags: int) -> int:
    """The mode of what a link leads to is not ours to change."""
    return os.open(path, flags | os.O_NOFOLLOW)


def _make(store: Store, path: Path, now: float) -> None:
    place = f"{tokens.OF_FOLDER}{socket.gethostname()}:{path.parent}"
    for earlier in store.tokens.newest(EARLIER):
        if earlier.created_by == place and earlier.revoked_at is None:
            revoke_found(store, earlier, _SUPERVISOR, now)
    token_id = f"tok-{secrets.token_hex(ID_BYTES)}"
    made = Token(token_id, NAME, NAME, frozenset({Scope.ADMIN}), now, place)
    write_private(path, add(store, made, _SUPERVISOR))
    told = {telemetry.ACTION: "admin_token", "path": str(path), "token_id": token_id}
    log.info("An admin token was made; `spot` finds it in its file.", extra=told)


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and never readable by others."""
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


def _tell_revoked(path: Path, found: Token) -> None:
    told = {telemetry.ACTION: "admin_token", "path": str(path), "token_id": found.token_id}
    log.warning(
        "The admin token of this data folder was revoked and is left so. For a new one, take %s away and start again.",
        path,
        extra=told,
    )

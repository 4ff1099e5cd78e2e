"""Tokens are made, listed and revoked; the text of one is told once, to whoever made it.

What a token may do and for whom stands in its row and in the history, with the person who asked for it. Revoking twice
is revoking once.

The admin token of a data folder: made at the first start, so that whoever owns the folder is let in.

It lies in DATA_DIR/admin-token, readable by its owner only. The row is written before the file: a start that is cut
off between the two leaves a token that nobody has, which the next start revokes. A token that somebody has revoked is
not made anew behind his back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.domain import callers
from supervisor.domain.callers import Caller, Scope, Token
from supervisor.domain.errors import Conflict, InvalidRequest, SettingsRefused, TokenNotFound
from supervisor.domain.events import EventKind
from supervisor.ports.store import Store
from supervisor.services.access.identity import Identity
from supervisor.services.parts import Parts
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json
from supervisor.telemetry import logs as telemetry

DEFAULT_SCOPES = frozenset({Scope.READ, Scope.WRITE})
SHOWN = 1000
MOST_VALID = 1000
ID_BYTES = 6
TOKEN_ID = re.compile(r"tok-[0-9a-f]{12}")

Random = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class TokenWish:
    """`owner` "": the caller's own. `expires_in_s` None = never."""

    name: str
    owner: str = ""
    scopes: frozenset[Scope] = field(default=DEFAULT_SCOPES)
    expires_in_s: float | None = None
    max_active_runs: int | None = None


def create(parts: Parts, wish: TokenWish, caller: Caller, random: Random = secrets.token_bytes) -> Json:
    """The token as it is listed, and its text under `token`. Raises InvalidRequest, Conflict, StoreDown."""
    _check(wish)
    now = parts.clock.now()
    if sum(token.valid(now) for token in parts.store.tokens.newest(SHOWN)) >= MOST_VALID:
        raise Conflict(f"There are {MOST_VALID} valid tokens; revoke those that nobody uses: spot token ls.")
    made = Token(
        token_id=f"tok-{random(ID_BYTES).hex()}",
        name=wish.name,
        owner=wish.owner or caller.owner,
        scopes=wish.scopes,
        created_at=now,
        created_by=caller.actor,
        expires_at=None if wish.expires_in_s is None else now + wish.expires_in_s,
        max_active_runs=wish.max_active_runs,
    )
    text = add(parts.store, made, caller, random)
    return {**token_json(made, now), "token": text}


def add(store: Store, made: Token, caller: Caller, random: Random = secrets.token_bytes) -> str:
    """The text of a new token that stands for what `made` says. Raises StoreDown."""
    text = callers.write(random(callers.RANDOM_BYTES))
    facts = {
        "token_id": made.token_id,
        "name": made.name,
        "owner": made.owner,
        "scopes": sorted(made.scopes),
        "expires_at": rfc3339.maybe(made.expires_at),
        "max_active_runs": made.max_active_runs,
    }
    sentence = (
        f"Token {made.name} ({made.token_id}) was made by {caller.actor} for {made.owner}: "
        f"{', '.join(sorted(made.scopes))}."
    )
    digest = callers.digest(store.secret, text)
    store.tokens.add(made, digest, caller.event(EventKind.TOKEN_CREATED, sentence, facts))
    return text


def listing(parts: Parts) -> Json:
    """Those that were not revoked first, each part newest first, SHOWN at most. Raises StoreDown."""
    now = parts.clock.now()
    return {"tokens": [token_json(token, now) for token in parts.store.tokens.newest(SHOWN)]}


def asker_json(parts: Parts, caller: Caller) -> Json:
    """Who asks. Raises StoreDown."""
    token = parts.store.tokens.get(caller.token_id) if caller.token_id else None
    return {
        "name": caller.actor,
        "owner": caller.owner,
        "scopes": sorted(caller.scopes),
        "token_id": caller.token_id or None,
        "expires_at": None if token is None else rfc3339.maybe(token.expires_at),
        "max_active_runs": caller.max_active_runs,
    }


def revoke(parts: Parts, identity: Identity, token_id: str, caller: Caller) -> Json:
    """The token as it is now. Raises TokenNotFound, StoreDown."""
    now = parts.clock.now()
    token = parts.store.tokens.get(token_id) if TOKEN_ID.fullmatch(token_id) else None
    if token is None:  # not repeated: somebody may have written the token itself
        raise TokenNotFound("There is no token with this id; `spot token ls` lists those that there are.")
    revoke_found(parts.store, token, caller, now)
    identity.forget(token_id)
    return token_json(parts.store.tokens.get(token_id) or token, now)


def revoke_found(store: Store, token: Token, caller: Caller, now: float) -> None:
    """Raises StoreDown."""
    sentence = f"Token {token.name} ({token.token_id}) of {token.owner} was revoked by {caller.actor}."
    facts = {"token_id": token.token_id, "name": token.name, "owner": token.owner}
    store.tokens.revoke(token.token_id, caller.event(EventKind.TOKEN_REVOKED, sentence, facts), now)


def token_json(token: Token, now: float) -> Json:
    times = ("created_at", "expires_at", "last_used_at", "revoked_at")
    moments = {name: getattr(token, name) for name in times}
    return {
        "token_id": token.token_id,
        "name": token.name,
        "owner": token.owner,
        "scopes": sorted(token.scopes),
        "max_active_runs": token.max_active_runs,
        "created_by": token.created_by,
        "valid": token.valid(now),
        **{name: rfc3339.maybe(at) for name, at in moments.items()},
    }


def _check(wish: TokenWish) -> None:
    """The API's own bounds keep everything else out."""
    for field_name, text in (("name", wish.name), ("owner", wish.owner)):
        if text in callers.RESERVED_NAMES:
            reason = "is the supervisor's own name; take another"
            raise InvalidRequest(f"{field_name} {reason}.", errors=((f"#/{field_name}", reason),))


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
        token = store.tokens.find(callers.digest(store.secret, text)) if callers.is_token(text) else None
        if token is None:
            _make(store, path, now)
        elif not token.valid(now):
            _tell_revoked(path, token)
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
                fields = {telemetry.ACTION: "admin_token", "path": str(path)}
                log.warning("Others could read the admin token; its file is private now.", extra=fields)
            return file.read(1000).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""


def _no_link(path: str, flags: int) -> int:
    """The mode of what a link leads to is not ours to change."""
    return os.open(path, flags | os.O_NOFOLLOW)


def _make(store: Store, path: Path, now: float) -> None:
    place = f"{callers.FOLDER_CREATOR}{socket.gethostname()}:{path.parent}"
    for earlier in store.tokens.newest(EARLIER):
        if earlier.created_by == place and earlier.revoked_at is None:
            revoke_found(store, earlier, _SUPERVISOR, now)
    token_id = f"tok-{secrets.token_hex(ID_BYTES)}"
    made = Token(token_id, NAME, NAME, frozenset({Scope.ADMIN}), now, place)
    write_private(path, add(store, made, _SUPERVISOR))
    fields = {telemetry.ACTION: "admin_token", "path": str(path), "token_id": token_id}
    log.info("An admin token was made; `spot` finds it in its file.", extra=fields)


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


def _tell_revoked(path: Path, token: Token) -> None:
    fields = {telemetry.ACTION: "admin_token", "path": str(path), "token_id": token.token_id}
    log.warning(
        "The admin token of this data folder was revoked and is left so. For a new one, take %s away and start again.",
        path,
        extra=fields,
    )

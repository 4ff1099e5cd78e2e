"""Callers, and the tokens that identify them.

The scopes of a caller say what it may do, its owner whose runs it may do it to; `admin` includes all scopes and all
owners. A loopback server that trusts its computer needs no token: each caller is `LOCAL`.

A token is `sup_`, 32 random bytes as URL-safe text, and a checksum (CRC-32, URL-safe text). The checksum separates a
mistyped token from an unknown one without a query, and gives certainty to scanners for leaked secrets. The database
keeps only its HMAC-SHA256, keyed by a secret of the database: a stolen or copied table is worth nothing.
"""

from __future__ import annotations

import base64
import hmac
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from supervisor.domain.events import Event, EventKind

NO_OWNER = "\n"  # matches no owner: names have no control characters
PREFIX = "sup_"
RANDOM_BYTES = 32
NAME_RULE = "a letter or digit, then up to 62 letters, digits, dots, dashes, underscores or @"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}\Z")
RESERVED_NAMES = frozenset({"supervisor"})  # the actor of the supervisor's own events
FOLDER_CREATOR = "supervisor at "  # the begin of `created_by` of a data folder's admin token; no actor begins so
_FORM = re.compile(r"(sup_[A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})\Z")


class Scope(StrEnum):
    READ = "runs:read"
    WRITE = "runs:write"
    ADMIN = "admin"
    METRICS = "metrics:read"
    EXEC = "runs:exec"


@dataclass(frozen=True, slots=True)
class Caps:
    """What the runs of a token may cost, in US dollars; None = no cap. `usd_per_day`: in any 24 hours. `usd_per_run`: a
    run with all its generations. `plans_only`: a run starts with a plan that was shown to this token, and in no other
    way."""

    usd_per_day: float | None = None
    usd_per_run: float | None = None
    plans_only: bool = False

    @property
    def of_money(self) -> bool:
        return self.usd_per_day is not None or self.usd_per_run is not None


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Caller:
    """`actor`: the name in the history. `token_id` "" = no token was needed. `max_active_runs` None = no limit."""

    owner: str = "local"
    actor: str = "local"
    scopes: frozenset[Scope] = frozenset({Scope.ADMIN})
    token_id: str = ""
    request_id: str = ""
    max_active_runs: int | None = None
    caps: Caps = NO_CAPS

    @property
    def admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    def may(self, scope: Scope) -> bool:
        return self.admin or scope in self.scopes

    def owns(self, owner: str) -> bool:
        """The caller may see and change what this owner has."""
        return self.admin or owner == self.owner

    def visible_owner(self, owner: str | None) -> str | None:
        """The owner whose items a list shows, for a filter by `owner` (None = no filter); None = all owners."""
        if self.admin or owner == self.owner:
            return owner
        return self.owner if owner is None else NO_OWNER

    def event(self, kind: EventKind, text: str, data: Mapping[str, object] | None = None) -> Event:
        """An action of the caller, with the ids of its request and token."""
        return self.changed(kind, text, None, None, data)

    def changed(
        self,
        kind: EventKind,
        text: str,
        before: Mapping[str, object] | None,
        after: Mapping[str, object] | None,
        data: Mapping[str, object] | None = None,
    ) -> Event:
        """The same, with the differing values by name; null = there was none. Never give it the values of secrets."""
        facts = dict(data or {})
        if before is not None and after is not None:
            names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            facts["before"] = {name: before.get(name) for name in names}
            facts["after"] = {name: after.get(name) for name in names}
        if self.request_id:
            facts["request_id"] = self.request_id
        if self.token_id:
            facts["token_id"] = self.token_id
        return Event(kind, text, self.actor, facts)


LOCAL = Caller()


@dataclass(frozen=True, slots=True)
class Token:
    """The record of a token, without the token itself. `name`: the actor in the history. Times are epoch seconds; None:
    never expires, never used, not revoked, no limit of runs."""

    token_id: str
    name: str
    owner: str
    scopes: frozenset[Scope]
    created_at: float
    created_by: str
    expires_at: float | None = None
    max_active_runs: int | None = None
    caps: Caps = NO_CAPS
    last_used_at: float | None = None
    revoked_at: float | None = None

    def valid(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def caller(self, request_id: str) -> Caller:
        return Caller(self.owner, self.name, self.scopes, self.token_id, request_id, self.max_active_runs, self.caps)


def write(random: bytes) -> str:
    """The token of RANDOM_BYTES random bytes."""
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a token is made of {RANDOM_BYTES} bytes")
    text = PREFIX + _text(random)
    return text + _checksum(text)


def is_token(text: str) -> bool:
    """The text has the form of a token and a valid checksum. Only the database knows whether the token exists."""
    match = _FORM.match(text)
    return match is not None and _checksum(match.group(1)) == match.group(2)


def digest(secret: str, token: str) -> str:
    """What the database keeps: 64 hex digits. `secret`: the secret of the database, in hex."""
    return hmac.digest(bytes.fromhex(secret), b"token:" + token.encode(), "sha256").hex()


def _checksum(text: str) -> str:
    return _text(zlib.crc32(text.encode()).to_bytes(4, "big"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

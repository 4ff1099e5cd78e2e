"""Tokens: create, list, revoke. The text of a token is in one response only, the one to its creation.

The row and the history say what a token may do, for which owner, and who created it. A second revocation changes
nothing.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain import callers
from supervisor.domain.callers import NO_CAPS, Caller, Caps, Scope, Token
from supervisor.domain.errors import Conflict, InvalidRequest, TokenNotFound
from supervisor.domain.events import EventKind
from supervisor.ports.store import Store
from supervisor.services.access.identity import Identity
from supervisor.services.parts import Parts
from supervisor.services.runs.money.caps import MICRO
from supervisor.services.views import formats

DEFAULT_SCOPES = frozenset({Scope.READ, Scope.WRITE})
SHOWN = 1000
MOST_VALID = 1000
ID_BYTES = 6
TOKEN_ID = re.compile(r"tok-[0-9a-f]{12}")

SCOPES = "What the token may do; `admin` includes every other scope."

Random = Callable[[int], bytes]


class TokenShown(TypedDict):
    """`valid`: neither revoked nor expired. `last_used_at`: written at most once a minute; null: never used."""

    token_id: str
    name: str
    owner: str
    scopes: Annotated[list[str], Field(description=SCOPES)]
    max_active_runs: int | None
    max_usd_per_day: float | None
    max_usd_per_run: float | None
    plans_only: bool
    created_by: str
    valid: bool
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class TokenMade(TokenShown):
    """`token`: its text, which only this response contains."""

    token: str


class TokenList(TypedDict):
    """The tokens that are not revoked come first; each part is in order of creation, newest first. 1000 at most."""

    tokens: list[TokenShown]


class Asker(TypedDict):
    """`name`: the actor in the history. `token_id`: null where the server requires no token. `expires_at`: null where
    the token never expires. `counted_usd`: what counts for `max_usd_per_day` now, null without that cap: what the runs
    of the token have spent in the last 24 hours, and what they may still spend."""

    name: str
    owner: str
    scopes: list[str]
    token_id: str | None
    expires_at: str | None
    max_active_runs: int | None
    max_usd_per_day: float | None
    max_usd_per_run: float | None
    plans_only: bool
    counted_usd: float | None


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """`owner` "": the caller's own. `expires_in_s` None = never."""

    name: str
    owner: str = ""
    scopes: frozenset[Scope] = field(default=DEFAULT_SCOPES)
    expires_in_s: float | None = None
    max_active_runs: int | None = None
    caps: Caps = NO_CAPS


def create(parts: Parts, request: TokenRequest, caller: Caller, random: Random = secrets.token_bytes) -> TokenMade:
    """The token as in the list, with its text under `token`. Raises InvalidRequest, Conflict, StoreDown."""
    _check(request)
    now = parts.clock.now()
    if sum(token.valid(now) for token in parts.store.tokens.newest(SHOWN)) >= MOST_VALID:
        raise Conflict(f"There are {MOST_VALID} valid tokens. Revoke unused tokens: `spot token ls` lists them.")
    made = Token(
        token_id=f"tok-{random(ID_BYTES).hex()}",
        name=request.name,
        owner=request.owner or caller.owner,
        scopes=request.scopes,
        created_at=now,
        created_by=caller.actor,
        expires_at=None if request.expires_in_s is None else now + request.expires_in_s,
        max_active_runs=request.max_active_runs,
        caps=request.caps,
    )
    text = callers.write(random(callers.RANDOM_BYTES))
    add(parts.store, made, caller, text)
    return {**token_json(made, now), "token": text}


def add(store: Store, made: Token, caller: Caller, text: str) -> None:
    """Store a new token with this text; one that another process has stored in this moment stays. Raises StoreDown."""
    facts = {
        "token_id": made.token_id,
        "name": made.name,
        "owner": made.owner,
        "scopes": sorted(made.scopes),
        "expires_at": formats.maybe_time(made.expires_at),
        "max_active_runs": made.max_active_runs,
        **_caps_json(made.caps),
    }
    sentence = (
        f"Token {made.name} ({made.token_id}) was created by {caller.actor} for {made.owner}: "
        f"{', '.join(sorted(made.scopes))}."
    )
    digest = callers.digest(store.secret, text)
    store.tokens.add(made, digest, caller.event(EventKind.TOKEN_CREATED, sentence, facts))


def listing(parts: Parts) -> TokenList:
    """Tokens that are not revoked first, then revoked ones, newest first, at most SHOWN. Raises StoreDown."""
    now = parts.clock.now()
    return {"tokens": [token_json(token, now) for token in parts.store.tokens.newest(SHOWN)]}


def asker_json(parts: Parts, caller: Caller) -> Asker:
    """The caller of this request. Raises StoreDown."""
    counted_usd = None
    if caller.caps.usd_per_day is not None:
        counted_usd = formats.usd(parts.store.counted_micro(caller.token_id, parts.clock.now()) / MICRO)
    token = parts.store.tokens.get(caller.token_id) if caller.token_id else None
    return {
        "name": caller.actor,
        "owner": caller.owner,
        "scopes": sorted(caller.scopes),
        "token_id": caller.token_id or None,
        "expires_at": None if token is None else formats.maybe_time(token.expires_at),
        "max_active_runs": caller.max_active_runs,
        **_caps_json(caller.caps),
        "counted_usd": counted_usd,
    }


def revoke(parts: Parts, identity: Identity, token_id: str, caller: Caller) -> TokenShown:
    """The revoked token. Raises TokenNotFound, StoreDown."""
    now = parts.clock.now()
    token = parts.store.tokens.get(token_id) if TOKEN_ID.fullmatch(token_id) else None
    if token is None:  # the id is not repeated: a user may have sent the token itself
        raise TokenNotFound("There is no token with this id. `spot token ls` lists the tokens.")
    revoke_token(parts.store, token, caller, now)
    identity.forget(token_id)
    return token_json(parts.store.tokens.get(token_id) or token, now)


def revoke_token(store: Store, token: Token, caller: Caller, now: float) -> None:
    """Raises StoreDown."""
    sentence = f"Token {token.name} ({token.token_id}) of {token.owner} was revoked by {caller.actor}."
    facts = {"token_id": token.token_id, "name": token.name, "owner": token.owner}
    store.tokens.revoke(token.token_id, caller.event(EventKind.TOKEN_REVOKED, sentence, facts), now)


def token_json(token: Token, now: float) -> TokenShown:
    return {
        "token_id": token.token_id,
        "name": token.name,
        "owner": token.owner,
        "scopes": sorted(token.scopes),
        "max_active_runs": token.max_active_runs,
        **_caps_json(token.caps),
        "created_by": token.created_by,
        "valid": token.valid(now),
        "created_at": formats.time_text(token.created_at),
        "expires_at": formats.maybe_time(token.expires_at),
        "last_used_at": formats.maybe_time(token.last_used_at),
        "revoked_at": formats.maybe_time(token.revoked_at),
    }


class _CapsShown(TypedDict):
    max_usd_per_day: float | None
    max_usd_per_run: float | None
    plans_only: bool


def _caps_json(caps: Caps) -> _CapsShown:
    return {"max_usd_per_day": caps.usd_per_day, "max_usd_per_run": caps.usd_per_run, "plans_only": caps.plans_only}


def _check(request: TokenRequest) -> None:
    """The API's own bounds refuse everything else."""
    if request.caps != NO_CAPS and Scope.ADMIN in request.scopes:
        reason = "has no effect beside a cap of money or plans: it could create a token without them"
        raise InvalidRequest(f"The scope admin {reason}. Leave one out.", errors=(("#/scopes", reason),))
    for field_name, text in (("name", request.name), ("owner", request.owner)):
        if text in callers.RESERVED_NAMES:
            reason = "is the supervisor's own name; choose another"
            raise InvalidRequest(f"{field_name} {reason}.", errors=((f"#/{field_name}", reason),))

"""Idempotency keys: a request with a key is carried out once, even if its response, its client or this process is lost.

One transaction takes the key, writes the change and stores the response. After a kill either all three are stored or
none. A request whose key is in use waits for that transaction and then gets its response; if the transaction does not
end, the client is told to retry. A refused request does not use up its key. If the key has a stored response, the
client gets that response even if the request would be refused today.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.domain.callers import Caller
from supervisor.domain.errors import InvalidRequest, KeyInFlight, KeyReused, SpotError, StopNewer
from supervisor.ports.store import KeptResponse, KeyHeld, Transaction
from supervisor.services.parts import Parts

KEY_MAX = 255
IN_FLIGHT = 0  # KeptResponse.status of a request without a response so far
# A stored response does not replace these errors: they are about the key itself, or the change was already made.
_FINAL = (KeyReused, KeyInFlight, StopNewer)


@dataclass(frozen=True, slots=True)
class Reply:
    """A stored response. `body`: JSON text. `replayed`: it was made by an earlier request with the same key.
    `version`: of the run's row, as in `body`; None = only `body` knows it."""

    status: int
    body: str
    location: str = ""
    replayed: bool = False
    version: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with a key. `fingerprint`: hash of everything that its body requests."""

    scope: str
    key: str
    fingerprint: str

    def take(self, tx: Transaction, now: float) -> Reply | None:
        """The stored response; None: this transaction holds the key now. Raises KeyReused, KeyInFlight."""
        try:
            kept = tx.take_key(self.scope, self.key, self.fingerprint, now)
        except KeyHeld:
            raise _in_flight() from None
        return None if kept is None else replay(kept, self.fingerprint)

    def keep(self, tx: Transaction, reply: Reply) -> None:
        """In the transaction that took the key."""
        answer = KeptResponse(self.fingerprint, reply.status, reply.body, reply.location)
        tx.keep_response(self.scope, self.key, answer)


def keyed_request(key: str | None, scope: str, payload: object) -> KeyedRequest | None:
    """None: the request has no key. `payload`: JSON values. Raises InvalidRequest."""
    if key is None:
        return None
    check_key(key)
    return KeyedRequest(scope, key, hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest())


def scope_of(caller: Caller, operation: str) -> str:
    """`operation`: method and path. Two tokens may use the same key for different requests."""
    return f"{caller.token_id or caller.owner} {operation}"


def check_key(key: str) -> None:
    """Raises InvalidRequest."""
    if not (1 <= len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
        raise InvalidRequest(f"Idempotency-Key must be 1 to {KEY_MAX} printable ASCII characters.", {"max": KEY_MAX})


def replay(kept: KeptResponse, fingerprint: str) -> Reply:
    """Raises KeyReused, KeyInFlight."""
    if kept.fingerprint != fingerprint:
        raise KeyReused("This Idempotency-Key came with another body before. Use a new key for a new request.")
    if kept.status == IN_FLIGHT:
        raise _in_flight()
    return Reply(kept.status, kept.body, kept.location, replayed=True)


def replay_if_refused(parts: Parts, request: KeyedRequest, work: Callable[[], Reply]) -> Reply:
    """What `work` returns. If `work` is refused and the key has a stored response: that response. Raises what `work`
    raises."""
    try:
        return work()
    except _FINAL:
        raise
    except SpotError:
        kept = parts.store.kept_response(request.scope, request.key)
        if kept is None:
            raise
        return replay(kept, request.fingerprint)


def _in_flight() -> KeyInFlight:
    text = "The first request with this Idempotency-Key is still in progress. Retry."
    return KeyInFlight(text, {"retry_after_s": 1})

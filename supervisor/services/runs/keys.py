"""Idempotency keys: a request with one is done once, whatever becomes of its answer, its client or this process.

The key is taken, the deed written and the answer kept in one transaction: after a kill there are all three or none. Who
comes with a key that is being used waits for that transaction, and then gets the answer that it kept; only where it
does not end is he told to come again. A refusal uses up no key. And a refusal counts only where the key has no answer
yet: the first answer comes again whatever has changed since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from supervisor.domain.callers import Caller
from supervisor.domain.errors import InvalidRequest, KeyInFlight, KeyReused, SpotError, StopNewer
from supervisor.domain.run import Run
from supervisor.ports.store import KeptResponse, KeyHeld, Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Judge, Judged, carried_out, judged_by, kept_changing, until_settled

KEY_MAX = 255
IN_FLIGHT = 0  # KeptResponse.status of a request that has not been answered yet
_FINAL = (KeyReused, KeyInFlight, StopNewer)  # of the key itself; of what was done and kept


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is JSON text; `replayed`: an earlier request with the same key was answered so. `version`: of the run's
    row, as `body` says it; None = not known apart from it."""

    status: int
    body: str
    location: str
    replayed: bool = False
    version: int | None = field(default=None, compare=False)


Shape = Callable[[Run, Mapping[str, str]], Reply]
"""The answer that tells of a run with these labels. Made within the transaction: it reads no database."""


@dataclass(frozen=True, slots=True)
class Once:
    """A request with a key. `fingerprint`: of all that its body asks for."""

    scope: str
    key: str
    fingerprint: str

    def taken(self, tx: Transaction, now: float) -> Reply | None:
        """None: the key is ours, in this transaction. Raises KeyReused, KeyInFlight."""
        try:
            kept = tx.take_key(self.scope, self.key, self.fingerprint, now)
        except KeyHeld:
            raise _in_flight() from None
        return None if kept is None else replay(kept, self.fingerprint)

    def keep(self, tx: Transaction, reply: Reply) -> None:
        answer = KeptResponse(self.fingerprint, reply.status, reply.body, reply.location)
        tx.keep_response(self.scope, self.key, answer)


def once(key: str | None, scope: str, payload: object) -> Once | None:
    """None = no key was given. `payload`: JSON values. Raises InvalidRequest."""
    if key is None:
        return None
    check_key(key)
    return Once(scope, key, hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest())


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


def answered(parts: Parts, idempotency: Once | None, work: Callable[[], Reply]) -> Reply:
    """What `work` answers, or what was answered before where it is refused now. Raises what `work` raises."""
    try:
        return work()
    except _FINAL:
        raise
    except SpotError:
        kept = None if idempotency is None else parts.store.kept_response(idempotency.scope, idempotency.key)
        if idempotency is None or kept is None:
            raise
        return replay(kept, idempotency.fingerprint)


def change_once(parts: Parts, run_id: str, judge: Judge, *, undone: str, idempotency: Once, shape: Shape) -> Reply:
    """As `changing.change`, with a key: also where nothing is to be changed, so that a repeat changes nothing later.
    Raises what that raises, KeyReused, KeyInFlight."""

    def wanted(now: float) -> Judged:
        judged = judged_by(judge, parts, run_id, now)
        return replace(judged, labels=parts.store.labels(judged.run.key))

    def shaped(judged: Judged) -> Reply:
        return shape(judged.run, judged.labels)

    def work() -> Reply:
        error = kept_changing(run_id, undone)
        return until_settled(error, carried_out, parts, wanted, shaped, idempotency)

    return answered(parts, idempotency, work)


def _in_flight() -> KeyInFlight:
    return KeyInFlight(
        "The first request with this Idempotency-Key is still being answered. Try again.", {"retry_after_s": 1}
    )

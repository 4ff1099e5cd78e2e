"""Which caller an Authorization header stands for. This runs for every request, so the result is cached.

A token from the database is valid for FRESH_S: for so long a revocation on another replica may go unnoticed; a
revocation by this process counts at once. While the database is unavailable, tokens that were valid in the last AWAY_S
stay valid, and all other callers are refused. A mistyped, unknown, expired or revoked token gets the same refusal, and
the last three cost the same query. Tokens are cached and compared by their HMAC with a secret key, so timing reveals
nothing about them. No variable that outlives the request, no error and no log line contains the token itself.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from supervisor.domain import callers
from supervisor.domain.callers import Caller, Token
from supervisor.domain.errors import Unauthorized
from supervisor.ports.clock import Clock
from supervisor.ports.store import Store, StoreDown
from supervisor.services.parts import ask_together
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker

SCHEME = "bearer "
FRESH_S = 4.0
AWAY_S = 60.0
SOON_S = 2.0
RETRY_S = 2.0  # after the database was unavailable
USED_S = 60.0  # interval of writing the times of last use
MOST_KEPT = 5000


@dataclass(frozen=True, slots=True)
class _Cached:
    """`fresh_until` and `usable_until` are monotonic. Between them the database is queried first."""

    token: Token
    fresh_until: float
    usable_until: float


@dataclass
class Identity:
    """Thread-safe. `recall` only reads memory; `identify` may query the database."""

    store: Store
    clock: Clock
    _entries: dict[str, _Cached] = field(default_factory=dict)
    _used: dict[str, float] = field(default_factory=dict)
    _revocations: int = 0  # a token that was read before a revocation is not cached after it
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: Worker = field(init=False)

    def __post_init__(self) -> None:
        self._worker = Worker(
            "tokens",
            self.write_used,
            USED_S,
            failed="times of last use not written",
            fields={telemetry.ACTION: "tokens_used"},
            expected=StoreDown,
            at_end=self.write_used,
        )

    def recall(self, authorization: str, request_id: str) -> Caller | None:
        """None = the database must be queried. Raises Unauthorized if no well-formed token was sent."""
        entry = self._entries.get(self._digest(authorization))
        if entry is None or self.clock.monotonic() >= entry.fresh_until:
            return None
        return self._caller(entry.token, request_id)

    def identify(self, authorization: str, request_id: str) -> Caller:
        """Raises Unauthorized; StoreDown if the database is unavailable and the token is not cached."""
        digest = self._digest(authorization)
        caller = self._caller(self._token_of(digest), request_id)
        if caller is None:
            raise unauthorized()
        return caller

    def identify_soon(self, authorization: str, request_id: str) -> Caller:
        """The same for reading metrics, which matter most while the database is unavailable or hangs: then the cached
        token counts, however old it is."""
        answer = ask_together({"caller": lambda: self.identify(authorization, request_id)}, SOON_S)["caller"]
        if answer.good:
            caller_now: Caller = answer.value
            return caller_now
        error = answer.error or StoreDown(f"the database did not identify the caller within {SOON_S:g} s")
        entry = self._entries.get(self._digest(authorization)) if isinstance(error, StoreDown) else None
        caller = None if entry is None else self._caller(entry.token, request_id)
        if caller is None:
            raise error
        return caller

    def forget(self, token_id: str) -> None:
        """After a revocation: the token is invalid from now on."""
        with self._lock:
            self._revocations += 1
            self._entries = {
                digest: entry for digest, entry in self._entries.items() if entry.token.token_id != token_id
            }

    # --- when tokens were used ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop(5.0)

    def write_used(self) -> None:
        """Raises StoreDown; the times are kept for the next write."""
        with self._lock:
            used, self._used = self._used, {}
        try:
            if used:
                self.store.tokens.note_used(used)
        except StoreDown:
            with self._lock:
                self._used = {**used, **self._used}
            raise

    # --- the cache ------------------------------------------------------------------------------------------------

    def _digest(self, authorization: str) -> str:
        if authorization[: len(SCHEME)].lower() != SCHEME:
            raise unauthorized()
        text = authorization[len(SCHEME) :].strip()
        if not callers.is_token(text):
            raise unauthorized()
        return callers.digest(self.store.secret, text)

    def _token_of(self, digest: str) -> Token:
        revocations, now = self._revocations, self.clock.monotonic()
        try:
            token = self.store.tokens.find(digest)
        except StoreDown:
            entry = self._entries.get(digest)
            if entry is None or now >= entry.usable_until:
                raise
            self._remember(digest, _Cached(entry.token, now + RETRY_S, entry.usable_until), revocations)
            return entry.token
        if token is None or not token.valid(self.clock.now()):
            with self._lock:
                self._entries.pop(digest, None)
            raise unauthorized()
        self._remember(digest, _Cached(token, now + FRESH_S, now + AWAY_S), revocations)
        return token

    def _remember(self, digest: str, entry: _Cached, revocations: int) -> None:
        with self._lock:
            if self._revocations != revocations:
                return
            if len(self._entries) >= MOST_KEPT:
                self._entries.clear()
            self._entries[digest] = entry

    def _caller(self, token: Token, request_id: str) -> Caller | None:
        """None = the token has expired since it was read."""
        now = self.clock.now()
        if not token.valid(now):
            return None
        with self._lock:
            self._used[token.token_id] = now
        return token.caller(request_id)


def unauthorized() -> Unauthorized:
    return Unauthorized("This request needs a valid token: Authorization: Bearer sup_….")

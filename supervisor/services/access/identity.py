"""Who stands behind the header Authorization: asked for every request, so answered from memory.

What the database said of a token counts for FRESH_S: so long a revocation on another replica may stay unnoticed; one
of this process counts at once. While the database is away, a token that it knew AWAY_S ago at most still counts, and
nobody else gets in. A mistyped token, a strange one, an expired and a revoked one are refused in the same words, and
the three that look right after the same question to the database. Tokens are remembered and compared by their HMAC,
whose key nobody outside has: how long that takes tells nothing of them. The token itself is in no variable that
outlives its request, in no error and in no log line.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from supervisor.domain import callers
from supervisor.domain.callers import Caller, Token
from supervisor.domain.errors import Unauthorized
from supervisor.ports.clock import Clock
from supervisor.ports.store import Store, StoreDown
from supervisor.services.together import ask_together
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker

SCHEME = "bearer "
FRESH_S = 4.0
AWAY_S = 60.0
SOON_S = 2.0
ASK_AGAIN_S = 2.0  # after the database was found away
USED_S = 60.0  # how often the times of last use are written
MOST_KEPT = 5000


@dataclass(frozen=True, slots=True)
class _Known:
    """`fresh_until` and `usable_until` are monotonic; between them the database is asked again."""

    token: Token
    fresh_until: float
    usable_until: float


@dataclass
class Identity:
    """Safe to use from any thread. `recall` touches nothing but memory; `identify` may ask the database."""

    store: Store
    clock: Clock
    _entries: dict[str, _Known] = field(default_factory=dict)
    _used: dict[str, float] = field(default_factory=dict)
    _forgotten: int = 0  # counts: what was read before a revocation is not remembered after it
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
        """None = the database must be asked. Raises Unauthorized where no token was sent, or one that nobody made."""
        entry = self._entries.get(self._digest(authorization))
        if entry is None or self.clock.monotonic() >= entry.fresh_until:
            return None
        return self._caller(entry.token, request_id)

    def identify(self, authorization: str, request_id: str) -> Caller:
        """Raises Unauthorized; StoreDown where the database is away and the caller was not here just before."""
        digest = self._digest(authorization)
        caller = self._caller(self._token_of(digest), request_id)
        if caller is None:
            raise unauthorized()
        return caller

    def identify_soon(self, authorization: str, request_id: str) -> Caller:
        """The same for reading metrics, which are wanted most while the database is away or hangs: then whom it named
        last still counts, however long ago that was."""
        answer = ask_together({"who": lambda: self.identify(authorization, request_id)}, SOON_S)["who"]
        if answer.good:
            caller_now: Caller = answer.value
            return caller_now
        error = answer.error or StoreDown(f"the database did not say within {SOON_S:g} s who that is")
        entry = self._entries.get(self._digest(authorization)) if isinstance(error, StoreDown) else None
        caller = None if entry is None else self._caller(entry.token, request_id)
        if caller is None:
            raise error
        return caller

    def forget(self, token_id: str) -> None:
        """It was revoked: from now on it counts no more."""
        with self._lock:
            self._forgotten += 1
            kept = {digest: entry for digest, entry in self._entries.items() if entry.token.token_id != token_id}
            self._entries = kept

    # --- when tokens were used ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        self._worker.stop(5.0)

    def write_used(self) -> None:
        """Raises StoreDown; nothing is lost then."""
        with self._lock:
            used, self._used = self._used, {}
        try:
            if used:
                self.store.tokens.note_used(used)
        except StoreDown:
            with self._lock:
                self._used = {**used, **self._used}
            raise

    # --- looking up -----------------------------------------------------------------------------------------------

    def _digest(self, authorization: str) -> str:
        if authorization[: len(SCHEME)].lower() != SCHEME:
            raise unauthorized()
        text = authorization[len(SCHEME) :].strip()
        if not callers.is_token(text):
            raise unauthorized()
        return callers.digest(self.store.secret, text)

    def _token_of(self, digest: str) -> Token:
        forgotten, now = self._forgotten, self.clock.monotonic()
        try:
            token = self.store.tokens.find(digest)
        except StoreDown:
            entry = self._entries.get(digest)
            if entry is None or now >= entry.usable_until:
                raise
            self._remember(digest, _Known(entry.token, now + ASK_AGAIN_S, entry.usable_until), forgotten)
            return entry.token
        if token is None or not token.valid(self.clock.now()):
            with self._lock:
                self._entries.pop(digest, None)
            raise unauthorized()
        self._remember(digest, _Known(token, now + FRESH_S, now + AWAY_S), forgotten)
        return token

    def _remember(self, digest: str, entry: _Known, forgotten: int) -> None:
        with self._lock:
            if self._forgotten != forgotten:
                return
            if len(self._entries) >= MOST_KEPT:
                self._entries.clear()
            self._entries[digest] = entry

    def _caller(self, token: Token, request_id: str) -> Caller | None:
        """None = it has expired since it was read."""
        now = self.clock.now()
        if not token.valid(now):
            return None
        with self._lock:
            self._used[token.token_id] = now
        return token.caller(request_id)


def unauthorized() -> Unauthorized:
    return Unauthorized("This needs a token that is valid here: Authorization: Bearer sup_….")

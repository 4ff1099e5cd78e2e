"""Where tokens are kept: what each stands for, and the HMAC by which it is found again, never the token itself.

Making and revoking one is a change that somebody asked for: its event is written in the same transaction. Every call
may raise StoreDown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from supervisor.domain.access.callers import Token
from supervisor.domain.events import Event


class Tokens(Protocol):
    def add(self, token: Token, digest: str, event: Event) -> None:
        """A new row, with the event that tells of it, at the token's own time."""
        ...

    def find(self, digest: str) -> Token | None:
        """Also one that has expired or was revoked; None = nobody made such a token."""
        ...

    def get(self, token_id: str) -> Token | None: ...

    def newest(self, limit: int) -> list[Token]:
        """Those that were not revoked first, in each part the newest first."""
        ...

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        """False = there is none, or it was revoked before: nothing is written, the event neither."""
        ...

    def note_used(self, used: Mapping[str, float]) -> None:
        """id -> when it was used last. An earlier time than the one on record changes nothing."""
        ...

"""Who asks: what a token stands for, as every use case gets it.

A scope says what a caller may do, the owner whose runs he may do it to. `admin` includes every scope and every owner.
Where nobody is asked who he is (a loopback server that was told to trust its computer), everybody is `LOCAL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from supervisor.domain.events import Event, EventKind


class Scope(StrEnum):
    READ = "runs:read"
    WRITE = "runs:write"
    ADMIN = "admin"
    METRICS = "metrics:read"


@dataclass(frozen=True, slots=True)
class Caller:
    """`actor` stands in the history. `token_id` "" = no token was needed. `max_active_runs` None = no limit."""

    owner: str = "local"
    actor: str = "local"
    scopes: frozenset[Scope] = frozenset({Scope.ADMIN})
    token_id: str = ""
    request_id: str = ""
    max_active_runs: int | None = None

    @property
    def admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    def may(self, scope: Scope) -> bool:
        return self.admin or scope in self.scopes

    def owns(self, owner: str) -> bool:
        """May see and change what this owner has."""
        return self.admin or owner == self.owner

    def event(self, kind: EventKind, text: str, data: Mapping[str, object] | None = None) -> Event:
        """What the caller did, with the request it came in."""
        told = dict(data or {})
        if self.request_id:
            told["request_id"] = self.request_id
        return Event(kind, text, self.actor, told)


LOCAL = Caller()

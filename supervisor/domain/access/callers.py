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


NOBODY = "\n"  # the name of no owner: names hold no control characters


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

    def sees(self, asked: str | None) -> str | None:
        """Of whom a list tells, where `asked` names an owner (None = anybody); None = of all."""
        if self.admin or asked == self.owner:
            return asked
        return self.owner if asked is None else NOBODY

    def event(self, kind: EventKind, text: str, data: Mapping[str, object] | None = None) -> Event:
        """What the caller did, with the request and the token it came with."""
        told = dict(data or {})
        if self.request_id:
            told["request_id"] = self.request_id
        if self.token_id:
            told["token_id"] = self.token_id
        return Event(kind, text, self.actor, told)

    def changed(
        self,
        kind: EventKind,
        text: str,
        before: Mapping[str, object],
        after: Mapping[str, object],
        data: Mapping[str, object] | None = None,
    ) -> Event:
        """The same, with the values of what differs, by name; null where there was none. Never those of secrets."""
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        values = {
            "before": {name: before.get(name) for name in names},
            "after": {name: after.get(name) for name in names},
        }
        return self.event(kind, text, {**(data or {}), **values})


LOCAL = Caller()

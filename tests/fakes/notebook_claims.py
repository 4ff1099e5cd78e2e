"""Claims of sessions in memory: tickets that live for a while and are good for one claim, and a clock of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from supervisor.ports.claims import Claim
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable


class ClaimRefused(Exception):
    """Its text is the code of the answer."""


@dataclass(frozen=True)
class _Ticket:
    request: LaunchRequest
    expires_at: float


class NotebookClaims:
    """Claims of ports/claims.py."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._tickets: dict[str, _Ticket] = {}
        self._claims: dict[tuple[str, str], Claim] = {}
        self.away = False

    def ticket(self, request: LaunchRequest, expires_at: float) -> str:
        text = f"ticket-{len(self._tickets) + 1}"
        self._tickets[text] = _Ticket(request, expires_at)
        return text

    def all(self) -> Mapping[tuple[str, str], Claim]:
        if self.away:
            raise ProviderUnavailable("the claims cannot be read")
        return dict(self._claims)

    def drop(self, run_id: str, launch_id: str) -> None:
        if self.away:
            raise ProviderUnavailable("the claims cannot be read")
        self._claims.pop((run_id, launch_id), None)

    # --- what a notebook does -----------------------------------------------------------------------------------------

    def claim(self, ticket: str, claimant: str, **session: str) -> Claim:
        """Raises ClaimRefused."""
        kept = self._tickets.get(ticket)
        if kept is None:
            raise ClaimRefused("TICKET_REFUSED")
        if self._now() >= kept.expires_at:
            raise ClaimRefused("TICKET_EXPIRED")
        request = kept.request
        key = (request.run_id, request.launch_id)
        existing = self._claims.get(key)
        if existing is not None and existing.claimant != claimant:
            raise ClaimRefused("TICKET_USED")
        now = self._now()
        self._claims[key] = existing or Claim(request.run_id, request.launch_id, claimant, session, now, now)
        return self._claims[key]

    def seen(self, run_id: str) -> None:
        """A request of its session arrives now."""
        self._claims = {
            key: replace(claim, seen_at=self._now()) if claim.run_id == run_id else claim
            for key, claim in self._claims.items()
        }

    @contextmanager
    def unreadable(self) -> Iterator[None]:
        self.away = True
        try:
            yield
        finally:
            self.away = False

"""The tokens of a supervisor, and the account of each token that has a cap in dollars."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from supervisor.domain.callers import Token
from supervisor.domain.events import Event
from supervisor.domain.run import Run


class Tokens(Protocol):
    """The records of tokens and their HMACs, never the tokens themselves. A change and its event are one transaction.
    All calls may raise StoreDown."""

    def add(self, token: Token, digest: str, event: Event) -> bool:
        """A new row and its event, at the time of the token. False = there is a token with this digest: neither row nor
        event is written."""

    def find(self, digest: str) -> Token | None:
        """Also an expired or revoked one; None = there is no such token."""

    def get(self, token_id: str) -> Token | None: ...

    def newest(self, limit: int) -> list[Token]:
        """The ones that are not revoked first, then newest first."""

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        """False = there is none, or it was revoked before: neither row nor event is written."""

    def note_used(self, used: Mapping[str, float]) -> None:
        """id -> time of the last use. A time before the recorded one changes nothing."""


class Accounts(Protocol):
    """What tokens let their runs spend; part of a write transaction. An allowance is of one generation of one run."""

    def payer(self, run: Run) -> str:
        """The token whose cap the present generation of this run counts for; "" = none."""

    def hold_tokens(self, token_ids: Collection[str]) -> None:
        """Transactions that hold the same token run one after the other. Before a run is written, for each token that
        the calls below concern."""

    def counted_micro(self, token_id: str, now: float) -> int:
        """Micro-USD that count for the cap of this token: what its runs have spent in the last 24 hours, and what they
        may still spend."""

    def allow(self, run: Run, token_id: str, most_micro: int, now: float) -> None:
        """The present generation of this run may spend so much for the token; a repeat changes how much."""

    def allowance_micro(self, run: Run) -> int:
        """0 = none."""

    def close_allowance(self, run: Run, now: float) -> None:
        """`run`: as it was before its next generation begins. What it has spent for a token is final."""

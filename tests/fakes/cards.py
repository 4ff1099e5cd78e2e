"""The GPUs of a computer in memory: what a person reads of them, and brings back."""

from __future__ import annotations

from dataclasses import dataclass, field

from supervisor.contract.cards import Card
from supervisor.ports.provider import ProviderUnavailable


@dataclass
class FakeCards:
    """`trouble`: why nothing can be read; "" = it can."""

    there: list[Card] = field(default_factory=list)
    trouble: str = ""

    def cards(self) -> tuple[Card, ...]:
        self._read()
        return tuple(self.there)

    def bring_back(self, uuid: str) -> bool:
        self._read()
        was = [card for card in self.there if card.uuid == uuid and card.aside is not None]
        self.there = [card._replace(aside=None) if card in was else card for card in self.there]
        return bool(was)

    def _read(self) -> None:
        if self.trouble:
            raise ProviderUnavailable(self.trouble)

"""How many more machines may be started where our own machines are the limit: places on a computer, and its GPUs.

A cloud has no such limit that we could count. A provider tells its room with each listing, so that a queue of ten
thousand runs asks for a machine only when there is a place for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Room:
    """`machines`: places left altogether, `zones`: places left by zone, `cards`: GPUs that no machine of ours has.
    None, or a zone that is not named: no limit. `cards_of`: shape -> GPUs of each of its machines. `all_cards`: how
    many there are, as far as that is known. `others`: who else has some, in words."""

    machines: int | None = None
    zones: Mapping[str, int] = field(default_factory=dict)
    cards: int | None = None
    cards_of: Mapping[str, int] = field(default_factory=dict)
    all_cards: int | None = None
    others: str = ""

    def held(self, zone: str, shape: str) -> str:
        """Why machines of ours leave no place for one more; "" = there is one, or it is not they who take it."""
        if self.machines is not None and self.machines <= 0:
            return "all places of this computer are taken by our own machines"
        if self.zones.get(zone, 1) <= 0:
            return f"all places of {zone} are taken by our own machines"
        needed = self._needed(shape)
        if needed and self.cards is not None and self.cards < needed:
            text = f"{shape} needs {_gpus(needed)}, and our own machines leave {max(0, self.cards)} free"
            return f"{text}. {self.others}" if self.others else text
        return ""

    def less(self, zone: str, shape: str) -> Room:
        """The room that is left beside one more machine."""
        zones = {**self.zones, zone: self.zones[zone] - 1} if zone in self.zones else self.zones
        machines = None if self.machines is None else self.machines - 1
        cards = None if self.cards is None else self.cards - self._needed(shape)
        return replace(self, machines=machines, zones=zones, cards=cards)

    def kept_for(self, shape: str) -> Room:
        """The room for the runs behind one that finds no place: where it waits for GPUs, the free ones are kept for
        it."""
        waits = self.cards is not None and self._needed(shape) > self.cards
        return replace(self, cards=0) if waits else self

    @property
    def full(self) -> bool:
        """No machine of any kind finds a place."""
        return self.machines is not None and self.machines <= 0

    def _needed(self, shape: str) -> int:
        """GPUs. More than there are: 0, for no wait would help, and the provider says what is wrong."""
        needed = self.cards_of.get(shape, 0)
        return 0 if self.all_cards is not None and needed > self.all_cards else needed


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"

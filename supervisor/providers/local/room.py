"""Whether one more machine may be started here and now, and with which cards.

Asked under the folders' lock, immediately before the folder is made or its agent is started: the answer holds until
the lock is given back. The listing tells the same room beforehand, so that a queue asks only when there is a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.domain.machines import room
from supervisor.domain.machines.cards import Card
from supervisor.domain.machines.machine import MachineListing, MachineState
from supervisor.domain.machines.placement import Offer, Placement
from supervisor.ports.clock import Clock
from supervisor.ports.provider import HeldByOurs, LaunchRejected, NoCapacity
from supervisor.providers.local.cards import Cards
from supervisor.providers.local.disasters import Stockouts
from supervisor.providers.local.folders import Folder, Folders, Job
from supervisor.providers.local.lookout import Lookout, Seen


@dataclass(frozen=True, slots=True)
class Room:
    """`capacity`: machines at once by zone, `machines` on the whole computer; absent or None = no limit."""

    offers: Sequence[Offer]
    capacity: Mapping[str, int | None]
    machines: int | None
    stockouts: Stockouts
    cards: Cards
    folders: Folders
    lookout: Lookout
    clock: Clock

    def find(self, placement: Placement) -> tuple[str, ...] | None:
        """As Cards.choose, for a machine that has no folder yet. Raises NoCapacity, HeldByOurs, LaunchRejected,
        OSError."""
        zone = placement.zone
        if placement not in {offer.placement for offer in self.offers}:
            raise LaunchRejected(
                f"{placement.shape} in {zone} (spot: {placement.spot}) is not in the settings"
            )
        if self.stockouts.holds(zone, self.clock.now()):
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no {placement.shape} now")
        if self.capacity.get(zone) == 0:
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no place for any machine")
        if self.machines is not None or self.capacity.get(zone) is not None:
            held = self._places(self.lookout.all()).held(zone, placement.shape)
            if held:
                raise HeldByOurs(held)
        return self.cards.choose(placement.shape, self.lookout.all)

    def listing(self, seen: Seen) -> MachineListing:
        """What was seen, with the room that it leaves. Raises OSError."""
        cards, all_cards, others = self.cards.room(seen)
        places = replace(
            self._places(seen), cards=cards, all_cards=all_cards, cards_of=self.cards.promised, others=others
        )
        return replace(seen.listing, room=places)

    def _places(self, seen: Seen) -> room.Room:
        living = [m.zone for m in seen.listing.machines if m.state is not MachineState.ENDED]
        lost = len(seen.unreadable)  # they may be in any zone, and a computer that is too full helps nobody
        taken = Counter(living)
        left = {zone: limit - taken[zone] - lost for zone, limit in self.capacity.items() if limit}
        return room.Room(None if self.machines is None else self.machines - len(living) - lost, left)

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        """The cards of a launch that was cut off before its start: they may be another machine's by now. Raises as
        `find`."""
        chosen = self.cards.choose(placement.shape, self.lookout.all, job.gpu_ids or ())
        if chosen is not None and chosen != job.gpu_ids:
            folder.write_cards(chosen)

    def survey(self) -> tuple[Card, ...]:
        """Every card with its holder. Raises CardsUnread, OSError."""
        return self.cards.states(self.lookout.all())

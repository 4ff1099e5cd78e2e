"""Whether one more machine may be started here and now, and with which cards.

Asked under the folders' lock, immediately before the folder is made or its agent is started: the answer holds until
the lock is given back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.domain.cards import Card
from supervisor.domain.machine import MachineState
from supervisor.domain.placement import Offer, Placement
from supervisor.ports.clock import Clock
from supervisor.ports.provider import LaunchRejected, NoCapacity
from supervisor.providers.local.cards import Cards
from supervisor.providers.local.disasters import Stockouts
from supervisor.providers.local.folders import Folder, Folders, Job
from supervisor.providers.local.lookout import Lookout


@dataclass(frozen=True, slots=True)
class Room:
    """`capacity`: machines at once by zone; absent or None = no limit."""

    offers: Sequence[Offer]
    capacity: Mapping[str, int | None]
    stockouts: Stockouts
    cards: Cards
    folders: Folders
    lookout: Lookout
    clock: Clock

    def find(self, placement: Placement) -> tuple[str, ...] | None:
        """As Cards.choose, for a machine that has no folder yet. Raises NoCapacity, LaunchRejected, OSError."""
        zone = placement.zone
        if placement not in {offer.placement for offer in self.offers}:
            raise LaunchRejected(
                f"{placement.shape} in {zone} (spot: {placement.spot}) is not in the settings"
            )
        if self.stockouts.holds(zone, self.clock.now()):
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no {placement.shape} now")
        limit = self.capacity.get(zone)
        if limit is not None:
            seen = self.lookout.all()
            taken = sum(m.zone == zone and m.state is not MachineState.ENDED for m in seen.listing.machines)
            taken += len(seen.unreadable)  # they may be here, and a full computer helps nobody
            if taken >= limit:
                raise NoCapacity(
                    f"ZONE_RESOURCE_POOL_EXHAUSTED: {taken} of {limit} machines of zone {zone} are taken"
                )
        return self.cards.choose(placement.shape, self.lookout.all)

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        """The cards of a launch that was cut off before its start: they may be another machine's by now. Raises as
        `find`."""
        chosen = self.cards.choose(placement.shape, self.lookout.all, job.gpu_ids or ())
        if chosen is not None and chosen != job.gpu_ids:
            folder.write_cards(chosen)

    def survey(self) -> tuple[Card, ...]:
        """Every card with its holder. Raises CardsUnread, OSError."""
        return self.cards.states(self.lookout.all())

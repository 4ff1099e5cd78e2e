"""Machines on this computer, for real trainings on a workstation: places as everywhere in `machinefolder`, and cards.

A machine takes a place and the cards that its shape promises; which of them are free is asked under the folders' lock.
What its agent has seen of a bad card outlives the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from supervisor.domain.machines import Card, MachineListing, MachineRef, Offer, Placement
from supervisor.machinefolder.folders import Folder, Job
from supervisor.machinefolder.lookout import Seen
from supervisor.machinefolder.papers import clear_answers
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import FolderProvider
from supervisor.machinefolder.room import Places
from supervisor.ports.platform import ShapePrice
from supervisor.ports.provider import NotSupported
from supervisor.providers.local.cards import Cards
from supervisor.providers.local.nvidia_smi import NvidiaSmi
from supervisor.providers.local.traits import TRAITS


@dataclass(frozen=True, slots=True)
class Room:
    """Admission of machinefolder/room.py."""

    places: Places
    cards: Cards

    def admit(self, placement: Placement) -> tuple[str, ...] | None:
        self.places.admit(placement)
        return self.cards.choose(placement.shape, self.places.lookout.all)

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        chosen = self.cards.choose(placement.shape, self.places.lookout.all, job.gpu_ids or ())
        if chosen is not None and chosen != job.gpu_ids:
            folder.write_cards(chosen)

    def listing(self, seen: Seen) -> MachineListing:
        cards, all_cards, others = self.cards.room(seen)
        left = replace(
            self.places.left(seen), cards=cards, all_cards=all_cards, cards_of=self.cards.promised, others=others
        )
        return replace(seen.listing, capacity=left)

    def keep(self, folder: Folder) -> None:
        self.cards.quarantine.keep(folder)

    def survey(self) -> tuple[Card, ...]:
        """Every card with its holder. Raises CardsUnread, OSError."""
        return self.cards.states(self.places.lookout.all())


class LocalProvider(FolderProvider):
    """Also OwnCards of ports/provider.py. `gpus`: cards of each machine by shape, empty = cards are left alone; the
    rest as in FolderProvider."""

    name = TRAITS.kind  # another one where the settings name it so
    traits = TRAITS

    def __init__(
        self,
        data_dir: Path,
        offers: Sequence[Offer],
        capacity: Mapping[str, int | None],
        *,
        gpus: Mapping[str, int] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(data_dir, offers, capacity, **settings)
        self._cards = Cards(gpus or {}, self._folders, self._agents.lives, NvidiaSmi())
        self._admission = self._room = Room(self._places, self._cards)

    def cards(self) -> tuple[Card, ...]:
        """The computer's GPUs. ProviderUnavailable when nothing is known of them."""
        with clear_answers("the GPUs of this computer"):
            return self._room.survey()

    def bring_back(self, uuid: str) -> bool:
        """A person says that this GPU works again; False = it was not set aside. ProviderUnavailable."""
        with clear_answers("the GPUs that are set aside"):
            return self._cards.quarantine.bring_back(uuid)


class LocalPlatform(FolderPlatform):
    place = "this computer"

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("the prices of machines on this computer are the setting local_prices")

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("only Google Cloud keeps consoles in a log service")

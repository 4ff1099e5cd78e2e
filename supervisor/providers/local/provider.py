"""Machines on this computer, for trainings on a workstation: limits as everywhere in `machinefolder`, and cards.

A machine counts against the limits and gets the cards that its shape promises; the free cards are read under the lock
of the folders. What an agent reports about a bad card is kept longer than the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from supervisor.contract.cards import Card
from supervisor.domain.machines import MachineListing, MachineRef, Offer, Placement
from supervisor.domain.profile import Profile, day_of
from supervisor.host.cards import Cards
from supervisor.host.folders import Folder, Job
from supervisor.host.machines import Machines
from supervisor.host.nvidia_smi import NvidiaSmi
from supervisor.machinefolder.capacity import MachineLimits
from supervisor.machinefolder.observer import Survey, as_unavailable
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import FolderProvider
from supervisor.ports.platform import ShapePrice
from supervisor.ports.provider import NotSupported
from supervisor.providers.local.profile import profile
from supervisor.providers.local.traits import TRAITS


@dataclass(frozen=True, slots=True)
class CardAdmission:
    """Admission of machinefolder/capacity.py: the limits first, then the cards."""

    limits: MachineLimits
    cards: Cards
    machines: Machines

    def admit(self, placement: Placement) -> tuple[str, ...] | None:
        self.limits.admit(placement)
        return self.cards.choose(placement.shape, self.machines.survey)

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        chosen = self.cards.choose(placement.shape, self.machines.survey, job.gpu_ids or ())
        if chosen is not None and chosen != job.gpu_ids:
            folder.write_cards(chosen)

    def listing(self, survey: Survey) -> MachineListing:
        cards, all_cards, others = self.cards.left(survey.folders)
        capacity = replace(
            self.limits.left(survey), cards=cards, all_cards=all_cards, cards_of=self.cards.promised, others=others
        )
        return replace(survey.listing, capacity=capacity)

    def keep(self, folder: Folder) -> None:
        self.cards.quarantine.keep(folder)


class LocalProvider(FolderProvider):
    """Also OwnCards of ports/provider.py. `gpus`: cards of each machine by shape, empty = cards are not assigned; the
    rest as in FolderProvider."""

    name = TRAITS.kind  # the settings may give another name
    traits = TRAITS

    def __init__(
        self,
        data_dir: Path,
        offers: Sequence[Offer],
        capacity: Mapping[str, int | None],
        *,
        gpus: Mapping[str, int] | None = None,
        most: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(data_dir, offers, capacity, most=most, **settings)
        self._profile = profile(self._folders.machines, most, day_of(self._clock.now()))
        self._cards = Cards(
            gpus or {}, self._folders, started=self._agents.lives, smi=NvidiaSmi(), setting="local_gpus"
        )
        self._admission = CardAdmission(self._limits, self._cards, self._machines)

    def profile(self, zone: str = "") -> Profile:
        return self._profile

    def cards(self) -> tuple[Card, ...]:
        """The computer's GPUs. ProviderUnavailable when they cannot be read."""
        with as_unavailable("the GPUs of this computer"):
            return self._cards.states(self._machines.survey())

    def bring_back(self, uuid: str) -> bool:
        """A user says that this GPU works again; False = it was not set aside. ProviderUnavailable."""
        with as_unavailable("the GPUs that are set aside"):
            return self._cards.quarantine.bring_back(uuid)


class LocalPlatform(FolderPlatform):
    place = "this computer"

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("the prices of machines on this computer are the setting local_prices")

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("only Google Cloud keeps consoles in a log service")

"""How many machines one computer has capacity for, and whether one more may start.

Machines are counted by zone and in total. Without a setting the computer runs one training for each of its GPUs, or as
many as its cores and memory allow: otherwise a queue of three hundred runs would start three hundred processes. A
stock-out that a user injected is on disk before it takes effect, so it survives a restart of the supervisor.

Admission is checked under the lock of the folders, immediately before the folder is made or its agent is started: the
result is valid until the lock is released. The listing shows the same capacity beforehand, so that a waiting run
launches only when there is some.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from supervisor.domain.machines import Capacity, MachineListing, MachineState, Offer, Placement
from supervisor.host.files import Unreadable, read_json, write_json
from supervisor.host.folders import Folder, Job
from supervisor.machinefolder.observer import Observer, Survey
from supervisor.ports.clock import Clock
from supervisor.ports.provider import CapacityInUse, LaunchRejected, NoCapacity

MEMORY_BYTES = 2 * 2**30  # for each training
CGROUP = Path("/sys/fs/cgroup")  # the limits of a container
OFF = (MachineState.ENDED, MachineState.ASKED)  # a kept machine that is to be started again is ASKED
CARDS = Path("/proc/driver/nvidia/gpus")  # NVIDIA's driver makes one folder for each card


class Admission(Protocol):
    """Whether one more machine may start now, and with which cards."""

    def admit(self, placement: Placement) -> tuple[str, ...] | None:
        """The UUIDs of the machine's cards; None = cards are not assigned. Raises NoCapacity, CapacityInUse,
        LaunchRejected, OSError."""
        ...

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        """A launch that was cut off before its start: another machine may have its cards by now. Raises as `admit`."""
        ...

    def listing(self, survey: Survey) -> MachineListing:
        """The machines with the capacity that they leave. Raises OSError."""
        ...

    def keep(self, folder: Folder) -> None:
        """Save what must exist longer than this machine's folder, before it is archived. Raises Unreadable, OSError."""
        ...


class Stockouts:
    """Zones that have no capacity for now: {zone: epoch seconds of the end, or null = until it is canceled}."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, zones: Sequence[str], for_s: float | None, now: float) -> None:
        """`for_s` None = until it is canceled, 0 = cancel."""
        until = None if for_s is None else now + for_s
        ends = {**self._read(), **dict.fromkeys(zones, until)}
        write_json(self._path, {zone: end for zone, end in ends.items() if end is None or end > now})

    def holds(self, zone: str, now: float) -> bool:
        until = self._read().get(zone, 0.0)
        return until is None or now < until

    def _read(self) -> dict[str, float | None]:
        data = read_json(self._path) or {}
        try:
            return {zone: None if until is None else float(until) for zone, until in data.items()}
        except (TypeError, ValueError) as error:
            raise Unreadable(f"{self._path} does not have its expected content: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLimits:
    """Admission by the number of machines alone. `capacity`: machines at once by zone, `most`: in total; absent or
    None = no limit."""

    offers: Sequence[Offer]
    capacity: Mapping[str, int | None]
    most: int | None
    stockouts: Stockouts
    observer: Observer
    clock: Clock

    def admit(self, placement: Placement) -> tuple[str, ...] | None:
        zone = placement.zone
        if placement not in {offer.placement for offer in self.offers}:
            raise LaunchRejected(f"{placement.shape} in {zone} (spot: {placement.spot}) is not in the settings")
        if self.stockouts.holds(zone, self.clock.now()):
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no {placement.shape} now")
        if self.capacity.get(zone) == 0:
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no capacity for any machine")
        if self.most is not None or self.capacity.get(zone) is not None:
            held = self.left(self.observer.survey()).why_full(zone, placement.shape)
            if held:
                raise CapacityInUse(held)
        return None

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        """Nothing: the folder itself counts as a machine."""

    def listing(self, survey: Survey) -> MachineListing:
        return replace(survey.listing, capacity=self.left(survey))

    def keep(self, folder: Folder) -> None:
        """Nothing."""

    def left(self, survey: Survey) -> Capacity:
        """The capacity that these machines leave."""
        zones_in_use = [m.zone for m in survey.listing.machines if m.state not in OFF]
        unreadable = len(survey.folders.unreadable)  # they count in every zone, because they may be in any of them
        counts = Counter(zones_in_use)
        zones = {zone: limit - counts[zone] - unreadable for zone, limit in self.capacity.items() if limit}
        return Capacity(None if self.most is None else self.most - len(zones_in_use) - unreadable, zones)


def default_limit(promised: Mapping[str, int], cards: Path = CARDS) -> tuple[int, str]:
    """(machines at once, reason). `promised`: shape -> GPUs of each of its machines; these are counted one by one."""
    gpus = _card_count(cards)
    if gpus and not any(promised.values()):
        return gpus, f"one for each of {gpus} GPUs" if gpus > 1 else "one GPU"
    cores = min(float(len(os.sched_getaffinity(0))), _quota(CGROUP / "cpu.max"))
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory_bytes = min(float(memory), *_numbers(CGROUP / "memory.max"), float("inf"))
    by_cores, by_memory = max(1, int(cores)), max(1, int(memory_bytes // MEMORY_BYTES))
    most = max(gpus, min(by_cores, by_memory))
    if by_memory < by_cores:
        return most, f"one for each 2 GiB of {memory_bytes / 2**30:.1f} GiB of memory"
    return most, f"one for each of {by_cores} cores" if by_cores > 1 else "one core"


def _quota(file: Path) -> float:
    """In cores; infinite where there is no limit."""
    numbers = _numbers(file)
    return numbers[0] / numbers[1] if len(numbers) == 2 and numbers[1] else float("inf")


def _numbers(file: Path) -> list[float]:
    """The numbers in the file; `max` is not a number."""
    try:
        return [float(word) for word in file.read_text().split() if word.isdigit()]
    except OSError:
        return []


def _card_count(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:  # there is no NVIDIA driver
        return 0

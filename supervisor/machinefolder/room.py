"""How much room there is for machines that are folders of one computer, and who may still start.

Places are counted by zone and altogether. Where nobody has said how many, the computer carries one training for each of
its GPUs, else by its cores and memory: without that, a queue of three hundred runs would start three hundred processes.
A stock-out that a person injected is on disk before it acts, so it survives a restart of the supervisor.

Admission is asked under the folders' lock, immediately before the folder is made or its agent is started: the answer
holds until the lock is given back. The listing shows the same room beforehand, so that a queue asks only when there is
a place.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from supervisor.domain import machines
from supervisor.domain.machines import MachineListing, MachineState, Offer, Placement
from supervisor.machinefolder.folders import Folder, Job
from supervisor.machinefolder.lookout import Lookout, Seen
from supervisor.machinefolder.papers import Unreadable, read_json, write_json
from supervisor.ports.clock import Clock
from supervisor.ports.provider import CapacityInUse, LaunchRejected, NoCapacity

MEMORY_BYTES = 2 * 2**30  # of each training
CGROUP = Path("/sys/fs/cgroup")  # of a container: the limits that it was given
CARDS = Path("/proc/driver/nvidia/gpus")  # one folder for each card, written by NVIDIA's driver


class Admission(Protocol):
    """Whether one more machine may start here and now, and with which cards."""

    def admit(self, placement: Placement) -> tuple[str, ...] | None:
        """The UUIDs of the machine's cards; None = cards are left alone. Raises NoCapacity, CapacityInUse,
        LaunchRejected, OSError."""
        ...

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        """A launch that was cut off before its start: what it was given may be another machine's by now. Raises as
        `admit`."""
        ...

    def listing(self, seen: Seen) -> MachineListing:
        """What was seen, with the room that it leaves. Raises OSError."""
        ...

    def keep(self, folder: Folder) -> None:
        """Whatever must outlive this machine's folder, before it is put away. Raises Unreadable, OSError."""
        ...


class Stockouts:
    """Zones that have no capacity for now: {zone: epoch seconds of the end, or null = until called off}."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, zones: Sequence[str], for_s: float | None, now: float) -> None:
        """`for_s` None = until called off, 0 = called off."""
        until = None if for_s is None else now + for_s
        wanted = {**self._read(), **dict.fromkeys(zones, until)}
        write_json(self._path, {zone: end for zone, end in wanted.items() if end is None or end > now})

    def holds(self, zone: str, now: float) -> bool:
        zones = self._read()
        if zone not in zones:
            return False
        until = zones[zone]
        return until is None or now < until

    def _read(self) -> dict[str, float | None]:
        data = read_json(self._path) or {}
        try:
            return {zone: None if until is None else float(until) for zone, until in data.items()}
        except (TypeError, ValueError) as error:
            raise Unreadable(f"{self._path} is not what was written there: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Admission by count alone. `capacity`: machines at once by zone, `most`: altogether; absent or None = no limit."""

    offers: Sequence[Offer]
    capacity: Mapping[str, int | None]
    most: int | None
    stockouts: Stockouts
    lookout: Lookout
    clock: Clock

    def admit(self, placement: Placement) -> tuple[str, ...] | None:
        zone = placement.zone
        if placement not in {offer.placement for offer in self.offers}:
            raise LaunchRejected(f"{placement.shape} in {zone} (spot: {placement.spot}) is not in the settings")
        if self.stockouts.holds(zone, self.clock.now()):
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no {placement.shape} now")
        if self.capacity.get(zone) == 0:
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no place for any machine")
        if self.most is not None or self.capacity.get(zone) is not None:
            held = self.left(self.lookout.all()).why_full(zone, placement.shape)
            if held:
                raise CapacityInUse(held)
        return None

    def renew(self, folder: Folder, job: Job, placement: Placement) -> None:
        """A place is held by the folder itself."""

    def listing(self, seen: Seen) -> MachineListing:
        return replace(seen.listing, capacity=self.left(seen))

    def keep(self, folder: Folder) -> None:
        """Nothing outlives it."""

    def left(self, seen: Seen) -> machines.Capacity:
        """The places that these machines leave."""
        living = [m.zone for m in seen.listing.machines if m.state is not MachineState.ENDED]
        lost = len(seen.unreadable)  # they may be in any zone, and a computer that is too full helps nobody
        taken = Counter(living)
        zones = {zone: limit - taken[zone] - lost for zone, limit in self.capacity.items() if limit}
        return machines.Capacity(None if self.most is None else self.most - len(living) - lost, zones)


def carries(promised: Mapping[str, int], cards: Path = CARDS) -> tuple[int, str]:
    """(machines at once, why). `promised`: shape -> GPUs of each of its machines; these are counted one by one."""
    gpus = _cards(cards)
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
    """Those that stand there; `max` is none."""
    try:
        return [float(word) for word in file.read_text().split() if word.isdigit()]
    except OSError:
        return []


def _cards(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:  # no NVIDIA driver here
        return 0

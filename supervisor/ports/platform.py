"""What a person may ask the place where machines come from, beside the machines themselves: prices, its own records,
a console in parts, what a launch would send. The loop never asks any of it, and nothing is decided on it.

Calls block, with deadlines of their own (seconds). What is not clearly answered is ProviderUnavailable; what this place
does not have at all is NotSupported (both of ports/provider.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.ports.provider import LaunchRequest

OLD_PRICE_DAYS = 30  # an older price is shown as old


@dataclass(frozen=True, slots=True)
class Account:
    """Whose machines these are: in a cloud the project's id and number ("" = not told). `console_url`: where a person
    sees the same machines; "" = nowhere."""

    name: str
    number: str = ""
    console_url: str = ""


@dataclass(frozen=True, slots=True)
class PlatformEvent:
    """One line of the platform's own history of a machine: `kind` in its words, such as compute.instances.preempted."""

    at: float  # epoch seconds
    event_id: str
    kind: str
    text: str
    actor: str
    machine_name: str
    zone: str


@dataclass(frozen=True, slots=True)
class ConsolePart:
    """Offsets count the bytes of the console since the machine's boot. `start`: of the first byte here; larger than
    what was asked for: the bytes between are lost, because the platform keeps only the newest. `end`: where to go on;
    `end - start` is the length of the content, except where the platform has replaced bytes that are no text."""

    content: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShapePrice:
    """What one machine of a shape costs per hour in a region, all its parts together. None = unknown, never 0. `dated`:
    the day of the oldest part, YYYY-MM-DD; "" = it came from the settings. `source`: where it was read."""

    shape: str
    region: str
    spot_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    source: str
    dated: str = ""

    def age_days(self, today: date) -> int | None:
        """None = it has no day, and so no age. Never below 0: a clock that is behind makes nothing younger than new."""
        return max(0, (today - date.fromisoformat(self.dated)).days) if self.dated else None


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """`offers`: what the run may ask for, in the order of the tries. `checkpoint_bytes`: of one checkpoint; None =
    nobody knows yet. `checkpoints_kept`: on a machine's disk, beside the one that is being written. `image`: "" =
    none."""

    offers: tuple[Offer, ...]
    image: str = ""
    checkpoint_bytes: int | None = None
    checkpoints_kept: int = 3


@dataclass(frozen=True, slots=True)
class DataPlace:
    """Where data that every machine reads lies. `regions`: those of the asked ones for which that is their own place,
    or a group of regions around them."""

    what: str  # in words, such as "the bucket my-bucket" with its address
    location: str
    regions: tuple[str, ...]


class Platform(Protocol):
    log_service: str  # the name of the service that keeps consoles of machines that are gone; "" = there is none

    def account(self) -> Account:
        """No network where it is known already. Raises ProviderUnavailable."""
        ...

    def account_so_far(self) -> Account:
        """What is known of it without asking anybody: the number only once `account` was answered. Raises nothing."""
        ...

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        """What `launch` of this request would send, as JSON values; no network, nothing is made, no value of a secret
        is in it. Raises LaunchRejected where the request could never be sent."""
        ...

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        """What is unwise about these machines for this run: memory, disks, data in another region. Lines that are well
        are left out. Raises nothing: what cannot be read is a line that says so."""
        ...

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        """How likely each spot machine is to be had now, 0 to 1, as the platform judges it; what it does not judge is
        left out. Raises ProviderUnavailable, NotSupported."""
        ...

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        """Where the data of runs with this image lies, as seen from these regions. Without `ask` no network is touched:
        what is not known yet is being learnt meanwhile. Raises ProviderUnavailable where it is not known."""
        ...

    def prices(self) -> tuple[ShapePrice, ...]:
        """One for each shape and region that is offered, in that order. No network."""
        ...

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        """Ask the platform for its prices now, keep them, and use them from now on; the answer is that of `prices`.
        Takes up to a minute. Raises ProviderUnavailable (the old ones stay), NotSupported."""
        ...

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        """What the platform itself recorded of these machines since then (epoch seconds), oldest first; also of those
        that are gone. Raises ProviderUnavailable."""
        ...

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        """What the machine wrote to its console from this offset on; empty = nothing more yet. A negative start counts
        from the end. A character that is torn at the end stays for the next part. Raises MachineMissing (also where
        the console goes with the machine's power), ProviderUnavailable."""
        ...

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        """The console as the platform's own log service kept it: also of a machine that is gone, and what the console's
        ring has lost. The newest lines since then (epoch seconds), oldest first; empty = the service has none. Raises
        ProviderUnavailable, NotSupported."""
        ...

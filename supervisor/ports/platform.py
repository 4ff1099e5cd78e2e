"""What a platform offers to people beside its machines: prices, its records, consoles, a preview of a launch. The loop
uses none of it, and no decision depends on it.

Calls block, with deadlines of their own (seconds). Without a clear response a call raises ProviderUnavailable; without
the feature NotSupported (both of ports/provider.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Protocol

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.ports.provider import LaunchRequest

OLD_PRICE_DAYS = 30  # an older price is shown as old


@dataclass(frozen=True, slots=True)
class Account:
    """The owner of the machines: in a cloud the project's id and number ("" = not known). `console_url`: the platform's
    page of the same machines; "" = none."""

    name: str
    number: str = ""
    console_url: str = ""


@dataclass(frozen=True, slots=True)
class PlatformEvent:
    """One line of the platform's history of a machine. `kind`: the platform's, such as compute.instances.preempted."""

    at: float  # epoch seconds
    event_id: str
    kind: str
    text: str
    actor: str
    machine_name: str
    zone: str


@dataclass(frozen=True, slots=True)
class ConsolePart:
    """Offsets count the console's bytes since the machine's boot. `start`: of the first byte here; if it is larger than
    requested, the bytes between are lost, because the platform keeps only the newest. `end`: the offset of the next
    part; `end - start` is the length of the content, unless the platform has replaced bytes that are no text."""

    content: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShapePrice:
    """The price of one machine per hour in a region, all its parts together. None = unknown, never 0. `dated`: the day
    of the oldest part, YYYY-MM-DD; "" = it is from the settings. `source`: where it was read."""

    shape: str
    region: str
    spot_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    source: str
    dated: str = ""

    def age_days(self, today: date) -> int | None:
        """None = it has no day. At least 0, also when a clock is behind."""
        return max(0, (today - date.fromisoformat(self.dated)).days) if self.dated else None


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """`offers`: for the run, in the order of the tries. `checkpoint_bytes`: of one checkpoint; None = not known yet.
    `checkpoints_kept`: on a machine's disk, beside the one that is being written. `image`: "" = none."""

    offers: tuple[Offer, ...]
    image: str = ""
    checkpoint_bytes: int | None = None
    checkpoints_kept: int = 3
    has_secrets: bool = False


@dataclass(frozen=True, slots=True)
class Login:
    """`command`: opens a shell on a machine, with the login of the person; "" = the machine is the supervisor's own
    computer. `folder`: of the machine, there; "" = it has none. `ssh_config`, `ssh_known_hosts`: files of the
    supervisor's computer that its own connections use; "" = those of its user."""

    command: str
    folder: str = ""
    ssh_config: str = ""
    ssh_known_hosts: str = ""


@dataclass(frozen=True, slots=True)
class DataPlace:
    """The location of data that each machine reads. `regions`: the requested ones to which this location is local."""

    what: str  # in words, such as "the bucket my-bucket" with its address
    location: str
    regions: tuple[str, ...]


class BillKind(StrEnum):
    """What a line of a bill is for."""

    MACHINE = "machine"  # cores, memory, cards and local disks
    DISK = "disk"
    ADDRESS = "address"
    TRAFFIC = "traffic"
    OTHER = "other"  # taxes, adjustments, and what we cannot name


@dataclass(frozen=True, slots=True)
class BillLine:
    """A sum of the platform's bill: of one machine, one day of UTC (YYYY-MM-DD) and one kind. `supervisor_id`,
    `run_id`, `launch_id`: as its labels say; "" = it has no such label. `seconds`: of the machine; None = this line
    does not count them. `cost` and `credits` (at most 0) in `currency`; `rate`: units of it for a dollar, None = not
    known."""

    day: str
    kind: BillKind
    supervisor_id: str
    run_id: str
    launch_id: str
    machine_name: str
    zone: str
    seconds: float | None
    cost: float
    credits: float
    currency: str = "USD"
    rate: float | None = 1.0


@dataclass(frozen=True, slots=True)
class Bill:
    """All lines of usage in [`since`, `until`) that have a label of ours or a name like those of our machines.
    `settled_until`: usage before this moment is in the bill; None = nobody can say. Times are epoch seconds."""

    since: float
    until: float
    settled_until: float | None
    lines: tuple[BillLine, ...]


class Bills(Protocol):
    """The platform's own bill. A read costs money: nothing but a person's request reads it."""

    terms: str  # one clause: where it is read, and what a read costs at most

    def read(self, since: float, until: float, supervisor_id: str) -> Bill:
        """Whole or not at all. Takes up to a minute. Raises ProviderUnavailable."""


class Platform(Protocol):
    log_service: str  # the service that keeps the consoles of machines that are gone; "" = there is none

    def account(self) -> Account:
        """Sends no request if it is known already. Raises ProviderUnavailable."""

    def account_so_far(self) -> Account:
        """What is known without a request: the number only after a successful `account`. Raises nothing."""

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        """What `launch` of this request would send, as JSON values without the values of secrets. Sends no request.
        Raises LaunchRejected where the request is invalid."""

    def login(self, ref: MachineRef) -> Login:
        """How a person gets a shell on this machine. Sends no request."""

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        """The problems of these machines for this run (memory, disks, data in another region), and what people used to
        decide by hand and need not, with the reason. Raises nothing: a failed read is a line of its own."""

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        """The platform's estimate of the availability of each spot machine, 0 to 1; only offers that it estimates.
        Raises ProviderUnavailable, NotSupported."""

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        """The locations of the data of runs with this image, for these regions. Without `ask` it returns without a
        request, and reads missing facts in the background. Raises ProviderUnavailable where they are missing."""

    def prices(self) -> tuple[ShapePrice, ...]:
        """One for each shape and region of the offers, in that order. Sends no request."""

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        """Read and store the platform's prices now; returns the new `prices`. Takes up to a minute. Raises
        ProviderUnavailable (the old ones stay), NotSupported."""

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        """The platform's records of these machines since then (epoch seconds), oldest first; also of machines that are
        gone. Raises ProviderUnavailable."""

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        """The machine's console from this offset on; empty = nothing new. A negative start counts from the end. An
        incomplete character at the end is left for the next part. Raises MachineMissing (also where the console ends
        with the machine's power), ProviderUnavailable."""

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        """The console in the platform's log service: also of a machine that is gone, and with lines that the console's
        ring buffer has lost. The newest lines since then (epoch seconds), oldest first; empty = there are none. Raises
        ProviderUnavailable, NotSupported."""

"""Machines: what a provider offers, what it rents out, and how many more of our machines fit.

A placement is provider, region, zone, shape and spot. An offer adds its price, a zone record the results of our own
tries, a capacity what our own machines leave. The name of a cell holds provider, scope and bucket.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from supervisor.contract.cards import Card
from supervisor.domain.causes import Cause

OfferKey = tuple[str, str, str, bool]  # provider, zone, shape, spot
FLEX_START = "flex-start"

# Label keys on each machine. A run id may be too long for a label: adoption compares the launch id and the name.
RUNNER_LABEL = "spot-runner"
SUPERVISOR_LABEL = "spot-supervisor-id"
RUN_LABEL = "spot-run-id"
ATTEMPT_LABEL = "spot-attempt"
LAUNCH_LABEL = "spot-launch-id"
# Keys of the older shell runner, which our machines have too for people's filters. Only an import reads them.
OLD_RUNNER_LABEL = "runner_label"
OLD_RUN_LABEL = "run_id"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a machine runs. Zone records are kept by `offer_key`. `flex`: the request for it waits at the platform for
    capacity (flex-start), and the machine is not preempted."""

    provider: str
    region: str
    zone: str
    shape: str
    spot: bool
    flex: bool = False

    @property
    def market(self) -> str:
        """For people."""
        return FLEX_START if self.flex else "spot" if self.spot else "on-demand"


@dataclass(frozen=True, slots=True)
class Offer:
    """A placement and its price. None = the price is unknown: it never counts as 0, and no budget can depend on it.
    `minimum_s`: the minimum time that the platform bills for. `off_usd_per_h`: of its disks, while it is switched
    off. `chance`: how likely the platform has such a machine now, as it says itself, 0 to 1; None = it does not say."""

    placement: Placement
    price_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    minimum_s: float = 0.0
    off_usd_per_h: float | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class ZoneRecord:
    """Results of the last create calls for one offer; after a stock-out it cools down for 3 to 30 minutes. And its last
    preemptions, which a later successful call does not delete."""

    failures: int  # stock-outs in a row; 0 = the last call returned a machine
    cool_until: float  # epoch seconds
    cause: str  # of the last failure: no_capacity, quota or launch_rejected; "" = none
    detail: str
    lost_at: tuple[float, ...] = ()  # the last preemptions, oldest first, epoch seconds
    stocked_out_at: float = 0.0  # the last time without capacity, epoch seconds; 0 = never


@dataclass(frozen=True, slots=True)
class Call:
    """A create call of the past with its answer. `at`: when it was answered. `obtained`: it brought a machine, which
    worked until `ended_at` (None: it still does). `lost`: the platform took that machine."""

    offer: OfferKey
    at: float
    obtained: bool
    ended_at: float | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """What our calls of the past say about the next machine of an offer (lifecycle/rungs/survival)."""

    life_s: float  # expected within the first two hours
    return_per_s: float  # the rate at which a zone that refused has capacity again
    is_measured: bool = False  # that rate comes from own calls; False = from the prior
    up_at: float = 0.0  # when one of our machines last worked there; 0 = never
    lives: int = 0  # machines that we had there
    lost: int = 0  # machines of these that the platform took
    held_s: float = 0.0  # how long these worked, together


class How(StrEnum):
    """Who ends the bill of a machine that its own end does not end."""

    COMMAND = "command"  # on the supervisor's computer
    WEBHOOK = "webhook"
    ASK = "ask"  # a person
    RELEASE = "release"  # the release by the provider, and the machine cannot be had back


RELEASE = "release"  # the verb of a provider whose release ends the bill


@dataclass(frozen=True, slots=True)
class Meter:
    """The bill of a host, which runs until somebody stops it. `verb`: what stops it, as the profile names it. `verbs`:
    all that a person may approve, `verb` first. `confirms`: a later read can say whether it still runs."""

    how: How
    verb: str
    verbs: tuple[str, ...]
    confirms: bool = False


NO_OTHER_WAY = Meter(How.RELEASE, RELEASE, (RELEASE,))


def offer_key(placement: Placement) -> OfferKey:
    """What is learned of flex-start says nothing about on-demand: its shape has a name of its own."""
    return (placement.provider, placement.zone, kind_of(placement.shape, flex=placement.flex), placement.spot)


def kind_of(shape: str, *, flex: bool) -> str:
    return f"{shape} {FLEX_START}" if flex else shape


class MachineState(StrEnum):
    ASKED = "asked"  # the platform still looks for capacity and may refuse: nothing is billed yet
    STARTING = "starting"
    UP = "up"
    ENDING = "ending"
    ENDED = "ended"  # stopped but not deleted: it may still cost, and must be released


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """The platform's own record of why a machine ends or ended; authoritative: one signal is enough."""

    cause: Cause  # preempted, host_error, host_rebooted, expired or machine_deleted
    detail: str
    at: float | None = None  # epoch seconds by the platform's clock; for display and the bill, not for decisions
    notice_s: float | None = None
    memory_bytes: float | None = None  # the most that it used, where memory ended it; None = not measured


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of a listing. `machine_id` is the provider's own unambiguous id, never a name or an IP alone. `queued`:
    it is ASKED, and keeps a place in a queue of the platform, perhaps for hours; `detail` says what it waits for.
    `needs`: it is queued, and begins only when a person has done this; "" = no person is needed.
    `waits_for`: the same of another one that is ASKED, "" = the platform does not say it. `doubt`: it is UP, and the
    platform does not reach its host: the record of its end, should its agent be silent too. `node`: the computer of a
    cluster that it runs on, which outlives it; "" = not known, or there is none."""

    machine_id: str
    name: str
    zone: str
    state: MachineState
    supervisor_id: str  # "" = it has no label of any supervisor
    run_id: str
    launch_id: str
    created_at: float | None = None  # epoch seconds by the platform's clock
    record: MachineRecord | None = None
    detail: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    shape: str = ""  # its name in the settings if they offer it, else the platform's name; "" = not known
    spot: bool | None = None  # None = not known
    queued: bool = False
    needs: str = ""
    waits_for: str = ""
    doubt: MachineRecord | None = None
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What the last reading found on a computer that people own, before a machine is started there. None = not read.

    `at`: epoch seconds of the reading; `took_s`: how long it took. `host_key`: one of the HOST_ words of
    lifecycle/gates/access. `login_accepted` False: the login was refused; `login_s`: how long the last one took.
    `keepalive`: seconds and number of the connection's probes. `dropped_at`: when the connection ended last, by
    accident or on purpose. `cards`: its GPUs with their holders, where the settings assign them; `cards_of`: shape ->
    GPUs of each machine. `store_refused`: what the host cannot do in the object store, of read, write, precondition."""

    at: float
    host: str
    took_s: float | None = None
    host_key: str | None = None
    login_accepted: bool | None = None
    login_s: float | None = None
    keepalive: tuple[float, int] | None = None
    dropped_at: float | None = None
    free_bytes: int | None = None
    inodes_used_pct: float | None = None
    memory_bytes: int | None = None
    cards: tuple[Card, ...] | None = None
    cards_of: Mapping[str, int] = field(default_factory=dict)
    store_refused: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MachineRef:
    """The address of a machine in a lookup or a release: its id where known, else its unique name."""

    provider: str
    zone: str
    name: str
    machine_id: str | None = None


@dataclass(frozen=True, slots=True)
class Away:
    """A zone that cannot be read. `since`: its last good reading, else the first try; epoch seconds. `lasting`: a host
    that somebody owns, which may never come back."""

    zone: str
    since: float
    reason: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class MachineListing:
    """One bulk read. A zone in `unreachable` was not read: its machines are Unknown, not Absent; `reasons` says why,
    where the provider knows. `capacity`: what is left beside these machines; None = our own machines are not the limit.
    `zones`: all zones that the provider looks at, because it knows a zone from its settings only; None = all that
    exist, so no machine is elsewhere."""

    machines: tuple[Machine, ...]
    unreachable: frozenset[str] = frozenset()
    capacity: Capacity | None = None
    zones: frozenset[str] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    def unread(self, zone: str) -> str:
        """Why this listing says nothing about a machine of the zone; "" = it does."""
        if zone in self.unreachable:
            return self.reasons.get(zone, f"zone {zone} could not be read")
        if self.zones is not None and zone not in self.zones:
            return f"zone {zone} is not in the settings any more: add it again to reach its machines"
        return ""


@dataclass(frozen=True, slots=True)
class Quota:
    """The hours of machines that a platform lends in each week, and that run out while a machine runs. `noun`: of the
    hours, for people; shapes with the same one share them. `left_h`: what was left at the time of the reading, `at`;
    None = not known, which is not 0. `resets_at`: when the next week begins; `week_h`: the hours of a whole week; None
    = not known. `source`: measured | documented | user. Times are epoch seconds by the supervisor's clock."""

    noun: str
    at: float
    left_h: float | None = None
    resets_at: float | None = None
    week_h: float | None = None
    source: str = "measured"

    def left_s(self, now: float) -> float | None:
        """Seconds that are left now. After its reset the reading says nothing any more. None = not known."""
        over = self.resets_at is not None and self.resets_at <= now
        return None if self.left_h is None or over else max(0.0, 3600.0 * self.left_h)


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many more machines fit beside our own. `machines`: in all zones together, `zones`: by zone, `cards`: GPUs
    that no machine of ours has. None, or a zone that is not named: no limit. `cards_of`: shape -> GPUs of each machine.
    `all_cards`: how many GPUs there are, None = not known yet. `others`: who else uses some of them, in words."""

    machines: int | None = None
    zones: Mapping[str, int] = field(default_factory=dict)
    cards: int | None = None
    cards_of: Mapping[str, int] = field(default_factory=dict)
    all_cards: int | None = None
    others: str = ""

    def why_full(self, zone: str, shape: str) -> str:
        """Why one more machine does not fit beside our own; "" = it fits, or our own machines are not the limit."""
        if self.machines is not None and self.machines <= 0:
            return "our own machines use all capacity of this computer"
        if self.zones.get(zone, 1) <= 0:
            return f"our own machines use all capacity of {zone}"
        needed = self._needed(shape)
        if needed and self.cards is not None and self.cards < needed:
            text = f"{shape} needs {_gpus(needed)}, and our own machines leave {max(0, self.cards)} free"
            return f"{text}. {self.others}" if self.others else text
        return ""

    def with_one_more(self, zone: str, shape: str) -> Capacity:
        """What is left beside one more machine."""
        zones = {**self.zones, zone: self.zones[zone] - 1} if zone in self.zones else self.zones
        machines = None if self.machines is None else self.machines - 1
        cards = None if self.cards is None else self.cards - self._needed(shape)
        return replace(self, machines=machines, zones=zones, cards=cards)

    def with_one_fewer(self, zone: str, shape: str) -> Capacity:
        """What is left after the end of a machine."""
        zones = {**self.zones, zone: self.zones[zone] + 1} if zone in self.zones else self.zones
        machines = None if self.machines is None else self.machines + 1
        cards = None if self.cards is None else self.cards + self._needed(shape)
        return replace(self, machines=machines, zones=zones, cards=cards)

    def reserved_for(self, shape: str) -> Capacity:
        """What is left behind a run that does not fit: where it waits for GPUs, it reserves the free ones."""
        waits = self.cards is not None and self._needed(shape) > self.cards
        return replace(self, cards=0) if waits else self

    @property
    def full(self) -> bool:
        """No machine of any kind fits."""
        return self.machines is not None and self.machines <= 0

    def _needed(self, shape: str) -> int:
        """GPUs. 0 for more than there are: waiting does not help, and the provider's refusal says what is wrong."""
        needed = self.cards_of.get(shape, 0)
        return 0 if self.all_cards is not None and needed > self.all_cards else needed


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def cell(provider: str, scope: str, bucket: str) -> str:
    return f"{provider} {scope} {bucket}"


def scope_of(name: str, provider: str) -> str:
    """The scope in the name of a cell of this provider; "" for any other name."""
    words = name.split(" ", 2)
    return words[1] if len(words) == 3 and words[0] == provider else ""


def same_provider_and_bucket(text: str, other: str) -> bool:
    """A spec can name these two; a resume must not change them."""
    return _fixed(text) == _fixed(other)


def from_other_provider(name: str, cell: str, providers: Collection[str]) -> bool:
    """A cell with the bucket of `cell` whose provider is none of these."""
    provider, bucket = _fixed(name)
    return provider not in providers and bucket == _fixed(cell)[1]


def _fixed(name: str) -> tuple[str, str]:
    return name.partition(" ")[0], name.rpartition(" ")[2]

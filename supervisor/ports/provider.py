"""Providers rent or start machines: child processes here, VMs, SSH hosts and cluster jobs later.

A provider knows machines, and nothing of the policies of runs. Its calls block, in threads of the caller, with
deadlines of their own (≤ 60 s). Errors are typed: all but the definite ones below are ProviderUnavailable, which says
nothing about what exists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from supervisor.contract.cards import Card
from supervisor.domain.bases import ImageSeen
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineListing, MachineRef, Meter, Offer, Placement, Quota
from supervisor.domain.profile import Profile
from supervisor.ports.traits import Traits


class ProviderUnavailable(Exception):
    """No clear response. After a launch the machine may exist: the same launch is repeated, never in another zone."""


class Responded(ProviderUnavailable):
    """The platform was reached, and its response is of no use: a full disk, a torn file, a program that failed."""


class LaunchPending(ProviderUnavailable):
    """The platform still looks for capacity: this is no failure, and the same launch is repeated."""


class LaunchFailed(Exception):
    """A definite refusal: this request makes no machine. `of_run`: the run itself is refused; the zone may still accept
    other runs. `code`: of the check that it fails (domain/gates), "" = none."""

    cause = Cause.LAUNCH_REJECTED
    code = ""
    of_run = False
    scope = "zone"


class NoCapacity(LaunchFailed):
    """The zone has no machine of this shape now (spot or on-demand); waiting helps."""

    cause = Cause.NO_CAPACITY


class CapacityInUse(LaunchFailed):
    """Our own machines use the capacity: the run waits until one of them is gone, and the zone gets no cool-down. Rare,
    because the capacity in the listing shows it before the call."""

    cause = Cause.QUEUED


class HoursUsedUp(LaunchFailed):
    """The hours that the platform lends are used up: the run waits until they begin anew, and the zone gets no
    cool-down. Rare, because `quotas` shows it before the call, and from the refusal on."""

    cause = Cause.QUOTA_HOURS


class QuotaExceeded(LaunchFailed):
    """The account's quota is used up; waiting alone does not help. `scope` of the quota for this shape: "zone",
    "region" (all zones of the placement's region) or "project" (all zones, spot and on-demand)."""

    cause = Cause.QUOTA

    def __init__(self, text: str, scope: str = "zone"):
        super().__init__(text)
        self.scope = scope


class LaunchRejected(LaunchFailed):
    """The request is invalid (a permission, a name, a missing image); the text says what to change."""

    cause = Cause.LAUNCH_REJECTED


class SecretRefused(LaunchRejected):
    """A secret of the run cannot be read; the text has its name and not its value."""

    of_run = True
    code = "SECRET_UNREADABLE"


class ImageMissing(Exception):
    """The registry says that the image or tag does not exist. No machine can run it; the text has its name."""


class ImageHidden(Exception):
    """The registry denies access to the supervisor; machines may still have access. The image cannot be pinned."""


class ImageRefused(Exception):
    """The platform makes no image of this disk; the text says why."""


class NotSupported(Exception):
    """This provider does not have the feature."""


class MachineMissing(Exception):
    """There is no such machine, or it has another id: a definite response; nothing was done."""


class MeterFailed(Exception):
    """The verb was not carried out, or the bill could not be read; the text says why."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything that a machine is made from. `job`: the agent's input (docs/training-contract.md): {run_id, attempt,
    launch_id, generation, nonce, supervisor_id, store_url, command, shell, workdir, env, limits, paces, results, retry,
    data_dir}. JSON values only; never interpolated into a script."""

    name: str
    request_id: str
    placement: Placement
    supervisor_id: str
    run_id: str
    launch_id: str
    machine_max_s: float
    job: Mapping[str, object] = field(default_factory=dict)
    image: str = ""  # name@sha256:... once pinned; a tag if it cannot be pinned; "" = none
    # Name -> reference, such as env:WANDB_API_KEY. The provider reads it at the launch (or the machine itself), and the
    # agent gets it beside the job, never in it. An unreadable one raises SecretRefused with its name.
    secrets: Mapping[str, str] = field(default_factory=dict)
    repeated: bool = False  # the same call may have been sent before, also by another process
    checkpoint_s: float | None = None  # the longest measured time of a checkpoint with its upload; None = not measured
    base: str = ""  # its boot disk begins as this image of the provider; "" = as usual
    base_disk_gb: int = 0  # the least size of such a disk
    prepares: str = ""  # the base that this machine is prepared for; "" = none
    notice_s: float = 0.0  # the preemption notice to ask for where the platform offers a choice; 0 = its own
    avoid: tuple[str, ...] = ()  # nodes that no run may use, where the platform has any
    timed_out: int = 0  # attempts that a time limit of the platform has ended: the warnings before it were too short
    out_of_memory: int = 0  # attempts that ended because the machine's memory was too small
    memory_bytes: float | None = None  # the most that the last of these used; None = not measured
    waits_s: float = 0.0  # how long the platform may look for capacity, at a placement with `flex`; 0 = not at all
    keep: bool = False  # its disks stay when it ends by itself or is preempted (traits.keeps)


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    @property
    def meters(self) -> Meters | None:
        """None = the release of its machines ends their bill, or nothing is billed."""

    def profile(self, zone: str = "") -> Profile:
        """The profile of its machines in that zone; "" = in all its zones. Sends no request. People and gates read it:
        the loop steers by the traits."""

    def pin(self, image: str) -> str:
        """The exact content of this reference now, as `name@sha256:...`; "" = this provider runs no images. Raises
        ImageMissing, ImageHidden, ProviderUnavailable (retry)."""

    def offers(self) -> tuple[Offer, ...]:
        """All placements of the settings, in their order of preference. Sends no request."""

    def gpus(self, shape: str) -> str:
        """The GPUs of a machine of this shape, for people: `L4`, `8 × A100 80GB`; "" = none, or not known. Also for
        shapes without an offer. Sends no request."""

    def launch(self, request: LaunchRequest) -> Machine:
        """Start this machine, or find it: a repeated request (same name, same launch id) returns the machine of the
        first one. While the platform still looks for capacity the machine is ASKED in the listing; LaunchPending when
        that takes longer than the call may, and the repeated request returns the result. A machine of that name with
        another launch id raises LaunchRejected and is not changed.
        Raises NoCapacity, CapacityInUse, HoursUsedUp, QuotaExceeded, LaunchRejected, SecretRefused,
        ProviderUnavailable."""

    def machines(self) -> MachineListing:
        """One bulk read of all machines that this provider can see, also of other supervisors. `unreachable`: zones
        that could not be read, `reasons`: why. `zones`: given where the provider knows its zones only from the
        settings. `capacity`: what our own machines leave, where they are the limit, by the same rule that refuses a
        launch.
        ProviderUnavailable when the platform did not respond."""

    def find(self, ref: MachineRef) -> Machine | None:
        """Read one machine directly, after the listing. None = the platform says that it does not exist (the second
        signal of a death). A machine that is gone, and whose end the platform still reports, is ENDED with its record:
        with its id only, without labels, run id or launch id. ProviderUnavailable otherwise."""

    def release(self, ref: MachineRef) -> None:
        """Delete the machine: its processes, its disk and its bill end. Returns when the platform has accepted; the
        machine is gone only when a later `machines` shows it. Safe to repeat; a missing machine is success; a machine
        of that name with another id is not changed."""

    def ask_to_stop(self, ref: MachineRef) -> None:
        """Signal the agent to save and exit (TERM). Best effort: the .stop marker has the same effect. NotSupported
        where the provider cannot."""

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        """The tail of the machine's output outside the run's log (agent, boot). Empty when there is none."""

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        """For each reference why a launch could not read it now; "" = it could. Never returns a value.
        ProviderUnavailable when the secret store does not respond."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """`disk`: of a machine in `zone`. `base`, `supervisor_id`: become its labels."""

    name: str
    request_id: str
    family: str
    zone: str
    disk: str
    base: str
    supervisor_id: str


class DiskImages(Protocol):
    """Images of the disks of machines, where the provider makes any. Raises ProviderUnavailable, which says nothing
    about what exists."""

    usd_per_gb_month: float | None  # None = not known
    clean_up: str  # the last command on a machine that is prepared, as a text for a shell

    def request(self, request: ImageRequest) -> None:
        """Begin it, or do nothing where an earlier request with the same id has begun it. Raises ImageRefused: there is
        none, and none will come of this request."""

    def find(self, name: str, supervisor_id: str, base: str) -> ImageSeen | None:
        """None: the platform says that there is no image of this name."""

    def delete(self, name: str, request_id: str) -> None:
        """Begin to delete it; only `find` shows that it is gone. `request_id`: of its creation. Safe to repeat."""


@runtime_checkable
class KeepsMachines(Protocol):
    """Machines that were launched with `keep` and can be switched off and on: a provider with the trait `keeps`."""

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        """Start this machine of an earlier launch of the run again, with its disks, for this launch; or find it
        started: a repeated request is as safe as that of a launch. `request.name` is the name of the machine. Until it
        has started, the listing shows it as ASKED, or with the earlier launch. Whatever ran there before has ended.
        Raises as Provider.launch; LaunchRejected also for a machine that does not exist, or is another launch's."""

    def stop(self, ref: MachineRef) -> None:
        """Switch the machine off and keep its disks. Returns when the platform has accepted; it is off only when a
        later listing shows it as ENDED. Safe to repeat; a missing machine is success."""


@runtime_checkable
class LendsHours(Protocol):
    """A provider whose platform lends its machines for some hours in each week."""

    def quotas(self) -> Mapping[str, Quota]:
        """By shape; a shape that is left out has no such quota. The last good reading, also where a newer one failed:
        the provider reads them beside its listing, at a pace of its own. Sends no request."""


def quotas_of(providers: Mapping[str, Provider]) -> dict[tuple[str, str], Quota]:
    """By provider and shape, where the platform lends hours."""
    lenders = {name: provider for name, provider in providers.items() if isinstance(provider, LendsHours)}
    return {(name, shape): quota for name, lender in lenders.items() for shape, quota in lender.quotas().items()}


class Meters(Protocol):
    """The bills of hosts, which run until somebody stops them: the release of a machine ends its processes only. Both
    calls may raise MeterFailed and ProviderUnavailable, and have deadlines of their own (≤ 60 s)."""

    @property
    def by_zone(self) -> Mapping[str, Meter]:
        """The hosts with such a bill. Constant while the provider is open."""

    def stop(self, ref: MachineRef, verb: str, run_id: str) -> str:
        """Carry out this verb for the host of this machine, whose run is over; what was done, in words. Returns when it
        was accepted: only `read` says that the bill has ended. Safe to repeat."""

    def read(self, ref: MachineRef, verb: str) -> tuple[bool, str]:
        """(whether the host is still billed, in words), after this verb. Only for hosts whose meter confirms."""


class OwnCards(Protocol):
    """The GPUs of the supervisor's own computer, if the provider assigns them. Raises ProviderUnavailable."""

    def cards(self) -> tuple[Card, ...]:
        """All cards with their holders, including cards that are set aside."""

    def bring_back(self, uuid: str) -> bool:
        """Use a card again on a person's request; False = it was not set aside."""


class Disasters(Protocol):
    """Failures that `spot dev …` injects. A provider of rented machines supports a preemption only (else NotSupported).
    Methods for one machine raise MachineMissing when no live one has that name and id, ProviderUnavailable when that
    could not be read."""

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        """Give notice, then end the machine after `notice_s`; its record says `preempted`. A platform with its own
        notice uses its own length."""

    def kill(self, ref: MachineRef) -> None:
        """Kill all processes of the machine at once, without a record."""

    def freeze(self, ref: MachineRef) -> None:
        """Suspend the training process (SIGSTOP); the agent continues."""

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        """Remove the capacity of these zones, for a time or (None) until a call with for_s = 0. ValueError for a zone
        without an offer."""

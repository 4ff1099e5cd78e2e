"""What rents or starts machines: child processes here, VMs, SSH hosts and cluster jobs later.

A provider knows machines and their words; it knows nothing of runs' policies. Its calls block, in threads of the
caller, with deadlines of their own (≤ 60 s). Errors are typed: what is not one of the definite ones below is
ProviderUnavailable, which says nothing about what exists.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Card, Machine, MachineListing, MachineRef, Offer, Placement
from supervisor.ports.traits import Traits


class ProviderUnavailable(Exception):
    """No clear answer. After a launch: the machine may exist; the same launch is repeated, never another zone."""


class LaunchPending(ProviderUnavailable):
    """The platform looks for room and has not decided: nothing is wrong, and the same launch is repeated."""


class LaunchFailed(Exception):
    """A definite no: no machine will come of this request. `of_run`: the run itself is refused, and nothing is said of
    the place: other runs may be launched there."""

    cause = Cause.LAUNCH_REJECTED
    of_run = False
    scope = "zone"


class NoCapacity(LaunchFailed):
    """The zone has none of this shape now (spot or on-demand); waiting helps."""

    cause = Cause.NO_CAPACITY


class CapacityInUse(LaunchFailed):
    """Our own machines hold the place: nothing is said of it, and the run waits until one of them is gone. Rare: the
    capacity of the listing says it beforehand."""

    cause = Cause.QUEUED


class QuotaExceeded(LaunchFailed):
    """The account may not have more; waiting does not help by itself. `scope`: how far that reaches for this shape:
    "zone", "region" (all zones of the placement's region) or "project" (everywhere, spot and on-demand)."""

    cause = Cause.QUOTA

    def __init__(self, text: str, scope: str = "zone"):
        super().__init__(text)
        self.scope = scope


class LaunchRejected(LaunchFailed):
    """The request itself is refused (a permission, a name, a missing image); the text says what to change."""

    cause = Cause.LAUNCH_REJECTED


class SecretRefused(LaunchRejected):
    """A secret of the run cannot be read; the text names it and holds no value."""

    of_run = True


class ImageMissing(Exception):
    """The registry answered: no such image or tag. No machine can run it; the text names it."""


class ImageHidden(Exception):
    """The registry does not let the supervisor look; machines may be let in all the same. Nothing can be pinned."""


class NotSupported(Exception):
    """This provider cannot do that at all."""


class MachineMissing(Exception):
    """No such machine, or not the one with this id: a definite answer, nothing was done."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a machine is made from. `job` is what the agent reads (training contract, docs/training-contract.md):
    {run_id, attempt, launch_id, generation, nonce, supervisor_id, store_url, command, shell, workdir, env, limits,
    paces, results, retry, data_dir}. JSON values only; never interpolated into a script."""

    name: str
    request_id: str
    placement: Placement
    supervisor_id: str
    run_id: str
    launch_id: str
    machine_max_s: float
    job: Mapping[str, object] = field(default_factory=dict)
    image: str = ""  # name@sha256:... once pinned; a tag where it could not be; "" = none was asked for
    # Name -> reference, such as env:WANDB_API_KEY. Read by the provider at the launch (or by the machine itself), and
    # handed to the agent beside the job, never in it. One that cannot be read: SecretRefused, naming it.
    secrets: Mapping[str, str] = field(default_factory=dict)
    repeated: bool = False  # this call may have been made before, also by a process that is gone


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def pin(self, image: str) -> str:
        """The exact content that this reference names now, as `name@sha256:...`; "" where this provider runs no images.
        Raises ImageMissing, ImageHidden, ProviderUnavailable (ask again)."""
        ...

    def offers(self) -> tuple[Offer, ...]:
        """Every placement that may be asked for, in the order of preference given by the settings. No network."""
        ...

    def gpus(self, shape: str) -> str:
        """What a machine of this shape has for the training, as people say it: `L4`, `8 × A100 80GB`; "" = none, or not
        known. Of any shape, also of one that is not offered any more, or that never was. Asks nobody."""
        ...

    def launch(self, request: LaunchRequest) -> Machine:
        """Start this machine, or find it: a repeated request (same name, same launch id) gives the machine that the
        first one made. While the platform still looks for room the machine is ASKED in the listing; LaunchPending when
        that takes longer than the call may, and the same request asked again learns how it ended. A machine of
        that name with another launch id raises LaunchRejected and is left alone.
        Raises NoCapacity, CapacityInUse, QuotaExceeded, LaunchRejected, SecretRefused, ProviderUnavailable."""
        ...

    def machines(self) -> MachineListing:
        """One bulk read of every machine that this provider can see, of other supervisors too. Zones that could not
        be read are named in `unreachable`. Where our own machines are the limit, `capacity` says what they leave, by
        the rule by which the provider refuses a launch. ProviderUnavailable when nothing could be read."""
        ...

    def find(self, ref: MachineRef) -> Machine | None:
        """One machine, asked for directly, after the listing. None = the platform says that it does not exist (the
        second signal of a death). One that is gone, and of whose end the platform still tells, is ENDED with its
        record: by its id alone, without labels, run id or launch id. ProviderUnavailable otherwise."""
        ...

    def release(self, ref: MachineRef) -> None:
        """Ask for the machine's end: its processes are killed, its disk and its bill go away. Returns when the platform
        has accepted; the machine is gone only when a later `machines` says so. Safe to repeat; a missing machine is
        success; a machine of that name with another id is left alone."""
        ...

    def ask_to_stop(self, ref: MachineRef) -> None:
        """Tell the agent on it to save and leave (TERM). Best effort: the .stop marker says the same. NotSupported
        where there is no way."""
        ...

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        """The tail of what the machine wrote outside the run's log (agent, boot). Empty when there is none."""
        ...

    def check_secrets(self, references: Collection[str]) -> Mapping[str, str]:
        """For each reference why a launch could not read it now; "" = it could. No value is in any answer.
        ProviderUnavailable when the place of secrets does not answer."""
        ...


class OwnCards(Protocol):
    """The GPUs of the supervisor's own computer, where it gives them out itself. Raises ProviderUnavailable."""

    def cards(self) -> tuple[Card, ...]:
        """Every card with its holder, those that are set aside included."""
        ...

    def bring_back(self, uuid: str) -> bool:
        """A person says that this card works again; False = it was not set aside."""
        ...


class Disasters(Protocol):
    """What `spot dev …` may do to machines. A provider of rented ones refuses all but a preemption (NotSupported). What
    acts on one machine raises MachineMissing when none of that name and id lives, ProviderUnavailable when that could
    not be read."""

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        """Give notice, then take the machine away when it is over; the record says `preempted`. A platform that gives
        the notice itself takes its own length."""
        ...

    def kill(self, ref: MachineRef) -> None:
        """Kill everything of the machine at once, leaving no record."""
        ...

    def freeze(self, ref: MachineRef) -> None:
        """Stop the training process (SIGSTOP); the agent beside it goes on."""
        ...

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        """Let these zones have no capacity, for a time or (None) until called again with for_s = 0. ValueError for
        a zone that is not offered."""
        ...

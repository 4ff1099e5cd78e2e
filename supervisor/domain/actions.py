"""Actions that a decision asks for. Each is derived again from the row until it is done, and is safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.contract.baton import Done
from supervisor.domain.attempt import Try
from supervisor.domain.machines import MachineRef


@dataclass(frozen=True, slots=True)
class Launch:
    """Raise the baton's `next` to this try, then ask the provider for its machine."""

    try_: Try
    holder_gone: bool  # no older machine of this run can still write


@dataclass(frozen=True, slots=True)
class RaiseNext:
    """Raise the baton's `next` to this try, whose machine has won a race as the second request."""

    try_: Try
    holder_gone: bool


@dataclass(frozen=True, slots=True)
class MarkHolderGone:
    """Record in the baton, for the new agent that waits, that the machine of the old holder is known gone."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class AskAgentToStop:
    """Send TERM to the agent where the provider can; write the .stop marker in all cases."""

    ref: MachineRef


@dataclass(frozen=True, slots=True)
class WriteStopMarker:
    actor: str


@dataclass(frozen=True, slots=True)
class OrderDrill:
    """Write into the baton that the agent of this launch shall drill its training (contract/drill)."""

    launch_id: str
    number: int


@dataclass(frozen=True, slots=True)
class CloseBaton:
    """No agent writes after this. The release of the machine follows it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Keep the console tail, then delete the machine. `readings`: the evidence for this (source, value, age)."""

    ref: MachineRef
    launch_id: str
    reason: str
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchOff:
    """Switch off a machine that its run keeps; its disks stay. `readings`: the evidence (source, value, age)."""

    ref: MachineRef
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StopMeter:
    """Give the host of this machine back by the verb that a person has approved. After a crash it may be carried out
    again. `readings`: the evidence for this (source, value, age). `within_s`: dropped where it waits longer for its
    beginning, because others may have started there meanwhile."""

    ref: MachineRef
    verb: str
    within_s: float
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadMeter:
    """Read whether the host of this machine is still billed."""

    ref: MachineRef
    verb: str


@dataclass(frozen=True, slots=True)
class KeepEvidence:
    """Collect what is known of why the attempt of this launch ended. Asked for once; the release and the end of the run
    repeat it where it was missed."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class ForgetHome:
    """A person wrote off this launch, and its attempt has ended: a home of this launch or an earlier one that cannot be
    read counts no more. It changes nothing where there is no such home."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class PublishCheckpoint:
    """Show the schedulers of the platform what a preemption of this machine would lose. `checkpoint_at`: when the
    newest verified checkpoint of its attempt was safe, epoch seconds; None = it has none. `unsaved_s`: how long it has
    trained since."""

    ref: MachineRef
    checkpoint_at: float | None
    unsaved_s: float


@dataclass(frozen=True, slots=True)
class PinImage:
    """Resolve the content that `image` names now. The result (observation.Pinned) carries the same `pinned_for`."""

    pinned_for: str
    image: str


@dataclass(frozen=True, slots=True)
class VerifyResults:
    """Compare the files of `done` with the store."""

    done: Done


@dataclass(frozen=True, slots=True)
class Finalise:
    """Close the baton, write the manifest, delete the beat: the run is terminal and has no machine left."""

    reason: str


Action = (
    Launch | RaiseNext | MarkHolderGone | AskAgentToStop | WriteStopMarker | CloseBaton | Release | KeepEvidence
    | PinImage | VerifyResults | Finalise | StopMeter | ReadMeter | ForgetHome | PublishCheckpoint | OrderDrill
    | SwitchOff
)  # fmt: skip

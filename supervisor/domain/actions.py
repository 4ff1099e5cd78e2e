"""Deeds that a decision asks for. Each is derived again from the row until it is done, and safe to repeat."""

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
class MarkHolderGone:
    """Tell the waiting newcomer that the old holder's machine is known gone."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class AskAgentToStop:
    """TERM to the agent where the provider can, and the .stop marker for all others."""

    ref: MachineRef


@dataclass(frozen=True, slots=True)
class WriteStopMarker:
    actor: str


@dataclass(frozen=True, slots=True)
class CloseBaton:
    """No agent writes after this; followed by the release of the machine, in this order."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Keep the console tail, then delete the machine. `readings` names what this rests on (source, value, age)."""

    ref: MachineRef
    launch_id: str
    reason: str
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepEvidence:
    """Compose what is known of why the attempt of this launch ended. Asked for once; what is missed is made up for at
    the release and at the run's end."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class PinImage:
    """Ask which content this image names now. `pinned_for` comes back with the answer."""

    pinned_for: str
    image: str


@dataclass(frozen=True, slots=True)
class VerifyResults:
    """Compare the files of `done` with the store."""

    done: Done


@dataclass(frozen=True, slots=True)
class Finalise:
    """Close the baton, write the manifest, delete the beat: the run is terminal and no machine of it is left."""

    reason: str


Action = (
    Launch | MarkHolderGone | AskAgentToStop | WriteStopMarker | CloseBaton | Release | KeepEvidence | PinImage
    | VerifyResults | Finalise
)  # fmt: skip

"""A machine as a provider's listing tells of it: a VM, a child process, an SSH session, a Slurm job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.domain.causes import Cause
from supervisor.domain.machines.room import Room


class MachineState(StrEnum):
    ASKED = "asked"  # the platform still looks for room and may yet say no: nothing is obtained or billed
    STARTING = "starting"
    UP = "up"
    ENDING = "ending"
    ENDED = "ended"  # stopped but still there: it may still cost, and must be released


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """The platform's own word on why a machine ends or ended; authoritative, one signal suffices."""

    cause: Cause  # preempted, host_error, host_rebooted, expired or machine_deleted
    detail: str
    at: float | None = (
        None  # epoch seconds by the platform's clock; shown, and where its bill ends: no decision
    )
    notice_s: float | None = None


# Label keys on every machine. The exact run id may be too long for a label: adoption compares launch id and name.
RUNNER_LABEL = "spot-runner"
SUPERVISOR_LABEL = "spot-supervisor-id"
RUN_LABEL = "spot-run-id"
ATTEMPT_LABEL = "spot-attempt"
LAUNCH_LABEL = "spot-launch-id"
# The older shell runner's keys. Our machines carry them too, for people's lists and filters. Only an import reads them.
OLD_RUNNER_LABEL = "runner_label"
OLD_RUN_LABEL = "run_id"


@dataclass(frozen=True, slots=True)
class Machine:
    """One row of a listing. `machine_id` is the provider's own unambiguous id, never a name or an IP alone."""

    machine_id: str
    name: str
    zone: str
    state: MachineState
    supervisor_id: str  # "" = carries no label of any supervisor
    run_id: str
    launch_id: str
    created_at: float | None = None  # epoch seconds by the platform's clock
    record: MachineRecord | None = None
    detail: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    shape: str = ""  # its name in the settings where they offer it, else the platform's words; "" = not told
    spot: bool | None = None  # None = not told


@dataclass(frozen=True, slots=True)
class MachineRef:
    """How a machine is addressed when it is looked up or released: by id where known, else by its unique name."""

    provider: str
    zone: str
    name: str
    machine_id: str | None = None


@dataclass(frozen=True, slots=True)
class MachineListing:
    """One bulk read. A zone in `unreachable` was not read: its machines are Unknown, not Absent. `room`: what is left
    beside these machines, where our own machines are the limit; None = they are not."""

    machines: tuple[Machine, ...]
    unreachable: frozenset[str] = frozenset()
    room: Room | None = None

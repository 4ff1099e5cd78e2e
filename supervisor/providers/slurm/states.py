"""What Slurm's words mean for a machine: all 24 states of a job, the reasons of a pending job, and the records of ends.

Source: "JOB STATE CODES" and "JOB REASON CODES" of squeue(1) and sacct(1), Slurm 22.05 to 24.11. A word that is not in
the table is unknown: nothing is concluded from it. A job that ended by its own exit (COMPLETED, FAILED) has no record:
the baton and the agent's last beat say how the work ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState

ASKED, STARTING, UP = MachineState.ASKED, MachineState.STARTING, MachineState.UP
ENDING, ENDED = MachineState.ENDING, MachineState.ENDED
HELD = "a person must release the job: scontrol release"


@dataclass(frozen=True, slots=True)
class Meaning:
    """`cause`: of the record of an ended job; None = it ended by its own exit, or has not ended. `held`: the job waits
    for a person, whatever its reason."""

    state: MachineState
    cause: Cause | None = None
    text: str = ""
    held: bool = False


STATES: Mapping[str, Meaning] = {
    "PENDING": Meaning(ASKED),
    "CONFIGURING": Meaning(STARTING, text="its nodes are booting"),
    "RUNNING": Meaning(UP),
    "RESIZING": Meaning(UP, text="it is about to change its size"),
    "SIGNALING": Meaning(UP, text="it is being signaled"),
    "STOPPED": Meaning(UP, text="it was stopped by a signal and keeps its CPUs"),
    "SUSPENDED": Meaning(UP, text="it is suspended and has given up its CPUs"),
    "COMPLETING": Meaning(ENDING, text="its last processes are ending"),
    "STAGE_OUT": Meaning(ENDING, text="its files are being staged out"),
    "COMPLETED": Meaning(ENDED),
    "FAILED": Meaning(ENDED),
    "OUT_OF_MEMORY": Meaning(ENDED, Cause.HOST_OOM, "it needed more than its memory limit: raise slurm_memory"),
    "TIMEOUT": Meaning(ENDED, Cause.TIME_LIMIT, "it reached its time limit"),
    "DEADLINE": Meaning(ENDED, Cause.TIME_LIMIT, "it reached its deadline"),
    "PREEMPTED": Meaning(ENDED, Cause.PREEMPTED, "it was preempted"),
    "NODE_FAIL": Meaning(ENDED, Cause.HOST_ERROR, "a node failed"),
    "BOOT_FAIL": Meaning(ENDED, Cause.HOST_ERROR, "a node did not boot"),
    "CANCELLED": Meaning(ENDED, Cause.MACHINE_DELETED, "it was cancelled"),
    "REVOKED": Meaning(ENDED, Cause.HOST_ERROR, "another cluster of the federation has taken it"),
    "REQUEUED": Meaning(ASKED, text="it was put back into the queue"),
    "REQUEUE_FED": Meaning(ASKED, text="the federation has put it back into the queue"),
    "REQUEUE_HOLD": Meaning(ASKED, text="it was put back into the queue and is held", held=True),
    "SPECIAL_EXIT": Meaning(ASKED, text="it was put back into the queue in a special state and is held", held=True),
    "RESV_DEL_HOLD": Meaning(ASKED, text="its reservation was deleted, and it is held", held=True),
}
# Newer versions list a base state and its flags. A flag says more than the base state.
FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED",
    "REQUEUED", "REVOKED", "RESIZING", "SIGNALING", "STOPPED",
)  # fmt: skip
NOTES = frozenset({"EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"})  # they change nothing for us


class UnknownState(Exception):
    """A word that this version does not know. The text has it."""


def state_word(words: str | Sequence[str]) -> str:
    """The one word that counts. `words`: `CANCELLED by 1000`, or a list of a base state and flags."""
    each = words.split()[:1] if isinstance(words, str) else [word for word in words if word not in NOTES]
    unknown = next((word for word in each if word not in STATES), None)
    if unknown is not None or not each:
        return unknown or ""
    return next((flag for flag in FLAGS if flag in each), each[0])


def meaning(word: str) -> Meaning:
    """Raises UnknownState."""
    if word not in STATES:
        raise UnknownState(f"Slurm says {word or 'nothing'!r} about its state")
    return STATES[word]


# --- pending jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job is pending. `cause` None: the wait is free and ends by itself; else the try ends with that cause."""

    cause: Cause | None
    text: str


REFUSALS: Mapping[str, str] = {
    "PartitionTimeLimit": "its time limit is longer than the partition allows: lower slurm_time or machine_max_s",
    "PartitionNodeLimit": "it needs more nodes than the partition has",
    "BadConstraints": "no node of the partition can fulfill it: check slurm_gres, slurm_cpus and slurm_memory",
    "InvalidAccount": "its account is invalid: set slurm_account",
    "InvalidQOS": "its QOS is invalid: set slurm_qos",
    "AccountNotAllowed": "its account may not use the partition: set slurm_account",
    "QOSNotAllowed": "its QOS may not be used there: set slurm_qos",
    "DependencyNeverSatisfied": "its dependency can never be satisfied",
}
HOLDS = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "launch_failed_requeued_held"})
QUOTA = ("QOS", "Assoc")
SAID: Mapping[str, str] = {
    "Resources": "it waits for free nodes",
    "Priority": "jobs with a higher priority wait before it",
    "BeginTime": "Slurm starts it again soon",
    "None": "Slurm has not looked at it yet",
    "": "Slurm has not looked at it yet",
}


def wait(word: str, reason: str) -> Wait:
    """`word`: the state of a job that is not obtained; `reason`: Slurm's, perhaps with more text behind it."""
    held = STATES[word].held if word in STATES else False
    first = reason.strip("()").partition(",")[0].strip().replace(" ", "_")
    if held or first in HOLDS or first.lower().endswith("requeued_held"):
        return Wait(Cause.LAUNCH_REJECTED, f"{STATES[word].text if held else first}: {HELD}")
    if first in REFUSALS:
        return Wait(Cause.LAUNCH_REJECTED, f"{first}: {REFUSALS[first]}")
    if first.startswith(QUOTA):
        return Wait(Cause.QUOTA, f"{first}: a limit of the account or the QOS is reached")
    text = STATES[word].text if word in STATES else ""
    return Wait(None, text or SAID.get(first, first))

"""Why an attempt, a try or a run ended: one table, the first match wins (RULES section 2; printed in its section 9).

Free and paid failures differ: a preemption spends nothing, a crash of the user's own code is not retried forever.
`Cause` values are part of the API; clients must accept values that they do not know.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

SAME_FAILURE = "the same exit, last line and step as the last time"  # why no retry follows
UNANSWERED = "nobody answered"  # the question what follows the end


class Cause(StrEnum):
    PREEMPTED = "preempted"
    HOST_ERROR = "host_error"
    HOST_REBOOTED = "host_rebooted"
    EXPIRED = "expired"
    TIME_LIMIT = "time_limit"
    MACHINE_DELETED = "machine_deleted"
    SUPERSEDED = "superseded"
    RACE_LOST = "race_lost"
    CUT_OFF = "cut_off"
    YIELDED = "yielded"
    NO_CAPACITY = "no_capacity"
    QUOTA = "quota"
    QUOTA_HOURS = "quota_hours"
    LAUNCH_REJECTED = "launch_rejected"
    QUEUED = "queued"
    GROUP_LIMIT = "group_limit"
    MACHINE_LIMIT = "machine_limit"
    DEPENDENCY = "dependency"
    DEPENDENCY_FAILED = "dependency_failed"
    ORPHANED = "orphaned"
    AGENT_LOST = "agent_lost"
    GPU_FAULT = "gpu_fault"
    GPU_UNAVAILABLE = "gpu_unavailable"
    BOOT_TIMEOUT = "boot_timeout"
    STALLED = "stalled"
    HOST_OOM = "host_oom"
    DISK_FULL = "disk_full"
    KILLED = "killed"
    UNKNOWN = "unknown"
    USER_ERROR = "user_error"
    GPU_OOM = "gpu_oom"
    IMAGE_ERROR = "image_error"
    COMMAND_NOT_FOUND = "command_not_found"
    SETUP_FAILED = "setup_failed"
    RESUME_IGNORED = "resume_ignored"
    FINISHED = "finished"
    DEADLINE = "deadline"
    MAX_RUNTIME = "max_runtime"
    BUDGET = "budget"
    LIMIT_REACHED = "limit_reached"
    NO_PROGRESS = "no_progress"
    RESULTS_UNVERIFIED = "results_unverified"
    STOP_REQUESTED = "stop_requested"


class Kind(StrEnum):
    FREE = "free"  # without a fault: recover at once, spends nothing
    PACED = "paced"  # there was no machine: wait, spends nothing
    INFRA = "infra"  # the platform's fault, but it costs: recover with backoff
    PAID = "paid"  # it costs and may happen again: recover with backoff
    USER = "user"  # the training's own error: worth a repeat of the identical spec
    ASK = "ask"  # a person decides: the run waits without a machine, and spends nothing
    FINAL = "final"  # the run ends


@dataclass(frozen=True, slots=True)
class CauseRule:
    """One row of the table. `only_if`: the condition under which the row matches ("" = always)."""

    causes: tuple[Cause, ...]
    kind: Kind
    counts: bool  # spends one of max_attempts
    no_progress: bool  # three of these in a row end the run as no_progress
    avoid_zone: bool
    then: str
    only_if: str = ""


NO_GPU = frozenset({Cause.GPU_UNAVAILABLE, Cause.GPU_FAULT})
# After these the machine itself is as good as before: `keep: machine` starts it again. A full disk stays full, and
# after a fault of the machine or its GPUs another machine is the better one.
KEEPS_MACHINE = frozenset({
    Cause.PREEMPTED, Cause.HOST_ERROR, Cause.HOST_REBOOTED, Cause.EXPIRED, Cause.TIME_LIMIT, Cause.MACHINE_DELETED,
    Cause.KILLED, Cause.STALLED, Cause.UNKNOWN, Cause.USER_ERROR, Cause.GPU_OOM, Cause.FINISHED, Cause.DEADLINE,
    Cause.MAX_RUNTIME, Cause.STOP_REQUESTED,
})  # fmt: skip
# Free, and yet the third in a row without a newer checkpoint ends the run: the next one would meet the same.
FREE_LIMITED = frozenset({Cause.HOST_REBOOTED, Cause.KILLED, Cause.BOOT_TIMEOUT})
# Causes of a wait that does not end by itself, although the run retries at intervals.
NEEDS_PERSON = NO_GPU | {Cause.QUOTA, Cause.LAUNCH_REJECTED, Cause.DEPENDENCY_FAILED}

# Causes of a wait for our own runs and machines, or for a known time: nothing is requested, and no limit of waiting
# counts.
OWN_WAITS = frozenset({
    Cause.QUEUED, Cause.GROUP_LIMIT, Cause.MACHINE_LIMIT, Cause.DEPENDENCY, Cause.DEPENDENCY_FAILED,
    Cause.QUOTA_HOURS,
})  # fmt: skip

C = Cause
BACKOFF = "recover with backoff"
FREED = "recover with backoff: everything but the checkpoint is given up with the machine"
ELSEWHERE = "recover at once in another zone, shape or on-demand, each once an hour; then wait for a person"
ZONE_TOUR = "recover at once in another zone; the third in a row without a newer checkpoint ends the run"
LARGER = "recover with backoff in a larger shape"
ASK = "wait without a machine until a person lets it go on; after `ask_limit_s` the run fails"
REPEAT = "repeat the identical spec, until it ends twice at one step with the same exit and last line"
FIRST_SIGNAL = "a signal from outside, by the evidence not the kernel's; the first since the newest checkpoint"
LARGER_SHAPE = "the run's own `shapes` have a larger one; once"
MORE_MEMORY = "the provider gives the next machine more memory"
OTHER_DRIVER = "driver and CUDA do not fit; the first time in a generation: another machine may have another driver"
DRIVER_MISFIT = "driver and CUDA do not fit"
REPAIRED = "files of the run's `scratch` were removed, so the disk has space again; once at a step"
DELIVERED_AGAIN = "what was delivered did not arrive whole; once"
MAY_END = "the setup met what may be over later: an error of the network, or another run's setup"
EXPLAINED = "the evidence is certain; of a full disk likely too"
MACHINE_WAS_THERE = "the machine was there, and the start on it was refused"
KNOWN_ERROR = "its words show that a repeat fails in the same way"
NEWER_CHECKPOINT = "a newer checkpoint exists"
NEWER_OR_NAMED = "a newer checkpoint in this attempt, or named by the run's retry rules"

CAUSES: tuple[CauseRule, ...] = (
    CauseRule((C.PREEMPTED, C.HOST_ERROR), Kind.FREE, False, False, True, "recover at once"),
    CauseRule((C.HOST_REBOOTED,), Kind.FREE, False, False, False, "recover at once"),
    CauseRule((C.EXPIRED, C.TIME_LIMIT), Kind.FREE, False, False, False, "recover at once", NEWER_CHECKPOINT),
    CauseRule((C.EXPIRED, C.TIME_LIMIT), Kind.PAID, True, True, False, "recover at once"),
    CauseRule(
        (C.MACHINE_DELETED,), Kind.FREE, False, False, False, "recover, paced; the third in an hour ends the run"
    ),
    CauseRule(
        (C.SUPERSEDED, C.CUT_OFF, C.RACE_LOST), Kind.FREE, False, False, False, "another attempt is live, or recover"
    ),
    CauseRule((C.YIELDED,), Kind.FREE, False, False, False, "recover, behind the run with the higher priority"),
    CauseRule((C.LAUNCH_REJECTED,), Kind.PAID, True, True, False, BACKOFF, DELIVERED_AGAIN),
    CauseRule((C.LAUNCH_REJECTED,), Kind.FINAL, False, False, False, "failed", MACHINE_WAS_THERE),
    CauseRule((C.NO_CAPACITY, C.QUOTA, C.LAUNCH_REJECTED), Kind.PACED, False, False, True, "wait, paced"),
    CauseRule((C.QUOTA_HOURS,), Kind.PACED, False, False, False, "wait until the hours of the platform begin anew"),
    CauseRule((C.QUEUED,), Kind.PACED, False, False, False, "wait until one of our own machines is gone"),
    CauseRule((C.GROUP_LIMIT,), Kind.PACED, False, False, False, "wait until a run of the group has ended"),
    CauseRule((C.MACHINE_LIMIT,), Kind.PACED, False, False, False, "wait until a machine of another run is gone"),
    CauseRule((C.DEPENDENCY,), Kind.PACED, False, False, False, "wait until the runs before it are completed"),
    CauseRule((C.DEPENDENCY_FAILED,), Kind.PACED, False, False, False, "wait until a person resumes the run before it"),
    CauseRule((C.GPU_UNAVAILABLE,), Kind.FREE, False, False, True, "recover at once on another machine", OTHER_DRIVER),
    CauseRule((C.GPU_UNAVAILABLE,), Kind.FINAL, False, False, False, "failed", DRIVER_MISFIT),
    CauseRule((C.GPU_FAULT, C.GPU_UNAVAILABLE), Kind.FREE, False, False, True, ELSEWHERE),
    CauseRule((C.ORPHANED, C.AGENT_LOST), Kind.INFRA, True, True, True, BACKOFF),
    CauseRule((C.BOOT_TIMEOUT,), Kind.FREE, False, False, True, ZONE_TOUR),
    CauseRule((C.KILLED,), Kind.FREE, False, False, False, "recover at once", FIRST_SIGNAL),
    CauseRule((C.HOST_OOM,), Kind.PAID, True, True, False, LARGER, LARGER_SHAPE),
    CauseRule((C.HOST_OOM,), Kind.PAID, True, True, False, BACKOFF, MORE_MEMORY),
    CauseRule((C.DISK_FULL,), Kind.PAID, True, True, False, FREED, NEWER_CHECKPOINT),
    CauseRule((C.DISK_FULL,), Kind.PAID, True, True, False, BACKOFF, REPAIRED),
    CauseRule((C.KILLED, C.DISK_FULL), Kind.ASK, False, False, False, ASK, EXPLAINED),
    CauseRule((C.STALLED, C.KILLED, C.UNKNOWN), Kind.PAID, True, True, False, BACKOFF),
    CauseRule((C.SETUP_FAILED,), Kind.PAID, True, True, False, BACKOFF, MAY_END),
    CauseRule((C.USER_ERROR, C.SETUP_FAILED), Kind.FINAL, False, False, False, "failed", KNOWN_ERROR),
    CauseRule((C.SETUP_FAILED,), Kind.USER, True, False, False, REPEAT),
    CauseRule((C.USER_ERROR,), Kind.USER, True, False, False, REPEAT, NEWER_OR_NAMED),
    CauseRule(
        (
            C.HOST_OOM, C.USER_ERROR, C.DISK_FULL, C.GPU_OOM, C.IMAGE_ERROR, C.COMMAND_NOT_FOUND, C.RESUME_IGNORED,
        ),
        Kind.FINAL, False, False, False, "failed",
    ),
    CauseRule((C.FINISHED,), Kind.FINAL, False, False, False, "completed or partial"),
    CauseRule(
        (C.DEADLINE, C.MAX_RUNTIME, C.BUDGET, C.LIMIT_REACHED, C.NO_PROGRESS, C.RESULTS_UNVERIFIED, C.STOP_REQUESTED),
        Kind.FINAL, False, False, False, "failed, partial or stopped",
    ),
)  # fmt: skip


class Whose(StrEnum):
    """Whose a missed end is."""

    OURS = "ours"
    USER = "user"
    CLOUD = "cloud"


# With these the run's own code could not have come to its end.
OWN_CODE = frozenset({
    C.USER_ERROR, C.GPU_OOM, C.HOST_OOM, C.DISK_FULL, C.IMAGE_ERROR, C.COMMAND_NOT_FOUND, C.SETUP_FAILED,
    C.RESUME_IGNORED,
})  # fmt: skip
# Limits and deeds of its user; a stalled or killed command is the user's until a verdict says otherwise.
_OF_USER = frozenset({
    C.DEADLINE, C.MAX_RUNTIME, C.BUDGET, C.MACHINE_DELETED, C.DEPENDENCY_FAILED, C.STALLED, C.KILLED,
})  # fmt: skip
_OURS = frozenset({C.RESULTS_UNVERIFIED, C.UNKNOWN, C.SUPERSEDED, C.CUT_OFF})


def whose(cause: Cause) -> Whose:
    """Whose an end with this cause is, where no verdict says more."""
    if cause in OWN_CODE or cause in _OF_USER:
        return Whose.USER
    return Whose.OURS if cause in _OURS else Whose.CLOUD


def rule_for(
    cause: Cause, newer_checkpoint: bool = False, retry_named: bool = False, also: Collection[str] = ()
) -> CauseRule:
    """The first row of the table that matches this end. `also`: further conditions that hold."""
    matches = {"": True, NEWER_CHECKPOINT: newer_checkpoint, NEWER_OR_NAMED: newer_checkpoint or retry_named}
    return next(rule for rule in CAUSES if cause in rule.causes and (matches.get(rule.only_if) or rule.only_if in also))

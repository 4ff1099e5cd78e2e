"""Events: the lines of a run's history, and the kinds under which some of them are announced.

An event is written in the transaction of its change. Receivers choose by the kind of the announcement, such as
"preempted" for the end of an attempt with that cause. One change has one announcement: the end of an attempt that ends
the run has none beside the end of the run, and a run that was given up is not announced as failed too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.domain.causes import NEEDS_PERSON, OWN_WAITS, Cause
from supervisor.domain.incidents import KNOWN_TO_FAIL, PLACE_QUARANTINED


class EventKind(StrEnum):
    SUBMITTED = "submitted"
    IMPORTED = "imported"  # from the older shell runner, with its records
    RESUMED = "resumed"
    LAUNCHING = "launching"  # a try is on record
    TRY_FAILED = "try_failed"
    IMAGE_PINNED = "image_pinned"  # all attempts run this content from now on; or why it could not be pinned
    WAITING = "waiting"
    RACED = "raced"  # of two requested machines one came first, or none was needed: the other request is called off
    OBTAINED = "obtained"  # the machine exists: the attempt begins
    STARTED = "started"  # first beat after the claim
    RECOVERED = "recovered"  # the same, after an earlier attempt
    ATTEMPT_ENDED = "attempt_ended"
    CHECKPOINT_REJECTED = "checkpoint_rejected"
    STOP_REQUESTED = "stop_requested"
    RETRY_REQUESTED = "retry_requested"  # a person wants the next try now
    FINISHING = "finishing"
    RESULTS_VERIFIED = "results_verified"
    NEEDS_PERSON = "needs_person"
    APPROVED = "approved"
    LOSS_ACCEPTED = "loss_accepted"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    STOPPED = "stopped"
    READINGS_DISAGREE = "readings_disagree"
    BEAT_REJECTED = "beat_rejected"
    LATE_BEAT = "late_beat"
    STOP_IGNORED = "stop_ignored"
    MACHINE_RELEASED = "machine_released"
    MACHINE_KEPT = "machine_kept"  # a machine is off and stays with its disks for the next attempt; or no longer
    MACHINE_LEAKED = "machine_leaked"  # the sweep found a machine of ours that serves no run
    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    SWEEP_REFUSED = "sweep_refused"
    CHECKPOINTS_REMOVED = "checkpoints_removed"  # pruned by the run's own rule
    RESULTS_PULLED = "results_pulled"
    AGENT_RESTARTED = "agent_restarted"  # by its own machine, after a reboot
    HANGING = "hanging"  # nothing of the command moves any more; the next look decides
    REPAIRED = "repaired"  # files of the run's `scratch` were removed, because the disk was full
    RESUME_IGNORED = "resume_ignored"  # the command started over beside the checkpoint that was restored for it
    FINDING = "finding"  # something about a training that goes on, which the run's spec watches
    YIELDING = "yielding"  # it gives its machine to a run of a higher priority
    DRILL_ORDERED = "drill_ordered"  # by a person or by the spec
    DRILLED = "drilled"  # a drill is over, with its verdict; or an order came to nothing
    CONTACT_LOST = "contact_lost"  # the zone or host of a machine cannot be read for two minutes
    CONTACT_BACK = "contact_back"
    METER = "meter"  # what became of the bill of a host: its verb was carried out, its end is confirmed, others use it
    PURGED = "purged"  # the run's files were deleted on request
    WRITTEN_OFF = "written_off"  # a person says that a machine which cannot be read is lost
    CHECK_WAIVED = "check_waived"  # a person lets the run go on in spite of a check of its gates
    CHANGED = "changed"  # a person changed labels, limits, zones, max_parallel or after
    BUDGET_WARNING = "budget_warning"  # 80 % of the budget is spent
    DISK_NEARLY_FULL = "disk_nearly_full"
    APPROVAL_REMINDER = "approval_reminder"  # a machine still waits for an approval, and is billed
    SUPERVISOR_STARTED = "supervisor_started"
    PATROL = "patrol"  # the state of all runs, also without changes
    CODE_STORED = "code_stored"
    COMMAND_SENT = "command_sent"  # a person runs a command beside the training
    CODE_SYNCED = "code_synced"  # a person changed the code of a living run
    PRICES_REFRESHED = "prices_refreshed"
    INCIDENT = "incident"  # several runs ended with something in common; or it stops launches from now on
    INCIDENT_CLOSED = "incident_closed"
    BASE = "base"  # a base was created, is ready, failed, or was deleted
    DISASTER = "disaster"  # injected: a preempted, killed or frozen machine, or zones without capacity
    GPU_BACK = "gpu_back"  # a person says that a GPU that was set aside works again
    TOKEN_CREATED = "token_created"  # noqa: S105 - a kind of event
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    WEBHOOK_ADDED = "webhook_added"
    WEBHOOK_CHANGED = "webhook_changed"
    WEBHOOK_REMOVED = "webhook_removed"
    WEBHOOK_DISABLED = "webhook_disabled"  # it failed for too long, or its receiver says that it is gone


# These occur every few minutes and need no reaction: stored, but not shown in the history of a run.
ROUTINE = frozenset({EventKind.CHECKPOINTS_REMOVED, EventKind.CODE_SYNCED})


@dataclass(frozen=True, slots=True)
class Event:
    """`text`: one sentence for people. `data`: the same facts for programs (JSON values only)."""

    kind: EventKind
    text: str
    actor: str = "supervisor"
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """`about`: one clause for the docs. `usual`: Slack and Discord get it by default, because a person is needed or a
    run has ended. `urgent`: a person is needed, so it does not wait to share a message with others."""

    name: str
    about: str
    usual: bool = False
    urgent: bool = False


_ALL = (
    Kind("started", "the first attempt of the run trains"),
    Kind("preempted", "the cloud preempted the machine; the run continues by itself"),
    Kind("recovered", "the run trains again, after an attempt that was lost"),
    Kind("hanging", "nothing of the command moves any more; it is ended if the next look finds the same"),
    Kind("finding", "a watched metric is not finite or has jumped; or a run with a throttled GPU will move, or stays"),
    Kind("resume_ignored",
         "the training started over beside a good checkpoint, and the run goes on (`on_resume_ignored: warn`)", True),
    Kind("drill_failed", "a drill shows that the run does not survive a preemption notice without loss", True, True),
    Kind("stalled", "an attempt made no progress and is replaced"),
    Kind("attempt_ended", "an attempt ended for any other reason and the run continues; `details.cause` names it"),
    Kind("waiting", "no machine is available now; nothing is billed, and the run retries by itself"),
    Kind("needs_approval", "the results are verified; a person must approve the machine's release", True, True),
    Kind("approval_reminder",
         "the approval, or the confirmed end of a host's bill, is still missing; with the cost of the wait so far",
         True, True),
    Kind("needs_person",
         "the run cannot continue by itself: a quota, a refused request, killed again, a full disk, results not saved",
         True, True),
    Kind("giving_up", "the run failed at one of its limits, such as no progress or its deadline", True, True),
    Kind("budget_80", "80 % of the run's budget is spent", True),
    Kind("budget_100", "the budget is spent, so the run ended", True, True),
    Kind("completed", "the run is over and its results are verified", True),
    Kind("partial", "the run is over, and a promised result is missing", True),
    Kind("failed", "the run ended with an error that another attempt would repeat", True, True),
    Kind("stopped", "the run was stopped on request", True),
    Kind("resumed", "the run was resumed on request"),
    Kind("results_unverified", "the run ended, and its results could not be verified", True, True),
    Kind("checkpoint_rejected", "a checkpoint did not verify, so an older one is used"),
    Kind("disk_nearly_full", "a disk that the training writes to is nearly full", True, True),
    Kind("orphan_machine", "a machine of ours that serves no run was found", True),
    Kind("sweep_refused", "too many machines seem to serve no run, so none was released", True, True),
    Kind("breaker_open", "too many runs looked dead at once: none is ended without fresh evidence", True, True),
    Kind("breaker_closed", "the suspected source is proven fresh again", True),
    Kind("supervisor_restarted", "the supervisor was restarted"),
    Kind("incident", "three runs ended with something in common; or it stops launches from now on", True, True),
    Kind("incident_closed", "an incident is closed, by a person or after a quiet day"),
    Kind("patrol", "the state of all runs, on a schedule, also without changes", True),
    Kind("webhook_disabled", "an endpoint was disabled: its deliveries failed for too long", True, True),
)  # fmt: skip
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}

SAVED_ON_NOTICE = "saved_on_notice"  # in the data of a recovery: after a preemption, whether no step was lost
STOPS = "stops"  # in the data of a resume that was ignored: the end of the run has its own event
ENDS_THE_RUN = "ends_the_run"  # in the data of an attempt's end: the end of the run has its own event
ASKS = "asks"  # in the data of an attempt's end: the question to a person has its own event
AWAITING = "awaiting"  # in the data of a request to a person: the answer that releases the machine

# Ends of an attempt that an event of the run itself implies.
_IMPLIED_BY_THE_RUN = frozenset(
    {
        Cause.FINISHED, Cause.SUPERSEDED, Cause.RACE_LOST, Cause.STOP_REQUESTED, Cause.RESULTS_UNVERIFIED,
        Cause.DEADLINE, Cause.MAX_RUNTIME, Cause.BUDGET, Cause.LIMIT_REACHED, Cause.NO_PROGRESS,
    }
)  # fmt: skip
_GIVEN_UP = frozenset(
    {
        Cause.NO_PROGRESS, Cause.LIMIT_REACHED, Cause.DEADLINE, Cause.MAX_RUNTIME, Cause.MACHINE_DELETED,
        Cause.NO_CAPACITY, Cause.QUOTA, Cause.LAUNCH_REJECTED, Cause.GPU_UNAVAILABLE, Cause.GPU_FAULT,
    }
)  # fmt: skip


def announced(event: Event) -> str | None:
    """The name in KINDS under which this event is announced; None = it is in the history only."""
    kind_name = _KIND_NAMES.get(event.kind)
    return kind_name(event.data) if callable(kind_name) else kind_name


def _attempt_ended(data: Mapping[str, object]) -> str | None:
    cause = data.get("cause")
    if data.get(ENDS_THE_RUN) or data.get(ASKS) or cause in _IMPLIED_BY_THE_RUN:
        return None
    return str(cause) if cause in (Cause.PREEMPTED, Cause.STALLED) else "attempt_ended"


def _waiting(data: Mapping[str, object]) -> str | None:
    """A wait brings capacity, but no quota and no valid request. A wait for our own runs is not announced: of three
    hundred runs each would announce it."""
    if data.get("cause") in OWN_WAITS:
        return None
    if data.get("code") in (KNOWN_TO_FAIL, PLACE_QUARANTINED):
        return "waiting"  # the incident has asked a person, once for all runs that it stops
    return "needs_person" if data.get("cause") in NEEDS_PERSON else "waiting"


def _needs_person(data: Mapping[str, object]) -> str:
    return "needs_approval" if data.get(AWAITING) else "needs_person"


def _failed(data: Mapping[str, object]) -> str:
    cause = data.get("cause")
    if cause == Cause.BUDGET:
        return "budget_100"
    if cause == Cause.RESULTS_UNVERIFIED:
        return "results_unverified"
    return "giving_up" if cause in _GIVEN_UP else "failed"


def _drilled(data: Mapping[str, object]) -> str | None:
    return "drill_failed" if data.get("verdict") == "fails" else None


_KIND_NAMES: Mapping[EventKind, str | Callable[[Mapping[str, object]], str | None]] = {
    EventKind.STARTED: "started",
    EventKind.RECOVERED: "recovered",
    EventKind.ATTEMPT_ENDED: _attempt_ended,
    EventKind.WAITING: _waiting,
    EventKind.NEEDS_PERSON: _needs_person,
    EventKind.APPROVAL_REMINDER: "approval_reminder",
    EventKind.BUDGET_WARNING: "budget_80",
    EventKind.COMPLETED: "completed",
    EventKind.PARTIAL: "partial",
    EventKind.FAILED: _failed,
    EventKind.STOPPED: "stopped",
    EventKind.RESUMED: "resumed",
    EventKind.HANGING: "hanging",
    EventKind.FINDING: "finding",
    EventKind.RESUME_IGNORED: lambda data: None if data.get(STOPS) else "resume_ignored",
    EventKind.DRILLED: _drilled,
    EventKind.CHECKPOINT_REJECTED: "checkpoint_rejected",
    EventKind.DISK_NEARLY_FULL: "disk_nearly_full",
    EventKind.MACHINE_LEAKED: "orphan_machine",
    EventKind.SWEEP_REFUSED: "sweep_refused",
    EventKind.BREAKER_OPENED: "breaker_open",
    EventKind.BREAKER_CLOSED: "breaker_closed",
    EventKind.SUPERVISOR_STARTED: "supervisor_restarted",
    EventKind.INCIDENT: "incident",
    EventKind.INCIDENT_CLOSED: "incident_closed",
    EventKind.PATROL: "patrol",
    EventKind.WEBHOOK_DISABLED: "webhook_disabled",
}

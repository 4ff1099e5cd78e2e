"""Events: the lines of a run's history, and the words in which some of them are announced.

An event is written in the transaction of the change that it tells of. It says what happened inside; its announcement
says it in a word that a receiver can choose by, such as "preempted" for an attempt that ended with that cause. One
thing that happened is announced once: an attempt whose end ends the run is not announced beside the end of the run, and
a run that was given up is not announced as failed too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.domain.causes import NEEDS_PERSON, Cause


class EventKind(StrEnum):
    SUBMITTED = "submitted"
    IMPORTED = "imported"  # taken over from the older shell runner, with what that had written down
    RESUMED = "resumed"
    LAUNCHING = "launching"  # a try is on record
    TRY_FAILED = "try_failed"
    IMAGE_PINNED = "image_pinned"  # all attempts run this content from now on, or why it could not be fixed
    WAITING = "waiting"
    OBTAINED = "obtained"  # the machine is there: the attempt begins
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
    MACHINE_LEAKED = "machine_leaked"  # the sweep found a machine of ours that serves nobody
    BREAKER_OPENED = "breaker_opened"
    BREAKER_CLOSED = "breaker_closed"
    SWEEP_REFUSED = "sweep_refused"
    CHECKPOINTS_REMOVED = "checkpoints_removed"  # pruned by the run's own rule
    RESULTS_PULLED = "results_pulled"
    PURGED = "purged"  # a person had the run's files deleted
    CHANGED = "changed"  # a person changed labels, limits or zones
    BUDGET_WARNING = "budget_warning"  # 80 % of what the run may cost
    DISK_NEARLY_FULL = "disk_nearly_full"
    APPROVAL_REMINDER = "approval_reminder"  # a machine still waits, and bills, for a person's word
    SUPERVISOR_STARTED = "supervisor_started"
    PATROL = "patrol"  # how everything stands, also when nothing has changed
    CODE_STORED = "code_stored"
    PRICES_REFRESHED = "prices_refreshed"
    DISASTER = "disaster"  # somebody had a machine taken away, killed or frozen, or zones run out of machines
    GPU_BACK = "gpu_back"  # a person said that a GPU that was set aside works again
    TOKEN_CREATED = "token_created"  # noqa: S105 - a kind of event
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    WEBHOOK_ADDED = "webhook_added"
    WEBHOOK_CHANGED = "webhook_changed"
    WEBHOOK_REMOVED = "webhook_removed"
    WEBHOOK_DISABLED = "webhook_disabled"  # it failed for too long, or said that it is gone


# What happens every few minutes and asks nobody for anything: kept, and left out where people look at a run.
ROUTINE = frozenset({EventKind.CHECKPOINTS_REMOVED})


@dataclass(frozen=True, slots=True)
class Event:
    """`text` is one sentence for people; `data` the same facts for programs (JSON values only)."""

    kind: EventKind
    text: str
    actor: str = "supervisor"
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """`about`: one clause for the docs. `usual`: what Slack and Discord get where nothing was chosen, because a person
    is needed or something has finished. `urgent`: a person is needed, so that it waits for nothing to be gathered."""

    name: str
    about: str
    usual: bool = False
    urgent: bool = False


_ALL = (
    Kind("started", "the first attempt of the run trains"),
    Kind("preempted", "the cloud took the machine back; the run goes on by itself"),
    Kind("recovered", "the run trains again, after an attempt that was lost"),
    Kind("stalled", "an attempt made no progress and is replaced"),
    Kind("attempt_ended", "an attempt ended for any other reason and the run goes on; `details.cause` names it"),
    Kind("waiting", "there is no machine to be had now; nothing is billed, and the run tries again by itself"),
    Kind("needs_approval", "the results are verified, and a person must let the machine go", True, True),
    Kind("approval_reminder", "the same person is still waited for, and what that has cost so far", True, True),
    Kind("needs_person", "the run cannot go on by itself: a quota, a refused request, results not saved", True, True),
    Kind("giving_up", "the run failed by a limit of its own, such as no progress or its deadline", True, True),
    Kind("budget_80", "80 % of the run's budget is spent", True),
    Kind("budget_100", "the budget is spent and the run ended by it", True, True),
    Kind("completed", "the run is over and its results are verified", True),
    Kind("partial", "the run is over, and something that was promised is missing", True),
    Kind("failed", "the run ended with an error that another attempt would repeat", True, True),
    Kind("stopped", "somebody stopped the run", True),
    Kind("resumed", "somebody resumed the run"),
    Kind("results_unverified", "the run ended without results that could be verified", True, True),
    Kind("checkpoint_rejected", "a checkpoint did not verify, so that an older one was taken"),
    Kind("disk_nearly_full", "a disk that the training writes to is nearly full", True, True),
    Kind("orphan_machine", "a machine of ours that serves nobody was found", True),
    Kind("sweep_refused", "too many machines seem to serve nobody, so that none was released", True, True),
    Kind("breaker_open", "so many runs looked dead at once that nothing is ended until that is proven", True, True),
    Kind("breaker_closed", "the source that looked wrong is proven fresh again", True),
    Kind("supervisor_restarted", "the supervisor was started again"),
    Kind("patrol", "how everything stands, on a schedule, also when nothing has changed", True),
    Kind("webhook_disabled", "an endpoint gets nothing any more, because it took nothing for too long", True, True),
)  # fmt: skip
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}

ENDS_THE_RUN = "ends_the_run"  # in the data of an attempt's end: the end of the run is told beside it
AWAITING = "awaiting"  # in the data of what is asked of a person: the word that lets the machine go

# Ends of an attempt that follow from what is told of the run itself.
_TOLD_OF_THE_RUN = frozenset(
    {
        Cause.FINISHED, Cause.SUPERSEDED, Cause.STOP_REQUESTED, Cause.RESULTS_UNVERIFIED, Cause.DEADLINE,
        Cause.MAX_RUNTIME, Cause.BUDGET, Cause.LIMIT_REACHED, Cause.NO_PROGRESS,
    }
)  # fmt: skip
_GIVEN_UP = frozenset(
    {
        Cause.NO_PROGRESS, Cause.LIMIT_REACHED, Cause.DEADLINE, Cause.MAX_RUNTIME, Cause.MACHINE_DELETED,
        Cause.NO_CAPACITY, Cause.QUOTA, Cause.LAUNCH_REJECTED, Cause.GPU_UNAVAILABLE, Cause.GPU_FAULT,
    }
)  # fmt: skip


def announced(event: Event) -> str | None:
    """The name in KINDS under which this event is announced; None = it stands in the history only."""
    word = _WORDS.get(event.kind)
    return word(event.data) if callable(word) else word


def _attempt_ended(data: Mapping[str, object]) -> str | None:
    cause = data.get("cause")
    if data.get(ENDS_THE_RUN) or cause in _TOLD_OF_THE_RUN:
        return None
    return str(cause) if cause in (Cause.PREEMPTED, Cause.STALLED) else "attempt_ended"


def _waiting(data: Mapping[str, object]) -> str | None:
    """Waiting brings capacity, but neither a quota nor a request that the cloud accepts. A queue of our own is no news:
    three hundred runs would say it three hundred times."""
    if data.get("cause") == Cause.QUEUED:
        return None
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


_WORDS: Mapping[EventKind, str | Callable[[Mapping[str, object]], str | None]] = {
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
    EventKind.CHECKPOINT_REJECTED: "checkpoint_rejected",
    EventKind.DISK_NEARLY_FULL: "disk_nearly_full",
    EventKind.MACHINE_LEAKED: "orphan_machine",
    EventKind.SWEEP_REFUSED: "sweep_refused",
    EventKind.BREAKER_OPENED: "breaker_open",
    EventKind.BREAKER_CLOSED: "breaker_closed",
    EventKind.SUPERVISOR_STARTED: "supervisor_restarted",
    EventKind.PATROL: "patrol",
    EventKind.WEBHOOK_DISABLED: "webhook_disabled",
}

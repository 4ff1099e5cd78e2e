"""One line of a run's history. Written in the transaction of the change that it tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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

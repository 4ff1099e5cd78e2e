"""The statuses of a run and the table of allowed transitions.

The cause of an end is a separate field, never another status. `TRANSITIONS` generates section 9 of docs/rules.md.
"""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    PENDING = "pending"
    WAITING = "waiting"
    LAUNCHING = "launching"
    RUNNING = "running"
    RECOVERING = "recovering"
    FINISHING = "finishing"
    STOPPING = "stopping"
    AWAITING_TEARDOWN = "awaiting_teardown"
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    STOPPED = "stopped"


S = Status
TERMINAL = frozenset({S.COMPLETED, S.PARTIAL, S.FAILED, S.STOPPED})
ACTIVE = frozenset(set(Status) - TERMINAL)
PLACING = frozenset({S.PENDING, S.WAITING, S.RECOVERING})  # no try in flight: the next one is being chosen

# (from, to) -> why. The reconciler decides all of them, except the rows that begin with "resume".
TRANSITIONS: dict[tuple[Status, Status], str] = {
    (S.PENDING, S.LAUNCHING): "a zone is chosen; the try is on record before the call",
    (S.PENDING, S.WAITING): "no zone has capacity now, or other runs come first",
    (S.PENDING, S.STOPPED): "stop",
    (S.PENDING, S.STOPPING): "stop, a machine of the previous generation is still there",
    (S.PENDING, S.FAILED): "deadline, or the image does not exist",
    (S.WAITING, S.LAUNCHING): "a zone may have capacity again, or its turn has come",
    (S.WAITING, S.STOPPED): "stop",
    (S.WAITING, S.STOPPING): "stop, a machine is still there",
    (S.WAITING, S.FAILED): "deadline, wait_for_capacity_s, ask_limit_s, or the image does not exist",
    (S.WAITING, S.RECOVERING): "a person lets it go on",
    (S.LAUNCHING, S.RUNNING): "first beat in phase restore or later",
    (S.LAUNCHING, S.WAITING): "the try failed and no other zone is left, or the attempt ended and a person decides",
    (S.LAUNCHING, S.RECOVERING): "the machine was lost before its training began",
    (S.LAUNCHING, S.FINISHING): "the work was done before the first tick",
    (S.LAUNCHING, S.STOPPING): "stop, deadline or budget",
    (S.LAUNCHING, S.STOPPED): "stop between two tries, no machine",
    (S.LAUNCHING, S.FAILED): "the attempt ended for good",
    (S.RUNNING, S.RECOVERING): "the attempt ended; the next one is placed",
    (S.RUNNING, S.WAITING): "the attempt ended, and a person decides what follows",
    (S.RUNNING, S.FINISHING): "exit 0, or failed after the last step with its results there",
    (S.RUNNING, S.STOPPING): "stop, deadline, budget or max_runtime",
    (S.RUNNING, S.FAILED): "the attempt ended for good",
    (S.RECOVERING, S.LAUNCHING): "backoff over, a zone is chosen",
    (S.RECOVERING, S.WAITING): "no zone has capacity now",
    (S.RECOVERING, S.FINISHING): "the ended attempt had done the work",
    (S.RECOVERING, S.STOPPED): "stop, no machine left",
    (S.RECOVERING, S.STOPPING): "stop, a machine is still there",
    (S.RECOVERING, S.FAILED): "a limit of the run is reached, or the image does not exist",
    (S.WAITING, S.FINISHING): "the ended attempt had done the work",
    (S.FINISHING, S.COMPLETED): "results verified",
    (S.FINISHING, S.PARTIAL): "verified, but something promised is missing",
    (S.FINISHING, S.AWAITING_TEARDOWN): "verified; a person approves the release, or pulls the results",
    (S.FINISHING, S.RECOVERING): "the machine was lost before `done`",
    (S.FINISHING, S.WAITING): "the attempt ended, and a person decides what follows",
    (S.FINISHING, S.STOPPING): "stop",
    (S.FINISHING, S.FAILED): "results could not be verified",
    (S.STOPPING, S.STOPPED): "the machine is known gone",
    (S.STOPPING, S.FAILED): "ended by a limit of the run; the machine is known gone",
    (S.STOPPING, S.FINISHING): "the work was done before the stop arrived",
    (S.AWAITING_TEARDOWN, S.COMPLETED): "approved, pulled, ended by itself, or ask_limit_s is over",
    (S.AWAITING_TEARDOWN, S.PARTIAL): "the same, where something promised is missing",
    (S.STOPPED, S.PENDING): "resume",
    (S.FAILED, S.PENDING): "resume",
    (S.PARTIAL, S.PENDING): "resume",
    (S.COMPLETED, S.PENDING): "resume with rerun",
}


def may_move(before: Status, after: Status) -> bool:
    """True when a run may move from `before` to `after`; no move is always allowed."""
    return before == after or (before, after) in TRANSITIONS

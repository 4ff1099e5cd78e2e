"""What is said of an attempt that is over: one phrase for each cause, its evidence, and what it counts as.

`ending.py` decides how an attempt ends; this file only words it, for the sentence of a recovering run and for the
table of attempts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause, Kind, rule_for
from supervisor.domain.run import Run
from supervisor.wording.figures import after_colon, age_text, clip, count_text, plural

EVIDENCE_LIMIT = 120

# {zone} and {ran} are filled in; what the platform or the agent said follows behind a colon.
PHRASES: Mapping[Cause, str] = {
    Cause.PREEMPTED: "Preempted in {zone} after {ran}",
    Cause.HOST_ERROR: "The host failed under the machine in {zone} after {ran}",
    Cause.HOST_REBOOTED: "The machine in {zone} was rebooted after {ran}",
    Cause.EXPIRED: "The machine in {zone} reached its longest allowed life after {ran}",
    Cause.TIME_LIMIT: "A time limit of the platform ended the command in {zone} after {ran}",
    Cause.MACHINE_DELETED: "Somebody removed the machine in {zone} after {ran} without stopping the run",
    Cause.SUPERSEDED: "The agent in {zone} left after {ran}, because it no longer held the run",
    Cause.CUT_OFF: "The agent in {zone} stopped itself after {ran}: it reached neither the store nor the supervisor",
    Cause.NO_CAPACITY: "No machine could be had in {zone}",
    Cause.QUOTA: "The quota allows no machine in {zone}",
    Cause.LAUNCH_REJECTED: "The request for a machine in {zone} was refused",
    Cause.QUEUED: "The place in {zone} was held by our own machines",
    Cause.ORPHANED: "The machine in {zone} is gone after {ran} without a record of why, and its beats have ended",
    Cause.AGENT_LOST: "The machine in {zone} is up but its agent has fallen silent after {ran}",
    Cause.GPU_FAULT: "The GPU in {zone} failed after {ran}",
    Cause.GPU_UNAVAILABLE: "The machine in {zone} did not show all its GPUs within {ran}",
    Cause.BOOT_TIMEOUT: "The machine in {zone} gave no heartbeat within {ran}",
    Cause.STALLED: "Stalled in {zone} after {ran}",
    Cause.HOST_OOM: "The machine in {zone} ran out of memory after {ran}",
    Cause.DISK_FULL: "The disk of the machine in {zone} was full after {ran}",
    Cause.KILLED: "The command in {zone} was killed from outside after {ran}",
    Cause.UNKNOWN: "The attempt in {zone} ended after {ran} for no known reason",
    Cause.USER_ERROR: "The command failed in {zone} after {ran}",
    Cause.GPU_OOM: "The GPU in {zone} ran out of memory after {ran}",
    Cause.IMAGE_ERROR: "The image could not be started in {zone}",
    Cause.COMMAND_NOT_FOUND: "The command could not be started in {zone}",
    Cause.FINISHED: "The command finished in {zone} after {ran}",
    Cause.DEADLINE: "The run's deadline passed after {ran} in {zone}",
    Cause.MAX_RUNTIME: "The run's training time was used up after {ran} in {zone}",
    Cause.BUDGET: "The run's budget was spent after {ran} in {zone}",
    Cause.LIMIT_REACHED: "The run's limit of attempts was reached after {ran} in {zone}",
    Cause.NO_PROGRESS: "The attempt in {zone} ended after {ran} without a newer checkpoint",
    Cause.RESULTS_UNVERIFIED: "The results could not be verified after {ran} in {zone}",
    Cause.STOP_REQUESTED: "Stopped in {zone} after {ran}",
}
# Causes whose phrase says it all: what the platform says beyond it is in the events.
_EVIDENCE_ADDS_NOTHING = frozenset({Cause.ORPHANED, Cause.CUT_OFF, Cause.SUPERSEDED})


def ran_s(attempt: Attempt, now: float) -> float:
    """How long the attempt had its machine, in seconds."""
    end = attempt.ended_at if attempt.ended_at is not None else now
    return max(0.0, end - attempt.started_at - attempt.drift_s)


def ended_text(attempt: Attempt, now: float) -> str:
    """One clause without a full stop: 'Preempted in us-east1-c after 2 h 14 min: preempted with 30 s notice'."""
    cause = attempt.cause or Cause.UNKNOWN
    phrase = PHRASES[cause].format(zone=clip(attempt.placement.zone, 40), ran=age_text(ran_s(attempt, now)))
    evidence = after_colon(clip(attempt.evidence, EVIDENCE_LIMIT))
    if not evidence or cause in _EVIDENCE_ADDS_NOTHING:
        return phrase
    return f"{phrase}: {evidence}"


def steps_lost(attempt: Attempt, resume_from: int | None) -> int | None:
    """Steps that have to be trained again; None when the attempt reported none."""
    if attempt.step_last is None:
        return None
    return max(0, attempt.step_last - (resume_from or 0))


def kept_step(attempt: Attempt, after: Attempt | None) -> int | None:
    """The newest verified checkpoint of this attempt; None = none. `after`: the next one. What was saved when the
    attempt was over already, within a notice, is known from where the next one began."""
    if after is None or after.generation != attempt.generation or after.step_from is None:
        return attempt.step_kept
    newer = after.step_from > max(attempt.step_from or 0, attempt.step_kept or 0)
    return after.step_from if newer else attempt.step_kept


def kept_text(attempt: Attempt, resume_from: int | None, saving: bool = False) -> str:
    """'checkpoint 12,290 is saved, 10 steps lost'. `saving`: its machine has notice and may still save, so nothing is
    lost yet."""
    lost = steps_lost(attempt, resume_from)
    saved = "no checkpoint yet" if resume_from is None else f"checkpoint {count_text(resume_from)} is saved"
    if lost is None:
        return saved
    if saving and lost > 0:
        return f"{saved}; saving, at most {plural(lost, 'step')} at risk"
    return f"{saved}, {plural(lost, 'step')} lost"


def may_still_save(run: Run, now: float) -> bool:
    """The machine of the last attempt was told of its end and runs until then."""
    attempt = run.attempt
    return attempt is not None and any(
        item.launch_id == attempt.launch_id and item.until > now and attempt.cause == Cause.PREEMPTED
        for item in run.retiring
    )


def counts_text(run: Run) -> str:
    """What this end counts as: 'Does not count as a failure', or the failures so far and their limit."""
    attempt = run.attempt
    if attempt is None or attempt.cause is None:
        return ""
    kept, start = attempt.step_kept, attempt.step_from
    newer = kept is not None and (start is None or kept > start)
    rule = rule_for(attempt.cause, newer, attempt.exit is not None and attempt.exit.retry_named)
    if not rule.counts:
        return "Does not count as a failure"
    limits, counters = run.policy.limits, run.counters
    if rule.kind == Kind.USER:
        return f"Failure {counters.user_failures} of {limits.max_user_failures} of the command itself"
    return f"Failure {counters.counted} of {limits.max_attempts}"


def why_none_text(detail: str) -> str:
    """': GPU 0 is held by …'. A platform's own word for a stock-out (SOME_CODE: …) tells a person nothing more."""
    return "" if not detail or re.match(r"[A-Z0-9_]+(:|$)", detail) else f": {detail.rstrip('.')}"

"""What is said of an attempt that is over: one phrase for each cause, its evidence, and what it counts as.

`ending.py` decides how an attempt ends; this file only words it, for the sentence of a recovering run, for the table of
attempts, and for what the command line and the pages show of its evidence. What an agent wrote there is believed in
nothing: fields may be missing or of another kind. The text of others comes out as it stands: whoever shows it makes it
harmless.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause, Kind, rule_for
from supervisor.domain.run import Run
from supervisor.wording.figures import after_colon, age_text, clip, count_text, gib_text, plural

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


# Ends that nobody asks "why" of: what the command did is not their cause.
UNREMARKABLE = frozenset({"finished", "preempted", "stop_requested", "superseded", "expired"})

Told = Mapping[str, Any]


def mapping(value: object) -> Told:
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def last_failure(attempts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The newest attempt that is over, if its end is one that people ask about."""
    over = [attempt for attempt in attempts if attempt.get("ended_at") is not None]
    return over[-1] if over and over[-1].get("cause") not in UNREMARKABLE else None


def exit_words(end: Told) -> str:
    """`SIGKILL, not sent by us, after 3 min`"""
    if not end:
        return ""
    number, ran = end.get("signal"), end.get("ran_s")
    parts = [f"code {end.get('code')}" if number is None else _signal(number)]
    if number is not None or end.get("sent_by_us"):
        parts.append("sent by us" if end.get("sent_by_us") else "not sent by us")
    if isinstance(ran, int | float):
        parts.append(f"after {age_text(ran)}")
    return ", ".join(parts)


def _signal(number: object) -> str:
    try:
        return signal.Signals(number).name  # type: ignore[arg-type]
    except ValueError:
        return f"signal {number}"


def kills_of(end: Told, agent: Told) -> int | None:
    """How often the kernel killed for memory; None = nobody could count."""
    kills = end.get("oom_kills", agent.get("oom_kills"))
    return kills if isinstance(kills, int) else None


def kills_words(kills: int | None) -> str:
    return f"kills for memory: {'not countable here' if kills is None else kills}"


def telemetry_of(kept: Told) -> Told:
    """Of the last beat, else of the agent's part."""
    return mapping(mapping(kept.get("beat")).get("telemetry")) or mapping(mapping(kept.get("agent")).get("telemetry"))


def memory_words(kept: Told) -> str:
    """`22.5 of 24 GiB at the last look`; "" = not told."""
    group = mapping(telemetry_of(kept).get("cgroup"))
    used, most = group.get("memory_bytes"), group.get("memory_max_bytes")
    if not (isinstance(used, int | float) and isinstance(most, int | float)):
        return ""
    return f"{gib_text(used)} of {gib_text(most)} GiB at the last look"


def disk_words(end: Told, agent: Told) -> str:
    if end.get("disk_full"):
        return f"full: {end['disk_full']}"
    disks = []
    for role, figures in mapping(agent.get("disks")).items():
        free, inodes = mapping(figures).get("free_bytes"), mapping(figures).get("free_inodes")
        if isinstance(free, int | float):
            more = f", {count_text(int(inodes))} inodes" if isinstance(inodes, int | float) else ""
            disks.append(f"{role}: {gib_text(free)} GiB{more} free")
    return "; ".join(disks)


def beat_words(beat: Told, at: str) -> str:
    """`at`: its time as it is to be shown."""
    if not beat:
        return ""
    step = beat.get("step")
    reached = f", step {count_text(step)}" if isinstance(step, int) else ""
    message = f", {beat['message']}" if beat.get("message") else ""
    return f"{at}, phase {beat.get('phase')}{reached}{message}"

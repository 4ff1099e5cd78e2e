"""The status sentence of a run: the same in lists, on pages, in chats and on the command line.

A person who is woken at night should understand in ten seconds what happened, what was done, what it costs, what comes
next, and whether they must act. Each status has a function here or in end.py that gives clauses without full stops; the
last clause is what happens next. Unknown figures are left out, never shown as zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from supervisor.contract import heartbeat
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.causes import NO_GPU, Cause
from supervisor.domain.figures import figures_of
from supervisor.domain.machines import Away
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.wording import end
from supervisor.wording.attempt import counts_text, ended_text, kept_text, may_still_save
from supervisor.wording.figures import (
    age_text,
    clip,
    clock_text,
    count_text,
    ended,
    plural,
    rate_text,
    short_digests,
    step_text,
    until_text,
)
from supervisor.wording.forecast import (
    Shown,
    boot_limit_at,
    due_text,
    eta_s,
    kept_machine_text,
    likely_zone,
    live_pulse,
    next_action,
    out_of_contact,
    restart_at,
    shown_progress,
    stalling,
)
from supervisor.wording.stalls import late_clauses, slow_clause

__all__ = ["next_action", "status_text"]

FIX_LIMIT = 260  # letters of a text that says what the user must correct
LENGTH_LIMIT = 400
# Before this, a training without a step may simply not have reached its first one.
SILENT_STEPS_AFTER_S = 300.0
UNSAVED_AFTER_S = 60.0


def status_text(run: Run, now: float, live_age_s: float | None = None, trouble: str = "") -> str:
    """At most 400 characters, ending in a full stop or in the dots of a cut. `live_age_s`: the age of the last beat,
    where the caller has a newer one than the row. `trouble`: why the supervisor cannot write its database or the object
    store, which concerns every run that is not over."""
    clauses = _clauses(run, now, live_age_s)
    if run.hold and not run.terminal:
        if run.status in PLACING:
            clauses.pop()  # the hold prevents what was next
        clauses.append(f"On hold: {clip(run.hold, 100)}; continues by itself when that is over")
    tail_from = len(clauses) - 1
    if not run.terminal:
        needs = ("" if end.loss_accepted(run) else run.person.why, trouble)
        clauses += [f"Needs you: {clip(need, 130)}" for need in needs if need]
    return _joined(clauses[:tail_from], clauses[tail_from:])


def _clauses(run: Run, now: float, live_age_s: float | None) -> list[str]:
    clauses = _of_status(run, now, live_age_s)
    return clauses if run.away is None else _without_contact(run, run.away, clauses, now, live_age_s)


def _without_contact(run: Run, away: Away, clauses: list[str], now: float, live_age_s: float | None) -> list[str]:
    """What is true while the host or zone of a machine cannot be read. Of a training that nobody hears, the status is
    only the last known one."""
    zone = clip(away.zone, 40)
    lost = f"; if {zone} is lost for good: `spot approve {run.run_id} --write-off REASON`" if away.lasting else ""
    contact = f"No contact with {zone} for {age_text(now - away.since)}: {clip(away.reason, 100)}"
    if not out_of_contact(run, now, live_age_s):
        return [*clauses[:-1], contact, clauses[-1] + lost]
    last = f"Last known: {clauses[0][:1].lower()}{clauses[0][1:]}"
    return [contact, last, f"Next: nothing is ended or started elsewhere until it responds{lost}"]


def _of_status(run: Run, now: float, live_age_s: float | None) -> list[str]:
    if run.stop is not None and run.status in (*PLACING, Status.LAUNCHING, Status.RUNNING):
        return end.stopping(run, now)
    return _CLAUSES[run.status](run, now) if run.status in _CLAUSES else _running(run, now, live_age_s)


def _joined(facts: Sequence[str], tail: Sequence[str]) -> str:
    """Facts are cut to the limit; what comes next and what a person must do never are."""
    last = " ".join(ended(clip(clause, 180)) for clause in tail)
    start = " ".join(ended(clause) for clause in facts if clause)
    left = LENGTH_LIMIT - len(last) - 1
    if len(start) > left:
        start = clip(start, left)
    return f"{start} {last}" if start else last


def _pending(run: Run, now: float) -> list[str]:
    began = "Accepted" if run.generation == 1 else f"Resumed (generation {run.generation})"
    where = likely_zone(run) or "the first zone with capacity"
    due = f" ({due_text(run.next_at, now)})" if run.next_at is not None and run.next_at > now else ""
    return [f"{began} {age_text(now - run.generation_at)} ago", f"Next: start in {where} on the coming tick{due}"]


def _waiting(run: Run, now: float) -> list[str]:
    call = run.try_
    cause = run.cause or (call.outcome if call is not None else None)
    whole = run.detail or (call.detail if call is not None else "")
    detail = clip(whole, 140)
    since = run.waiting.since if run.waiting.since is not None else run.status_since
    billed = f"{plural(len(run.retiring), 'old machine')} still to be released" if run.retiring else "Nothing is billed"
    billed = kept_machine_text(run, now) or billed
    if cause == Cause.QUEUED:
        return [
            f"Queued since {clock_text(since, now)}: {detail}. {billed}",
            "Next: it starts when it is first in the queue and one of our machines is gone",
        ]
    if run.asks and run.attempt is not None:
        kept = kept_text(run.attempt, run.files.checkpoint_step)
        return [
            f"{ended_text(run.attempt, now)}; {kept}",
            f"Waiting for you for {age_text(now - since)}. {billed}",
            f"Needs you: `spot retry {run.run_id}`, or `spot stop {run.run_id}`",
        ]
    if cause == Cause.QUOTA_HOURS:
        due = "" if run.next_at is None else f" {due_text(run.next_at, now)}"
        return [f"Waiting since {clock_text(since, now)}: {detail}. {billed}", f"Next: it starts by itself then,{due}"]
    if cause in _NEXT_AFTER_OTHERS:
        return [f"Waiting since {clock_text(since, now)}: {detail}. {billed}", _NEXT_AFTER_OTHERS[cause]]
    gives_up = f"gives up at {clock_text(since + run.policy.limits.wait_for_capacity_s, now)}"
    if run.waiting.held:
        gives_up = "pays for a machine when its deadline needs it"
    due = f"{due_text(run.next_at, now)}; {gives_up}"
    if cause == Cause.QUOTA:
        return [
            detail or f"The quota allows no {_shape(run)} in {_zones(run)}",
            f"Waiting will not help by itself: raise the quota or allow another region. {billed}",
            f"Next check {due}",
        ]
    if cause == Cause.LAUNCH_REJECTED:
        return [
            f"The request for a machine was refused: {clip(whole, FIX_LIMIT) or 'no reason given'}",
            f"Waiting will not help by itself: correct what the text names. {billed}",
            f"Next try {due}",
        ]
    if cause in NO_GPU:
        return [
            f"No zone has a working GPU: {detail or 'no reason given'}",
            f"Allow other zones or shapes, or on-demand machines, or fix the driver. {billed}",
            f"Next try {due}",
        ]
    tries = plural(call.number, "try") if call is not None and call.outcome is not None else ""
    tried = f" ({tries}, no attempt spent)" if tries else ""
    zone = likely_zone(run)
    return [
        f"No {_shape(run)} in {_zones(run)} since {clock_text(since, now)}{tried}{_shortage(detail)}. {billed}",
        f"Next try {zone + ' ' if zone else ''}{due}",
    ]


_NEXT_AFTER_OTHERS = {
    Cause.GROUP_LIMIT: "Next: it starts when it is first in its group and a machine of the group is gone",
    Cause.MACHINE_LIMIT: "Next: it starts when one of these ends and its turn has come",
    Cause.DEPENDENCY: "Next: it starts by itself after that",
    Cause.DEPENDENCY_FAILED: "Next: nothing before you act",
}


def _shortage(detail: str) -> str:
    """': GPU 0 is held by …'. A platform's own code for a stock-out (SOME_CODE: …) tells a person nothing more."""
    return "" if not detail or re.match(r"[A-Z0-9_]+(:|$)", detail) else f": {detail.rstrip('.')}"


def _shape(run: Run) -> str:
    shape = run.policy.shapes[0] if run.policy.shapes else (run.try_.placement.shape if run.try_ else "machine")
    return f"{clip(shape, 40)} {'spot' if run.policy.spot else 'on-demand'}"


def _zones(run: Run) -> str:
    """'us-east1-b, c, d': the common beginning is written once."""
    zones = [clip(zone, 40) for zone in run.policy.zones]
    if not zones:
        return "any zone"
    stem = zones[0].rpartition("-")[0] + "-"
    same = len(stem) > 1 and all(zone.startswith(stem) and len(zone) > len(stem) for zone in zones)
    shown = [zones[0], *(zone.removeprefix(stem) if same else zone for zone in zones[1:4])]
    more = f" and {len(zones) - 4} more" if len(zones) > 4 else ""
    return ", ".join(shown) + more


def _launching(run: Run, now: float) -> list[str]:
    live = run.live_attempt
    if live is not None:
        return _booting(run, live, now)
    call = run.open_try
    if call is None:
        return ["A machine is being chosen", "Next: its request in the coming tick"]
    which = f"Attempt {call.attempt}" + (f" (try {call.number})" if call.number > 1 else "")
    zone, shape = clip(call.placement.zone, 40), clip(call.placement.shape, 40)
    return [
        f"{which}: requesting a {shape} in {zone}{_race_text(run)} for {age_text(now - call.requested_at)}",
        f"Next: its first heartbeat, within {age_text(run.policy.stall.boot_timeout_s)} of its start",
    ]


def _race_text(run: Run) -> str:
    """' and in us-east1-c (the first machine is used)', while two zones are asked."""
    rival = run.open_rival
    return "" if rival is None else f" and in {clip(rival.placement.zone, 40)} (the first machine is used)"


def _booting(run: Run, attempt: Attempt, now: float) -> list[str]:
    pulse = live_pulse(run)
    message, began = "", attempt.up_at if attempt.up_at is not None else attempt.started_at
    if pulse is not None:
        message = f": {clip(short_digests(pulse.message), 100) or f'phase {pulse.phase}'}"
        began = pulse.phase_since
    limit_at, where = boot_limit_at(run, attempt), clip(attempt.placement.zone, 40)
    left = f"within {until_text(limit_at, now)}" if limit_at > now else "now: its boot limit is over"
    return [
        f"Attempt {attempt.number} boots in {where}{message} for {age_text(now - began)}",
        f"First heartbeat of the training expected {left}",
    ]


def _running(run: Run, now: float, live_age_s: float | None = None) -> list[str]:
    attempt, pulse = run.live_attempt, live_pulse(run)
    if attempt is None:
        return ["The attempt is over", "Next: decided on the coming tick"]
    if pulse is None:
        began = attempt.running_at if attempt.running_at is not None else attempt.started_at
        return [f"Running for {age_text(now - began)}; no beat has been read yet", _which(attempt)]
    late = late_clauses(pulse, run.policy.stall, _without_progress_s(pulse, now))
    if late:
        return late
    if pulse.phase == heartbeat.TRAINING and stalling(run):
        return _stalling(run, pulse, now)
    age_s = live_age_s if live_age_s is not None else max(0.0, now - pulse.beat_at)
    clauses = [_doing(run, attempt, pulse, now), _beat(run, age_s)]
    silent = pulse.step is None and not run.reported and _trained_s(attempt, pulse, now) >= SILENT_STEPS_AFTER_S
    if pulse.phase == heartbeat.TRAINING and silent:
        return [*clauses, "See docs/training-contract.md to report steps in two lines"]
    slow = slow_clause(pulse, run.moving.after_step is not None)
    return [*clauses, slow, _unsaved(run, attempt, pulse, now), _which(attempt)]


def _unsaved(run: Run, attempt: Attempt, pulse: Pulse, now: float) -> str:
    """'' once a checkpoint is safe, and in the first minute, which is too early for one."""
    saved = any(step is not None for step in (run.files.checkpoint_step, pulse.checkpoint_step, attempt.step_from))
    if saved or pulse.step is None or _trained_s(attempt, pulse, now) < UNSAVED_AFTER_S:
        return ""
    return f"No checkpoint yet: {plural(pulse.step + bool(pulse.from_zero), 'step')} at risk"


def _doing(run: Run, attempt: Attempt, pulse: Pulse, now: float) -> str:
    for_text = age_text(now - pulse.phase_since)
    limits = run.policy.stall
    if pulse.phase in heartbeat.BEFORE_CLAIM:
        return f"The machine was rebooted, and its agent starts again, for {for_text}"
    if pulse.phase == heartbeat.SETUP:
        return f"Preparing the machine for {for_text} (limit {age_text(limits.setup_s)})"
    if pulse.phase == heartbeat.RESTORE:
        return f"Restoring {step_text(run.files.checkpoint_step)} for {for_text} (limit {age_text(limits.restore_s)})"
    if pulse.phase == heartbeat.CHECKPOINT:
        return f"Saving a checkpoint at {step_text(pulse.step)} for {for_text} (limit {age_text(limits.checkpoint_s)})"
    if pulse.phase == heartbeat.EVALUATION:
        return f"Evaluating at {step_text(pulse.step)} for {for_text} (limit {age_text(limits.evaluation_s)})"
    if pulse.phase in (heartbeat.FINISHING, heartbeat.FINISHED):
        return f"The command has ended; its results are being saved for {for_text}"
    shown = shown_progress(run, pulse)
    return _steps(run, shown, now) if shown.step is not None else _without_steps(run, attempt, pulse, now)


def _without_steps(run: Run, attempt: Attempt, pulse: Pulse, now: float) -> str:
    trained_s = _trained_s(attempt, pulse, now)
    if run.reported:
        limit = age_text(run.policy.stall.first_progress_s)
        return f"Training for {age_text(trained_s)} without a step yet (the first is due within {limit})"
    if trained_s < SILENT_STEPS_AFTER_S:
        return f"Training for {age_text(trained_s)}; no step reported yet, watched by its beats and its motion"
    return (
        f"Training for {age_text(trained_s)}; this command reports no progress, so it is watched by its beats "
        "and its motion"
    )


def _trained_s(attempt: Attempt, pulse: Pulse, now: float) -> float:
    return now - (attempt.training_at if attempt.training_at is not None else pulse.phase_since)


def _steps(run: Run, shown: Shown, now: float) -> str:
    assert shown.step is not None
    about = "≈ " if shown.guessed else ""
    parts = [f"Training at step {about}{count_text(shown.step)}"]
    if shown.total:
        parts[0] += f" of {count_text(shown.total)} ({min(100, 100 * shown.step // shown.total)} %)"
    if shown.steps_per_s is not None and shown.steps_per_s > 0:
        parts.append(rate_text(shown.steps_per_s))
    left_s = eta_s(run, now)
    if left_s is not None:
        parts.append(f"ETA {about}{age_text(left_s)}")
    text = ", ".join(parts)
    return f"{text} (read from the log: the command reports no steps, and is watched by its motion)" if about else text


def _beat(run: Run, age_s: float) -> str:
    limit_s = run.policy.stall.silence_s
    if age_s <= limit_s:
        return f"Last beat {age_text(age_s)} ago"
    return (
        f"Last beat {age_text(age_s)} ago, limit {age_text(limit_s)}: "
        "replaced only when a second source agrees that it is dead"
    )


def _which(attempt: Attempt) -> str:
    which = f"Attempt {attempt.number}, {clip(attempt.placement.zone, 40)}"
    if attempt.step_from is not None:
        return f"{which}, resumed from {step_text(attempt.step_from)}"
    # Where it starts is known from its first beat in training.
    return which if attempt.training_at is None else f"{which}, from the beginning"


def _without_progress_s(pulse: Pulse, now: float) -> float:
    return now - (pulse.progress_at if pulse.progress_at is not None else pulse.phase_since)


def _stalling(run: Run, pulse: Pulse, now: float) -> list[str]:
    limit, restart, step = run.policy.stall.polls, restart_at(run), step_text(pulse.step)
    gpu = figures_of(pulse.telemetry).gpu_pct
    since_s = _without_progress_s(pulse, now)
    due = f" ({due_text(restart, now)})" if restart is not None and restart > now else ""
    return [
        f"No progress since {step} for {age_text(since_s)} (stall poll {pulse.stall_polls} of {limit})",
        "Heartbeats continue" + (f", GPU {gpu:.0f} %" if gpu is not None else ""),
        f"Next: restart at poll {limit}{due}",
    ]


def _recovering(run: Run, now: float) -> list[str]:
    attempt = run.attempt
    if attempt is None or attempt.ended_at is None:
        return ["The last attempt is over", f"Next: a new machine {due_text(run.next_at, now)}"]
    newest = run.files.checkpoint_step
    if run.kept is not None:
        return [
            f"{ended_text(attempt, now)}; {kept_text(attempt, newest, may_still_save(run, now))}",
            f"{kept_machine_text(run, now)}. Next: it is started again",
        ]
    where = likely_zone(run) or (f"a zone other than {clip(run.avoid_zone, 40)}" if run.avoid_zone else "a new machine")
    resume = f", resume from {step_text(newest)}" if newest is not None else ""
    return [
        f"{ended_text(attempt, now)}; {kept_text(attempt, newest, may_still_save(run, now))}",
        counts_text(run),
        f"Next: {where} {due_text(run.next_at, now)}{resume}",
    ]


_CLAUSES: Mapping[Status, Callable[[Run, float], list[str]]] = {
    Status.PENDING: _pending,
    Status.WAITING: _waiting,
    Status.LAUNCHING: _launching,
    Status.RECOVERING: _recovering,
    Status.FINISHING: end.finishing,
    Status.STOPPING: end.stopping,
    Status.AWAITING_TEARDOWN: end.awaiting_teardown,
    Status.COMPLETED: end.completed,
    Status.PARTIAL: end.partial,
    Status.FAILED: end.failed,
    Status.STOPPED: end.stopped,
}

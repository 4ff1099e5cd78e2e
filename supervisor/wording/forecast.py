"""What happens next and when: the NEXT column of the list, and the end of every status sentence. At the end: whether a
run survives a preemption notice, as its drills have shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from supervisor.contract import drill
from supervisor.domain.attempt import Attempt, DrillFault, DrillVerdict, Pulse
from supervisor.domain.causes import NEEDS_PERSON, OWN_WAITS, Cause
from supervisor.domain.machines import How
from supervisor.domain.policies import STALLING_POLLS
from supervisor.domain.run import LIMIT, Run
from supervisor.domain.status import Status
from supervisor.wording.figures import DASH, age_text, clip, clock_text, money_text, until_text
from supervisor.wording.stalls import hang_in, is_spared

MOST_UPLOAD_S = 600.0  # of a last save: the agent gives up then too
ROUNDED_S = 2.0  # ages of beats and of listings are known to about a second


@dataclass(frozen=True, slots=True)
class NextAction:
    """`what` as it is shown ('launch in 4 s'); `at`: its time in epoch seconds, None = unknown."""

    what: str
    at: float | None = None


def live_pulse(run: Run) -> Pulse | None:
    """The pulse, if it belongs to the live attempt; an older one says nothing about that attempt."""
    live, pulse = run.live_attempt, run.pulse
    return pulse if live is not None and pulse is not None and pulse.launch_id == live.launch_id else None


@dataclass(frozen=True, slots=True)
class Shown:
    """Progress as people see it. `guessed`: read from the log of a command that reports no steps."""

    step: int | None
    total: int | None
    steps_per_s: float | None
    guessed: bool = False


def shown_progress(run: Run, pulse: Pulse) -> Shown:
    """What was reported, else a guess; a run whose attempts report steps is not guessed at."""
    guess = pulse.guess
    if pulse.step is None and guess is not None and not run.reported:
        return Shown(guess.step, guess.total, guess.steps_per_s, guessed=True)
    return Shown(pulse.step, pulse.total, pulse.steps_per_s)


def eta_s(run: Run, now: float) -> float | None:
    """Seconds until the last step at the current pace; None where no total or no pace is known, where the last step is
    reached or due this second, and where the last beat is too old to tell."""
    pulse = live_pulse(run)
    if run.status != Status.RUNNING or pulse is None or is_silent(run, now):
        return None
    shown = shown_progress(run, pulse)
    if shown.step is None or shown.total is None or not shown.steps_per_s or shown.steps_per_s < 0:
        return None
    left_s = (shown.total - shown.step) / shown.steps_per_s - max(0.0, now - pulse.beat_at)
    return left_s if left_s >= 1.0 else None


def is_silent(run: Run, now: float) -> bool:
    """No beat of the live attempt within its limit."""
    pulse = live_pulse(run)
    return pulse is not None and now - pulse.beat_at > run.policy.stall.silence_s


def out_of_contact(run: Run, now: float, beat_age_s: float | None = None) -> bool:
    """Nothing is known of its training now: its host or zone cannot be read, and no beat has arrived since by another
    way. `beat_age_s`: where the caller has a newer beat than the row."""
    pulse = live_pulse(run)
    if run.status != Status.RUNNING or run.away is None or pulse is None:
        return False
    beat_at = pulse.beat_at if beat_age_s is None else now - beat_age_s
    return beat_at <= run.away.since + ROUNDED_S


def stalling(run: Run) -> bool:
    """True while polls without progress accumulate."""
    pulse = live_pulse(run)
    return pulse is not None and pulse.stall_polls >= STALLING_POLLS


def restart_at(run: Run) -> float | None:
    """When a stalling attempt will be restarted, extrapolated from the stall polls so far."""
    pulse = live_pulse(run)
    if pulse is None or pulse.stall_polls <= 0 or pulse.progress_at is None:
        return None
    spacing_s = (pulse.stall_counted_at - pulse.progress_at) / pulse.stall_polls
    return pulse.stall_counted_at + max(0.0, spacing_s) * max(0, run.policy.stall.polls - pulse.stall_polls)


def boot_limit_at(run: Run, attempt: Attempt) -> float:
    """When the boot limit of this attempt is over."""
    return (attempt.up_at if attempt.up_at is not None else attempt.started_at) + run.policy.stall.boot_timeout_s


def stop_limit_at(run: Run) -> float | None:
    """When the time for a final checkpoint is over; None without a stop. The grace begins with the status stopping."""
    return None if run.stop is None else run.status_since + stopping_s(run)


def stopping_s(run: Run) -> float:
    """How long it may take to stop. Only a limit of the run has kept the time of an upload too."""
    is_limit = run.stop is not None and run.stop.source == LIMIT
    return leaving_s(run) if is_limit else run.policy.stop_grace_s


def leaving_s(run: Run) -> float:
    """How long a run may take to leave at one of its limits: its grace, then the longest upload that it has shown."""
    pulse = live_pulse(run)
    save_s = pulse.save_s if pulse is not None and pulse.save_s is not None else run.files.checkpoint_s
    return run.policy.stop_grace_s + min(save_s or 0.0, MOST_UPLOAD_S)


def likely_zone(run: Run) -> str:
    """The only candidate; '' where there are several."""
    zones = run.policy.zones
    good = [zone for zone in zones if zone != run.avoid_zone] or list(zones)
    return clip(good[0], 40) if len(good) == 1 else ""


def due_text(at: float | None, now: float) -> str:
    """'in 4 s', or 'on the next tick' where nothing is due later."""
    return "on the next tick" if at is None or at <= now else f"in {until_text(at, now)}"


def needs_person(run: Run) -> str:
    """What a person must do before this run can continue; "" = nothing."""
    if run.terminal:
        return ""
    if run.asks:
        return asked_text(run)
    refused = run.status == Status.WAITING and run.cause in NEEDS_PERSON
    return run.person.why or ((run.detail or str(run.cause)) if refused else "")


_ANSWERS = {
    Cause.KILLED: ("It was killed again at the same checkpoint", "Find out what sends the signal"),
    Cause.DISK_FULL: (
        "Its disk is full, and a new machine would fill up too",
        "Free space on that disk, or stop the run and resume it with a larger one",
    ),
}


def asked_text(run: Run) -> str:
    """The question of a run that asks, and how to answer it."""
    what, advice = _ANSWERS.get(run.cause or Cause.UNKNOWN, ("Its attempt ended", "Decide"))
    go_on, stop = f"`spot retry {run.run_id}` lets it go on", f"`spot stop {run.run_id}` ends it"
    return f"{what}. {advice}. {go_on}; {stop}."


def next_action(run: Run, now: float) -> NextAction:
    """What happens next to this run by itself, or that a person must act."""
    if run.asks or (run.person.why and not run.terminal):
        return NextAction("needs you")
    if run.hold and not run.terminal:
        return NextAction("on hold", run.next_at)
    return _NEXT.get(run.status, _over)(run, now)


def _launch(run: Run, now: float) -> NextAction:
    return NextAction(f"launch {due_text(run.next_at, now)}", run.next_at)


def _waiting(run: Run, now: float) -> NextAction:
    if run.cause == Cause.QUOTA_HOURS and run.next_at is not None:
        return NextAction(f"lent hours {due_text(run.next_at, now)}", run.next_at)
    if run.cause in OWN_WAITS:
        return NextAction(_OWN_WAITS.get(run.cause, "queued"), run.next_at)
    return NextAction(f"{likely_zone(run) or 'try'} {due_text(run.next_at, now)}", run.next_at)


_OWN_WAITS = {
    Cause.GROUP_LIMIT: "wait for a slot",
    Cause.MACHINE_LIMIT: "wait for a machine of another run",
    Cause.DEPENDENCY: "wait for other runs",
    Cause.DEPENDENCY_FAILED: "needs you",
    Cause.QUOTA_HOURS: "wait for lent hours",
}


def _launching(run: Run, now: float) -> NextAction:
    live = run.live_attempt
    if live is None:
        zone = clip(run.open_try.placement.zone, 40) if run.open_try is not None else ""
        return NextAction(f"machine in {zone}" if zone else "machine")
    limit_at = boot_limit_at(run, live)
    return NextAction(f"first beat within {until_text(limit_at, now)}", limit_at)


def _running(run: Run, now: float) -> NextAction:
    if out_of_contact(run, now):
        return NextAction("no contact")
    pulse = live_pulse(run)
    if pulse is not None and hang_in(pulse) is not None:
        return NextAction("hangs: restart on the next look")
    since_s = 0.0 if pulse is None or pulse.progress_at is None else now - pulse.progress_at
    if pulse is not None and is_spared(pulse, run.policy.stall, since_s):
        return NextAction("late, but it moves")
    if stalling(run):
        return NextAction(f"restart at poll {run.policy.stall.polls}", restart_at(run))
    left_s = eta_s(run, now)
    if left_s is None or pulse is None:
        return NextAction("no ETA")
    about = "≈ " if shown_progress(run, pulse).guessed else ""
    return NextAction(f"ETA {about}{age_text(left_s)}", now + left_s)


def _finishing(run: Run, now: float) -> NextAction:
    return NextAction("verify results")


def _stopping(run: Run, now: float) -> NextAction:
    limit_at = stop_limit_at(run)
    if run.live_attempt is None or limit_at is None or limit_at <= now:
        return NextAction("release machine")
    return NextAction(f"stop within {until_text(limit_at, now)}", limit_at)


def _approve(run: Run, now: float) -> NextAction:
    item, approval = run.billed, run.approved_end
    if item is not None and item.bill is not None and approval is not None:
        by_person = item.bill.how is How.ASK or (item.bill.done_at is not None and not item.bill.confirms)
        return NextAction("needs you" if by_person and not approval.meter_stopped else "end the bill")
    return NextAction("needs you" if run.approval is None else "release machine")


def kept_machine_text(run: Run, now: float) -> str:
    """'Its machine is kept, off since 14:02 UTC, disks $0.01/h, deleted at 02:02 UTC'; "" = it keeps none."""
    if run.kept is None:
        return ""
    item, kept = run.kept
    if kept.given_up:
        return f"Its kept machine is being deleted: {kept.given_up}"
    if kept.off_at is None:
        return "Its machine is kept and is being switched off"
    price = "disks of unknown price" if kept.usd_per_h is None else f"disks {money_text(kept.usd_per_h)}/h"
    price = "" if kept.usd_per_h == 0 else f"{price}, "
    return f"Its machine is kept, off since {clock_text(kept.off_at, now)}, {price}deleted at " + clock_text(
        item.until, now
    )


def _over(run: Run, now: float) -> NextAction:
    if run.kept is not None and not run.kept[1].given_up:
        until = run.kept[0].until
        return NextAction(f"delete machine in {until_text(until, now)}", until)
    if run.kept_until is not None and run.kept_until > now and run.retiring:
        return NextAction(f"release in {until_text(run.kept_until, now)}", run.kept_until)
    return NextAction("release machine" if run.retiring else DASH)


_NEXT: Mapping[Status, Callable[[Run, float], NextAction]] = {
    Status.PENDING: _launch,
    Status.WAITING: _waiting,
    Status.LAUNCHING: _launching,
    Status.RUNNING: _running,
    Status.RECOVERING: _launch,
    Status.FINISHING: _finishing,
    Status.STOPPING: _stopping,
    Status.AWAITING_TEARDOWN: _approve,
}


# --- drills -----------------------------------------------------------------------------------------------------------

SURVIVES, FAILS, NOT_DRILLED = "survives", "fails", "not_drilled"
KILLED, UPLOAD, LOST, CRASHED, LATE = "killed", "upload", "lost", "crashed", "late"
REPEATED, SKIPPED, DATA, LOSS, SLOW = "repeated", "skipped", "data", "loss", "slow"
_FAULTS = {
    KILLED: "it did not leave within {figure:.0f} s",
    UPLOAD: "its save did not reach the store in time",
    LOST: "{steps} lost: nothing newer was saved",
    CRASHED: "it did not resume from what it saved",
    LATE: "no step came after the restore",
    REPEATED: "it did {steps} again after the restore",
    SKIPPED: "it left {steps} out after the restore",
    DATA: "its data is off by {figure:+g} after the restore",
    LOSS: "its loss jumped to {figure:.4g} after the restore",
    SLOW: "leaving and saving take {figure:.0f} s",
}
_MOMENTS = {
    drill.TRAINING: "in training",
    drill.AGAIN: "the second time in a row",
    drill.WARM_UP: "in its warm-up",
    drill.EVALUATION: "in evaluation",
    drill.CHECKPOINT: "while saving",
}
_WHY_NOT = {
    drill.NOT_SEEN: "that moment did not come in time",
    drill.GONE: "the command had ended before TERM reached it",
    drill.MISSED: "it was over too soon",
    drill.CUT: "the drill ended before",
    drill.NO_STEPS: "the training reports no steps",
    drill.UNSAVED: "too much was unsaved",
}


def drill_line(verdict: DrillVerdict) -> str:
    """'survives a 30 s notice: no (p95 41 s) · 120 s: yes', and which notice is asked for."""
    if verdict.word == NOT_DRILLED:
        clauses = [f"{_MOMENTS[moment]} ({_WHY_NOT.get(why, why)})" for moment, why in verdict.missing]
        return f"not drilled: {'; '.join(clauses) or 'nothing was measured'}"
    shortest = verdict.notices[0][0]
    if verdict.word == FAILS:
        faults = "; ".join(map(_fault_text, verdict.faults))
        return f"survives a {shortest:.0f} s notice: no {DASH} {faults}"
    p95 = "" if verdict.p95_s is None else f" (p95 {math.ceil(verdict.p95_s)} s)"
    parts = [f"{seconds:.0f} s: {'yes' if yes else 'no'}" for seconds, yes in verdict.notices[1:]]
    first = f"survives a {shortest:.0f} s notice: {'yes' if verdict.notices[0][1] else 'no'}{p95}"
    if verdict.ask_s is None:
        return first
    ask = f"so {verdict.ask_s:.0f} s are asked for where that can be chosen"
    return f"{' · '.join([first, *parts])} {DASH} {ask}"


def _fault_text(fault: DrillFault) -> str:
    figure = fault.figure
    steps = "steps" if figure is None else "1 step" if figure == 1 else f"{figure:,.0f} steps"
    text = _FAULTS[fault.word].format(figure=figure or 0.0, steps=steps)
    return f"{_MOMENTS[fault.moment]} {text}" if fault.moment else text


def drill_sentence(verdict: DrillVerdict) -> str:
    """The same as a sentence of the history."""
    line = drill_line(verdict)
    return f"{line[:1].upper()}{line[1:]}."


def drill_state(verdict: DrillVerdict | None, *, goes_on: bool, was_cut: bool) -> str:
    """The line of a run's page: what its last drill showed, and whether one goes on. `was_cut`: the attempt of the last
    order has ended before its drill did."""
    if verdict is None and was_cut:
        return "not drilled: its attempt ended before the drill did"
    line = "not drilled yet" if verdict is None else drill_line(verdict)
    return f"{line}; a drill is going on" if goes_on else line

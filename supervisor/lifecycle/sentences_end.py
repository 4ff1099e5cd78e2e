"""What is said of a run whose work is ending or over, in clauses that `sentences.status_text` joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.domain.causes import Cause
from supervisor.domain.run import Run
from supervisor.lifecycle.exits import not_entered
from supervisor.lifecycle.figures import (
    after_colon,
    age_text,
    clip,
    clock_text,
    count_text,
    money_text,
    plural,
    size_text,
    step_text,
    until_text,
)
from supervisor.lifecycle.forecast import live_pulse, stop_limit_at
from supervisor.lifecycle.limits import run_cost_usd

DETAIL_LIMIT = 150
NOT_RUNNABLE = 126  # what a shell exits with for a file that is there and that it cannot run

LIMIT_PHRASES: Mapping[Cause, str] = {
    Cause.DEADLINE: "The deadline has passed",
    Cause.MAX_RUNTIME: "The training time is used up",
    Cause.BUDGET: "The budget is spent",
}


def finishing(run: Run, now: float) -> list[str]:
    since = age_text(now - run.status_since)
    if run.needs_person:
        return [
            f"The command ended well, but its results are not verified for {since}{_billing(run)}",
            f"Next: the machine is kept until you answer; `spot approve {run.run_id} --accept-loss REASON` drops them",
        ]
    pulse = live_pulse(run)
    told = f" ({clip(pulse.message, 100)})" if pulse is not None and pulse.message else ""
    return [
        f"The command ended well; its results are being saved and verified for {since}{told}{_billing(run)}",
        f"Next: completed once they are verified (limit {age_text(run.policy.stall.finishing_s)})",
    ]


def _billing(run: Run) -> str:
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    return f"; the machine bills {money_text(price)}/h" if price else ""


def stopping(run: Run, now: float) -> list[str]:
    first = _asked(run, now)
    if run.live_attempt is not None:
        limit_at = stop_limit_at(run)
        if limit_at is not None and limit_at > now:
            return [first, f"Next: waiting for the final checkpoint (up to {until_text(limit_at, now)})"]
        return [first, "The time for a final checkpoint is over", "Next: the machine is killed and released"]
    if run.open_try is not None:
        return [first, "Next: the request for a machine is still open; what comes of it is deleted at once"]
    return [first, "Next: stopped as soon as the machine is known to be gone"]


def _asked(run: Run, now: float) -> str:
    stop = run.stop
    if stop is None:
        return "Stopping"
    ago = age_text(now - stop.at)
    if stop.cause in LIMIT_PHRASES:
        return f"{LIMIT_PHRASES[stop.cause]}{_colon(run.detail)}; stopping since {ago}"
    return f"Stop asked for by {_who(run)} {ago} ago"


def _who(run: Run) -> str:
    if run.stop is None:
        return "nobody known"
    return "a .stop marker" if run.stop.source == "marker" else clip(run.stop.actor, 60) or "nobody known"


def _colon(detail: str) -> str:
    text = after_colon(clip(detail, DETAIL_LIMIT))
    return f": {text}" if text else ""


def awaiting_teardown(run: Run, now: float) -> list[str]:
    outcome = run.outcome
    files = (
        f" ({plural(outcome.files, 'file')}, {size_text(outcome.size_bytes)})" if outcome is not None else ""
    )
    machine = clip(run.attempt.machine_name, 60) if run.attempt is not None else ""
    why = "is kept until you agree" if run.policy.on_success == "ask" else "cannot be had back once released"
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    bills = f"It bills {money_text(price)}/h meanwhile" if price else ""
    asked_until = max((item.until for item in run.retiring), default=0.0)
    without = (
        f"; without an answer it is released at {clock_text(asked_until, now)}" if asked_until > now else ""
    )
    return [
        f"Results verified{files}",
        f"{machine or 'The machine'} {why}",
        bills,
        f"Next: approve its release with `spot approve {run.run_id}`{without}",
    ]


def completed(run: Run, now: float) -> list[str]:
    steps = _last_step(run)
    trained = f", {plural(steps, 'step')}" if steps is not None else ""
    return [
        f"Completed after {_story(run)}{trained}, results verified",
        _cost(run, now),
        *_still_there(run, now),
    ]


def partial(run: Run, now: float) -> list[str]:
    missing = ", ".join(run.outcome.missing) if run.outcome is not None else ""
    what = clip(missing or run.detail, DETAIL_LIMIT) or "something that was promised"
    return [
        f"Finished after {_story(run)}, all uploads verified, but missing: {what}",
        _cost(run, now),
        *_still_there(run, now),
        _resume(run),
    ]


def _story(run: Run) -> str:
    """'9 h 41 min (4 attempts, 3 preemptions)'"""
    counted = run.counters
    preempted = f", {plural(counted.preemptions, 'preemption')}" if counted.preemptions else ""
    return (
        f"{age_text(run.status_since - run.generation_at)} ({plural(counted.attempts, 'attempt')}{preempted})"
    )


def _last_step(run: Run) -> int | None:
    if run.outcome is not None and run.outcome.step is not None:
        return run.outcome.step
    return run.attempt.step_last if run.attempt is not None else None


def _cost(run: Run, now: float) -> str:
    usd = run_cost_usd(run, now)
    if not run.cost_known and usd == 0:
        return "Cost unknown"
    text = f"Cost {'' if run.cost_known else 'at least '}{money_text(usd)}"
    return (
        f"{text}, on-demand would have been {money_text(run.on_demand_usd)}"
        if run.on_demand_usd > 0
        else text
    )


def _still_there(run: Run, now: float) -> list[str]:
    if not run.retiring:
        return []
    if run.kept_until is not None and run.kept_until > now:
        price = run.attempt.price_usd_per_h if run.attempt is not None else None
        bills = f" and bills {money_text(price)}/h" if price else ""
        return [f"Its machine is kept until {clock_text(run.kept_until, now)}{bills}"]
    return [f"{plural(len(run.retiring), 'machine')} still to be released"]


def _resume(run: Run) -> str:
    return f"Resume with `spot resume {run.run_id}`"


def stopped(run: Run, now: float) -> list[str]:
    at = run.stop.at if run.stop is not None else run.status_since
    newest = run.checkpoint_step
    kept = "No checkpoint was made" if newest is None else f"Checkpoint {count_text(newest)} is kept"
    who = f" by {_who(run)}" if run.stop is not None else ""
    return [
        f"Stopped{who} at {clock_text(at, now)}",
        _cost(run, now),
        *_still_there(run, now),
        f"{kept}; resume with `spot resume {run.run_id}`",
    ]


def failed(run: Run, now: float) -> list[str]:
    words, advice = _FAILED.get(run.cause, _any_failure)(run) if run.cause is not None else _any_failure(run)
    newest = run.checkpoint_step
    return [
        words,
        "Last checkpoint: " + ("none" if newest is None else count_text(newest)),
        _cost(run, now),
        *_still_there(run, now),
        f"{advice} `spot resume {run.run_id}`",
    ]


def _any_failure(run: Run) -> tuple[str, str]:
    cause = str(run.cause or Cause.UNKNOWN).replace("_", " ")
    return f"Failed ({cause}){_colon(run.detail)}", "Look at its last attempt, then"


def _user_error(run: Run) -> tuple[str, str]:
    end = run.attempt.exit if run.attempt is not None else None
    repeated = run.counters.user_failures
    why = (
        f"Not tried again after {plural(repeated, 'such failure')}"
        if repeated
        else "Not tried again: the same code would fail again"
    )
    if end is None or (end.code is None and end.signal is None):
        return f"The command failed{_colon(run.detail)}. {why}", "Fix it, then"
    how = f"exited with code {end.code}" if end.code is not None else f"was ended by signal {end.signal}"
    line = clip(end.last_line.replace("`", "'"), DETAIL_LIMIT)
    said = f": `{line}`" if line else ""
    return f"The command {how} after {age_text(end.ran_s)}{said}. {why}", "Fix it, then"


def _gpu_oom(run: Run) -> tuple[str, str]:
    step = run.attempt.step_last if run.attempt is not None else None
    at = f" at {step_text(step)}" if step is not None else ""
    return f"The GPU ran out of memory{at}{_colon(run.detail)}. Not tried again", "Use less memory, then"


def _image_error(run: Run) -> tuple[str, str]:
    return f"The image could not be started{_colon(run.detail)}. Not tried again", "Fix the image, then"


def _command_not_found(run: Run) -> tuple[str, str]:
    end = run.attempt.exit if run.attempt is not None else None
    if end is not None and not_entered(end):
        words = f"The command could not be started: {clip(end.last_line, DETAIL_LIMIT)}"
        return f"{words}. Not tried again", "Correct `workdir`, then"
    why = "cannot be run" if end is not None and end.code == NOT_RUNNABLE else "does not exist"
    said = _colon(run.detail).replace(": the command ended", ": it ended", 1)
    return (
        f"The command {why} on the machine{said}. Not tried again",
        "Fix the command, then",
    )


def _no_progress(run: Run) -> tuple[str, str]:
    last = run.attempt.cause if run.attempt is not None else None
    cause = f" (last: {str(last).replace('_', ' ')})" if last is not None else ""
    row = plural(max(run.counters.no_progress, 1), "attempt")
    newest = step_text(run.checkpoint_step)
    words = f"{row} in a row ended without a newer checkpoint than {newest}{cause}. Stopped to save money"
    return words, "Look at the attempts, then"


def _limit(run: Run) -> tuple[str, str]:
    assert run.cause is not None
    return f"{LIMIT_PHRASES[run.cause]}{_colon(run.detail)}", "Raise the limit, then"


def _limit_reached(run: Run) -> tuple[str, str]:
    text = clip(run.detail, DETAIL_LIMIT) or f"{run.counters.counted} of {run.policy.limits.max_attempts}"
    return f"Too many failed attempts: {text}", "Look at the attempts, then"


def _no_machine(run: Run) -> tuple[str, str]:
    waited = age_text(run.policy.limits.wait_for_capacity_s)
    why = {Cause.QUOTA: "the quota was not raised", Cause.LAUNCH_REJECTED: "every request was refused"}
    reason = why.get(run.cause or Cause.NO_CAPACITY, "no zone had capacity")
    return (
        f"No machine could be had within the limit of {waited}: {reason}{_colon(run.detail)}",
        "Allow other zones or shapes, then",
    )


def _machine_deleted(run: Run) -> tuple[str, str]:
    text = (
        clip(run.detail, DETAIL_LIMIT)
        or "its machine was removed again and again: use `spot stop` to stop a run"
    )
    return f"Given up: {text}", "When nobody removes it any more,"


def _results_unverified(run: Run) -> tuple[str, str]:
    return (
        f"The command ended well, but its results could not be verified{_colon(run.detail)}",
        "Repeat its end with",
    )


_FAILED: Mapping[Cause, Callable[[Run], tuple[str, str]]] = {
    Cause.USER_ERROR: _user_error,
    Cause.GPU_OOM: _gpu_oom,
    Cause.IMAGE_ERROR: _image_error,
    Cause.COMMAND_NOT_FOUND: _command_not_found,
    Cause.NO_PROGRESS: _no_progress,
    Cause.DEADLINE: _limit,
    Cause.MAX_RUNTIME: _limit,
    Cause.BUDGET: _limit,
    Cause.LIMIT_REACHED: _limit_reached,
    Cause.NO_CAPACITY: _no_machine,
    Cause.QUOTA: _no_machine,
    Cause.LAUNCH_REJECTED: _no_machine,
    Cause.MACHINE_DELETED: _machine_deleted,
    Cause.RESULTS_UNVERIFIED: _results_unverified,
}

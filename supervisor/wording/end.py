"""What is said of a run whose work is ending or over, in clauses that `run.status_text` joins.

Of one that failed: why, one function for each cause, and what its owner can do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.contract.heartbeat import BAD_CODE, NO_CONDA, NO_MODULE, NO_VENV
from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.run import Run, run_cost_usd, run_on_demand_usd
from supervisor.domain.status import Status
from supervisor.wording.figures import (
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
from supervisor.wording.forecast import live_pulse, stop_limit_at

DETAIL_LIMIT = 150
NOT_RUNNABLE = 126  # what a shell exits with for a file that is there and that it cannot run

LIMIT_PHRASES: Mapping[Cause, str] = {
    Cause.DEADLINE: "The deadline has passed",
    Cause.MAX_RUNTIME: "The training time is used up",
    Cause.BUDGET: "The budget is spent",
}


def failure(run: Run) -> tuple[str, str]:
    """(why it failed, the beginning of the advice that ends in a command); no full stop at their ends."""
    words = _any_failure if run.cause is None else _FAILED.get(run.cause, _any_failure)
    return words(run)


def colon(detail: str) -> str:
    """': detail', or nothing where there is none."""
    text = after_colon(clip(detail, DETAIL_LIMIT))
    return f": {text}" if text else ""


def _any_failure(run: Run) -> tuple[str, str]:
    cause = str(run.cause or Cause.UNKNOWN).replace("_", " ")
    return f"Failed ({cause}){colon(run.detail)}", "Look at its last attempt, then"


def _user_error(run: Run) -> tuple[str, str]:
    end = run.attempt.exit if run.attempt is not None else None
    repeated = run.counters.user_failures
    why = (
        "Not tried again: the same exit, last line and step twice"
        if run.detail.endswith(f"({SAME_FAILURE})")
        else f"Not tried again after {plural(repeated, 'such failure')}"
        if repeated
        else "Not tried again: the same code would fail again"
    )
    if end is None and run.attempt is not None:  # an exit is kept with every end of a command: it had not begun
        words = f"The command was not started{colon(run.detail)}. Not tried again"
        return words, "Put that right (a wrong reference: with `--replace-spec`), then"
    if end is None or (end.code is None and end.signal is None):
        return f"The command failed{colon(run.detail)}. {why}", _mend(run)
    how = f"exited with code {end.code}" if end.code is not None else f"was ended by signal {end.signal}"
    line = clip(end.last_line.replace("`", "'"), DETAIL_LIMIT)
    said = f": `{line}`" if line else ""
    mend = _mend_module(run) if end.last_line.startswith(NO_MODULE) else _mend(run)
    return f"The command {how} after {age_text(end.ran_s)}{said}. {why}", mend


def _mend_module(run: Run) -> str:
    """A module may be missing in that Python only: another environment may hold it."""
    if run.policy.image:
        return _mend(run)
    return "Submit it from another environment with `--replace-spec`, or install the module in this one, then"


def _mend(run: Run) -> str:
    """A resume runs the code that was sent, not the folder as it is now."""
    return "Submit the mended code with `--replace-spec`, or" if run.policy.code is not None else "Fix it, then"


def _disk_full(run: Run) -> tuple[str, str]:
    why = "Not tried again: a new machine would fill up at the same place"
    return f"The disk was full{colon(run.detail)}. {why}", "Write less, or submit it with a larger disk, then"


def _gpu_oom(run: Run) -> tuple[str, str]:
    step = run.attempt.step_last if run.attempt is not None else None
    at = f" at {step_text(step)}" if step is not None else ""
    return f"The GPU ran out of memory{at}{colon(run.detail)}. Not tried again", "Use less memory, then"


def _image_error(run: Run) -> tuple[str, str]:
    if run.detail.startswith(BAD_CODE):
        words = clip(run.detail[:1].upper() + run.detail[1:], DETAIL_LIMIT)
        return f"{words}. Not tried again", "Delete it from the object store and submit its folder anew, or"
    return (
        f"The image could not be started{colon(run.detail)}. Not tried again",
        "Submit another image with `--replace-spec`, or, when this one is put right,",
    )


def _command_not_found(run: Run) -> tuple[str, str]:
    end = run.attempt.exit if run.attempt is not None else None
    if end is not None and end.not_entered:
        words = f"The command could not be started: {clip(end.last_line, DETAIL_LIMIT)}"
        fields = {NO_CONDA: "conda_env", NO_VENV: "venv"}
        field = next((name for words, name in fields.items() if end.last_line.startswith(words)), "workdir")
        return (
            f"{words}. Not tried again",
            f"Submit it with another `{field}` and `--replace-spec`, or, when it is there,",
        )
    why = "cannot be run" if end is not None and end.code == NOT_RUNNABLE else "does not exist"
    said = colon(run.detail).replace(": the command ended", ": it ended", 1)
    return (
        f"The command {why} on the machine{said}. Not tried again",
        "Submit the right command with `--replace-spec`, or, when this one is there,",
    )


def _no_progress(run: Run) -> tuple[str, str]:
    last = run.attempt.cause if run.attempt is not None else None
    cause = f" (last: {str(last).replace('_', ' ')})" if last is not None else ""
    row = plural(max(run.counters.no_progress, 1), "attempt")
    newest = step_text(run.files.checkpoint_step)
    words = f"{row} in a row ended without a newer checkpoint than {newest}{cause}. Stopped to save money"
    return words, "Look at the attempts, then"


def _limit(run: Run) -> tuple[str, str]:
    assert run.cause is not None
    what = "a later deadline" if run.cause == Cause.DEADLINE else "a higher limit"
    return f"{LIMIT_PHRASES[run.cause]}{colon(run.detail)}", f"Submit it with {what} and `--replace-spec`, or"


def _limit_reached(run: Run) -> tuple[str, str]:
    text = clip(run.detail, DETAIL_LIMIT) or f"{run.counters.counted} of {run.policy.limits.max_attempts}"
    return f"Too many failed attempts: {text}", "Look at the attempts, then"


def _no_machine(run: Run) -> tuple[str, str]:
    waited = age_text(run.policy.limits.wait_for_capacity_s)
    why = {
        Cause.QUOTA: "the quota was not raised",
        Cause.LAUNCH_REJECTED: "every request was refused",
        Cause.GPU_UNAVAILABLE: "no place had a GPU that works",
        Cause.GPU_FAULT: "no place had a GPU that works",
    }
    reason = why.get(run.cause or Cause.NO_CAPACITY, "no zone had capacity")
    return (
        f"No machine could be had within the limit of {waited}: {reason}{colon(run.detail)}",
        "Allow other zones or shapes, then",
    )


def _machine_deleted(run: Run) -> tuple[str, str]:
    text = clip(run.detail, DETAIL_LIMIT) or "its machine was removed again and again: use `spot stop` to stop a run"
    return f"Given up: {text}", "When nobody removes it any more,"


def _results_unverified(run: Run) -> tuple[str, str]:
    return (f"The command ended well, but its results could not be verified{colon(run.detail)}", "Repeat its end with")


_FAILED: Mapping[Cause, Callable[[Run], tuple[str, str]]] = {
    Cause.USER_ERROR: _user_error,
    Cause.DISK_FULL: _disk_full,
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
    Cause.GPU_UNAVAILABLE: _no_machine,
    Cause.GPU_FAULT: _no_machine,
    Cause.LAUNCH_REJECTED: _no_machine,
    Cause.MACHINE_DELETED: _machine_deleted,
    Cause.RESULTS_UNVERIFIED: _results_unverified,
}


IMPORTED = "Imported from "  # what the detail of an imported run begins with, until it is resumed


def finishing(run: Run, now: float) -> list[str]:
    since = age_text(now - run.status_since)
    if loss_accepted(run) and run.approval is not None:
        who = clip(run.approval.actor, 60)
        return [f"{who} has given the results up{_billing(run)}", "Next: failed on the coming tick"]
    if run.person.why:
        return [
            f"The command ended well, but its results are not verified for {since}{_billing(run)}",
            f"Next: the machine is kept until you answer; `spot approve {run.run_id} --accept-loss REASON` drops them",
        ]
    pulse = live_pulse(run)
    message = f" ({clip(pulse.message, 100)})" if pulse is not None and pulse.message else ""
    return [
        f"The command ended well; its results are being saved and verified for {since}{message}{_billing(run)}",
        f"Next: completed once they are verified (limit {age_text(run.policy.stall.finishing_s)})",
    ]


def loss_accepted(run: Run) -> bool:
    """The person who is needed has answered; the loop has not come to it yet."""
    return run.approval is not None and bool(run.approval.accept_loss)


def _billing(run: Run) -> str:
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    return f"; the machine bills {money_text(price)}/h" if price else ""


def stopping(run: Run, now: float) -> list[str]:
    first = _stop_request(run, now)
    begun = run.status == Status.STOPPING  # else asked for just now: the coming tick begins it
    if not begun and run.open_try is None and run.live_attempt is None:
        return [first, "Next: stopped on the coming tick"]
    if run.live_attempt is not None:
        limit_at = stop_limit_at(run) if begun else now + run.policy.stop_grace_s
        if limit_at is not None and limit_at > now:
            return [first, f"Next: waiting for the final checkpoint (up to {until_text(limit_at, now)})"]
        return [first, "The time for a final checkpoint is over", "Next: the machine is killed and released"]
    if run.open_try is not None:
        return [first, "Next: the request for a machine is still open; what comes of it is deleted at once"]
    return [first, "Next: stopped as soon as the machine is known to be gone"]


def _stop_request(run: Run, now: float) -> str:
    stop = run.stop
    if stop is None:
        return "Stopping"
    ago = age_text(now - stop.at)
    if stop.cause in LIMIT_PHRASES:
        return f"{LIMIT_PHRASES[stop.cause]}{colon(run.detail)}; stopping since {ago}"
    return f"Stop asked for by {_who(run)} {ago} ago"


def _who(run: Run) -> str:
    if run.stop is None:
        return "nobody known"
    return "a .stop marker" if run.stop.source == "marker" else clip(run.stop.actor, 60) or "nobody known"


def awaiting_teardown(run: Run, now: float) -> list[str]:
    outcome = run.files.outcome
    files = f" ({plural(outcome.files, 'file')}, {size_text(outcome.size_bytes)})" if outcome is not None else ""
    machine = clip(run.attempt.machine_name, 60) if run.attempt is not None else ""
    asks = run.policy.on_success == "ask"
    why = "is kept until you agree" if asks else "cannot be had back once released"
    step = f"approve its release with `spot approve {run.run_id}`"
    if run.awaits_pull:
        why = "is kept until the results are pulled" + (" and you agree" if asks else "")
        step = f"pull them with `spot pull {run.run_id}`" + (", then approve its release" if asks else "")
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    bills = f"It bills {money_text(price)}/h meanwhile" if price else ""
    asked_until = max((item.until for item in run.retiring), default=0.0)
    without = f"; without an answer it is released at {clock_text(asked_until, now)}" if asked_until > now else ""
    return [f"Results verified{files}", f"{machine or 'The machine'} {why}", bills, f"Next: {step}{without}"]


def completed(run: Run, now: float) -> list[str]:
    steps = _last_step(run)
    trained = f", {plural(steps, 'step')}" if steps is not None else ""
    return [
        f"Completed after {_story(run)}{trained}, results verified",
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
    ]


def partial(run: Run, now: float) -> list[str]:
    missing = ", ".join(run.files.outcome.missing) if run.files.outcome is not None else ""
    what = clip(missing or run.detail, DETAIL_LIMIT) or "something that was promised"
    return [
        f"Finished after {_story(run)}, all uploads verified, but missing: {what}",
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
        _resume(run),
    ]


def _story(run: Run) -> str:
    """'9 h 41 min (4 attempts, 3 preemptions)'"""
    counted = run.counters
    preempted = f", {plural(counted.preemptions, 'preemption')}" if counted.preemptions else ""
    return f"{age_text(run.status_since - run.generation_at)} ({plural(counted.attempts, 'attempt')}{preempted})"


def _last_step(run: Run) -> int | None:
    if run.files.outcome is not None and run.files.outcome.step is not None:
        return run.files.outcome.step
    return run.attempt.step_last if run.attempt is not None else None


def _cost(run: Run, now: float) -> str:
    usd = run_cost_usd(run, now)
    if not run.money.all_known and usd == 0:
        return "Cost unknown"
    text = f"Cost {'' if run.money.all_known else 'at least '}{money_text(usd)}"
    on_demand = run_on_demand_usd(run, now)
    return f"{text}, on-demand would have been {money_text(on_demand)}" if on_demand > 0 else text


def _still_there(run: Run, now: float) -> list[str]:
    if not run.retiring:
        return []
    if run.kept_until is not None and run.kept_until > now:
        price = run.attempt.price_usd_per_h if run.attempt is not None else None
        bills = f" and bills {money_text(price)}/h" if price else ""
        return [f"Its machine is kept until {clock_text(run.kept_until, now)}{bills}"]
    return [f"{plural(len(run.retiring), 'machine')} still to be released"]


def _purged(run: Run, now: float) -> list[str]:
    if run.files.purging:
        return [f"Its files are being purged; `spot purge {run.run_id}` finishes that if it was cut off"]
    if run.files_gone and run.files.purged_at is not None:
        return [f"Its files were purged at {clock_text(run.files.purged_at, now)}: a resume begins from nothing"]
    return []


def _resume(run: Run) -> str:
    return f"Resume with `spot resume {run.run_id}`"


def stopped(run: Run, now: float) -> list[str]:
    at = run.stop.at if run.stop is not None else run.status_since
    newest = run.files.checkpoint_step
    kept = "No checkpoint was made" if newest is None else f"Checkpoint {count_text(newest)} is kept"
    kept = "No checkpoint is left" if run.files_gone else kept
    who = f" by {_who(run)}" if run.stop is not None else ""
    imported = run.stop is None and run.detail.startswith(IMPORTED)
    return [
        f"{clip(run.detail, DETAIL_LIMIT) if imported else f'Stopped{who}'} at {clock_text(at, now)}",
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
        f"{kept}; resume with `spot resume {run.run_id}`",
    ]


def failed(run: Run, now: float) -> list[str]:
    words, advice = failure(run)
    newest = run.files.checkpoint_step
    return [
        words,
        "Last checkpoint: " + ("none" if newest is None else count_text(newest)),
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
        f"{advice} `spot resume {run.run_id}`",
    ]

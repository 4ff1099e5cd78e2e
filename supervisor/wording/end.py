"""The clauses about a run whose work is ending or over, for `run.status_text`.

Of a failed run: why it failed, and what its owner can do. Each cause has a template, or a function where the words
depend on more than the run's detail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.contract.heartbeat import BAD_CODE, NO_CONDA, NO_MODULE, NO_VENV
from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.machines import How
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
from supervisor.wording.forecast import kept_machine_text, live_pulse, stop_limit_at, stopping_s

Failure = tuple[str, str]  # (why it failed, the beginning of the advice that ends in a command), without full stops

DETAIL_LIMIT = 150
NOT_RUNNABLE = 126  # the exit code of a shell for a file that exists and cannot be run
NO_PYTHON = "python: command not found"  # the begin of the last line; many systems have python3 only
IMPORTED = "Imported from "  # the beginning of the detail of an imported run, until it is resumed
LIMIT_PHRASES: Mapping[Cause, str] = {
    Cause.DEADLINE: "The deadline is reached",
    Cause.MAX_RUNTIME: "The training time is used up",
    Cause.BUDGET: "The budget is spent",
}
_MORE_LIMIT = "Submit it with a higher limit and `--replace-spec`, or"
_NO_MACHINE = "No machine was available within the limit of {waited}"
_OTHER_ZONES = "Allow other zones or shapes, then"
# {detail}: ': the detail of the run', or nothing.
_TEMPLATES: Mapping[Cause, Failure] = {
    Cause.DISK_FULL: (
        "The disk was full{detail}. Not retried: a new machine would fill up at the same place",
        "Write less, or submit it with a larger disk, then",
    ),
    Cause.DEADLINE: (
        f"{LIMIT_PHRASES[Cause.DEADLINE]}{{detail}}", "Submit it with a later deadline and `--replace-spec`, or"
    ),
    Cause.MAX_RUNTIME: (f"{LIMIT_PHRASES[Cause.MAX_RUNTIME]}{{detail}}", _MORE_LIMIT),
    Cause.BUDGET: (f"{LIMIT_PHRASES[Cause.BUDGET]}{{detail}}", _MORE_LIMIT),
    Cause.NO_CAPACITY: (f"{_NO_MACHINE}: no zone had capacity{{detail}}", _OTHER_ZONES),
    Cause.QUOTA: (f"{_NO_MACHINE}: the quota was not raised{{detail}}", _OTHER_ZONES),
    Cause.HOST_OOM: (
        "The machine ran out of memory{detail}. Not retried: the same would happen again",
        "Submit it with fewer loader workers or a machine with more memory, then",
    ),
    Cause.RESUME_IGNORED: (
        "The command started over beside its checkpoint{detail}. Not retried: the same code would start over again",
        "Let it load the newest checkpoint and submit it with `--replace-spec`, or",
    ),
    Cause.GPU_FAULT: (f"{_NO_MACHINE}: no zone had a working GPU{{detail}}", _OTHER_ZONES),
    Cause.RESULTS_UNVERIFIED: (
        "The command succeeded, but its results could not be verified{detail}", "Repeat the verification with"
    ),
}  # fmt: skip


def finishing(run: Run, now: float) -> list[str]:
    since = age_text(now - run.status_since)
    if loss_accepted(run) and run.approval is not None:
        return [f"{clip(run.approval.actor, 60)} gave up the results{_billing(run)}", "Next: failed on the coming tick"]
    if run.person.why:
        return [
            f"The command succeeded, but its results are not verified for {since}{_billing(run)}",
            f"Next: the machine is kept until you decide; `spot approve {run.run_id} --accept-loss REASON` drops them",
        ]
    pulse = live_pulse(run)
    message = f" ({clip(pulse.message, 100)})" if pulse is not None and pulse.message else ""
    return [
        f"The command succeeded; its results are being saved and verified for {since}{message}{_billing(run)}",
        f"Next: completed once they are verified (limit {age_text(run.policy.stall.finishing_s)})",
    ]


def loss_accepted(run: Run) -> bool:
    """The required person has decided; the loop has not processed it yet."""
    return run.approval is not None and bool(run.approval.accept_loss)


def stopping(run: Run, now: float) -> list[str]:
    first = _stop_request(run, now)
    begun = run.status == Status.STOPPING  # else it begins on the coming tick
    if run.live_attempt is not None:
        limit_at = stop_limit_at(run) if begun else now + stopping_s(run)
        if limit_at is not None and limit_at > now:
            return [first, f"Next: waiting for the final checkpoint (up to {until_text(limit_at, now)})"]
        return [first, "The time for a final checkpoint is over", "Next: the machine is killed and released"]
    if run.open_try is not None:
        return [first, "Next: the request for a machine is still open; a machine that it brings is deleted at once"]
    if not begun:
        return [first, "Next: stopped on the coming tick"]
    return [first, "Next: stopped as soon as the machine is known to be gone"]


def awaiting_teardown(run: Run, now: float) -> list[str]:
    outcome = run.files.outcome
    files = f" ({plural(outcome.files, 'file')}, {size_text(outcome.size_bytes)})" if outcome is not None else ""
    if run.billed is not None:
        return [f"Results verified{files}", *_billed(run, run.billed, now)]
    machine = clip(run.attempt.machine_name, 60) if run.attempt is not None else ""
    asks = run.policy.on_success == "ask"
    why = "is kept until you agree" if asks else "cannot be obtained again once released"
    step = f"approve its release with `spot approve {run.run_id}`"
    if run.awaits_pull:
        why = "is kept until the results are pulled" + (" and you agree" if asks else "")
        step = f"pull them with `spot pull {run.run_id}`" + (", then approve its release" if asks else "")
    bills = f"It bills {price} meanwhile" if (price := _price(run)) else ""
    kept_until = max((item.until for item in run.retiring), default=0.0)
    otherwise = f"; without your decision it is released at {clock_text(kept_until, now)}" if kept_until > now else ""
    return [f"Results verified{files}", f"{machine or 'The machine'} {why}", bills, f"Next: {step}{otherwise}"]


def _billed(run: Run, item: Retiring, now: float) -> list[str]:
    bill, approval, price, host = item.bill, run.approved_end, _price(run), clip(item.ref.zone, 60)
    assert bill is not None
    bills = f"{host} bills {price} until somebody stops it" if price else f"{host} is billed until somebody stops it"
    if bill.how is How.RELEASE:
        bills = f"{clip(item.ref.name, 60)} cannot be obtained again once released"
    if approval is None and run.awaits_pull:
        return [bills, f"Next: pull the results with `spot pull {run.run_id}`, then approve `{bill.verb}`"]
    if approval is None or run.awaits_pull:
        return [bills, f"Next: approve `{bill.verb}` with `spot approve {run.run_id}`"]
    verb = clip(approval.verb, 40) or bill.verb
    by = f"`{verb}` approved by {clip(approval.actor, 60)} {age_text(now - approval.at)} ago"
    confirm = f"confirm with `spot approve {run.run_id} --meter-stopped`"
    if bill.how is How.RELEASE:
        return [bills, by, "Next: completed as soon as the machine is known to be gone"]
    if approval.meter_stopped:
        return [by, f"Next: the run's processes on {host} are ended, then it is completed"]
    problem = f" (last: {clip(bill.problem, DETAIL_LIMIT)})" if bill.problem else ""
    if bill.how is How.ASK:
        return [bills, by, f"Next: do it{problem}, then {confirm}"]
    if bill.done_at is None or bill.done_verb != verb:
        return [bills, by, f"Next: it is carried out{problem}; if you stop {host} by hand, {confirm}"]
    done = f"`{verb}` was carried out {age_text(now - bill.done_at)} ago, and no read confirms that the bill has ended"
    return [f"{done}{problem}", bills, f"Next: {'a read confirms it' if bill.confirms else 'look at it'}, or {confirm}"]


def completed(run: Run, now: float) -> list[str]:
    step = run.attempt.step_last if run.attempt is not None else None
    if run.files.outcome is not None and run.files.outcome.step is not None:
        step = run.files.outcome.step
    trained = f", {plural(step, 'step')}" if step is not None else ""
    return [f"Completed after {_story(run)}{trained}, results verified", *_left_over(run, now)]


def partial(run: Run, now: float) -> list[str]:
    missing = ", ".join(run.files.outcome.missing) if run.files.outcome is not None else ""
    what = clip(missing or run.detail, DETAIL_LIMIT) or "something that was promised"
    return [
        f"Finished after {_story(run)}, all uploads verified, but missing: {what}",
        *_left_over(run, now),
        f"Resume with `spot resume {run.run_id}`",
    ]


def stopped(run: Run, now: float) -> list[str]:
    at = run.stop.at if run.stop is not None else run.status_since
    newest = run.files.checkpoint_step
    kept = "No checkpoint was made" if newest is None else f"Checkpoint {count_text(newest)} is kept"
    if run.files_gone:
        kept = "No checkpoint is left"
    imported = run.stop is None and run.detail.startswith(IMPORTED)
    ending = clip(run.detail, DETAIL_LIMIT) if imported else f"Stopped by {_who(run)}" if run.stop else "Stopped"
    return [
        f"{ending} at {clock_text(at, now)}",
        *_left_over(run, now),
        f"{kept}; resume with `spot resume {run.run_id}`",
    ]


def failed(run: Run, now: float) -> list[str]:
    why, advice = _failure(run)
    newest = run.files.checkpoint_step
    return [
        why,
        "Last checkpoint: " + ("none" if newest is None else count_text(newest)),
        *_left_over(run, now),
        f"{advice} `spot resume {run.run_id}`",
    ]


def _price(run: Run) -> str:
    """'$1.20/h'; "" = unknown."""
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    return f"{money_text(price)}/h" if price else ""


def _billing(run: Run) -> str:
    return f"; the machine bills {price}" if (price := _price(run)) else ""


def _stop_request(run: Run, now: float) -> str:
    if run.stop is None:
        return "Stopping"
    ago = age_text(now - run.stop.at)
    if run.stop.by_metric:
        return f"{clip(run.detail, DETAIL_LIMIT)}; the run's `watch` ends it, stopping since {ago}"
    if run.stop.cause in LIMIT_PHRASES:
        return f"{LIMIT_PHRASES[run.stop.cause]}{_detail(run)}; stopping since {ago}"
    return f"Stop requested by {_who(run)} {ago} ago"


def _who(run: Run) -> str:
    assert run.stop is not None
    return "a .stop marker" if run.stop.source == "marker" else clip(run.stop.actor, 60) or "an unknown user"


def _story(run: Run) -> str:
    """'9 h 41 min (4 attempts, 3 preemptions)'"""
    counters = run.counters
    preempted = f", {plural(counters.preemptions, 'preemption')}" if counters.preemptions else ""
    return f"{age_text(run.status_since - run.generation_at)} ({plural(counters.attempts, 'attempt')}{preempted})"


def _left_over(run: Run, now: float) -> list[str]:
    """The cost, machines that still exist, and files that no longer do."""
    clauses = [_cost(run, now)]
    if run.retiring and run.kept_until is not None and run.kept_until > now:
        bills = f" and bills {price}" if (price := _price(run)) else ""
        clauses.append(f"Its machine is kept until {clock_text(run.kept_until, now)}{bills}")
    elif run.kept is not None:
        clauses.append(kept_machine_text(run, now))
    elif run.retiring:
        clauses.append(f"{plural(len(run.retiring), 'machine')} still to be released")
    if run.files.purging:
        clauses.append(f"Its files are being purged; `spot purge {run.run_id}` finishes an interrupted purge")
    elif run.files_gone and run.files.purged_at is not None:
        clauses.append(f"Its files were purged at {clock_text(run.files.purged_at, now)}: a resume begins from nothing")
    return clauses


def _cost(run: Run, now: float) -> str:
    usd = run_cost_usd(run, now)
    if not run.money.all_known and usd == 0:
        return "Cost unknown"
    text = f"Cost {'' if run.money.all_known else 'at least '}{money_text(usd)}"
    on_demand = run_on_demand_usd(run, now)
    return f"{text}, on-demand would have been {money_text(on_demand)}" if on_demand > 0 else text


def _failure(run: Run) -> Failure:
    cause = run.cause or Cause.UNKNOWN
    if cause in _FUNCTIONS:
        return _FUNCTIONS[cause](run)
    words = str(cause).replace("_", " ")
    why, advice = _TEMPLATES.get(cause, (f"Failed ({words}){{detail}}", "Look at its last attempt, then"))
    waited = age_text(run.policy.limits.wait_for_capacity_s)
    return why.format(detail=_detail(run), waited=waited), advice


def _detail(run: Run) -> str:
    """': detail', or nothing where there is none."""
    text = after_colon(clip(run.detail, DETAIL_LIMIT))
    return f": {text}" if text else ""


def _user_error(run: Run) -> Failure:
    if run.stop is not None and run.stop.by_metric:
        why = "Not retried: the same code may diverge again"
        return f"Its `watch` ended it{_detail(run)}. {why}", "Look at the learning rate and the data of that step, then"
    end = run.attempt.exit if run.attempt is not None else None
    if end is None and run.attempt is not None:  # every end of a command keeps its exit: this command had not started
        return (
            f"The command was not started{_detail(run)}. Not retried",
            "Correct that (a wrong reference: with `--replace-spec`), then",
        )
    failures = run.counters.user_failures
    why = "Not retried" + (
        ": the same exit, last line and step twice"
        if run.detail.endswith(f"({SAME_FAILURE})")
        else f" after {plural(failures, 'such failure')}"
        if failures
        else ": the same code would fail again"
    )
    # A resume runs the code that was sent, not the folder as it is now.
    advice = "Submit the fixed code with `--replace-spec`, or" if run.policy.code is not None else "Fix it, then"
    if end is None or (end.code is None and end.signal is None):
        return f"The command failed{_detail(run)}. {why}", advice
    if end.last_line.startswith(NO_MODULE) and not run.policy.image:  # another environment may have the module
        advice = "Submit it from another environment with `--replace-spec`, or install the module in this one, then"
    how = f"exited with code {end.code}" if end.code is not None else f"was ended by signal {end.signal}"
    line = clip(end.last_line.replace("`", "'"), DETAIL_LIMIT)
    said = f": `{line}`" if line else ""
    return f"The command {how} after {age_text(end.ran_s)}{said}. {why}", advice


def _gpu_oom(run: Run) -> Failure:
    step = run.attempt.step_last if run.attempt is not None else None
    at = f" at {step_text(step)}" if step is not None else ""
    return f"The GPU ran out of memory{at}{_detail(run)}. Not retried", "Use less memory, then"


def _gpu_unavailable(run: Run) -> Failure:
    """Refused by the machine that it had, or no machine with a working GPU was left."""
    if run.attempt is not None and run.detail and run.detail == run.attempt.evidence:
        advice = "Submit an image for an older CUDA, or other shapes, with `--replace-spec`, or"
        return f"{clip(run.detail, DETAIL_LIMIT)}. Not retried", advice
    waited = age_text(run.policy.limits.wait_for_capacity_s)
    return f"{_NO_MACHINE.format(waited=waited)}: no zone had a working GPU{_detail(run)}", _OTHER_ZONES


def _launch_rejected(run: Run) -> Failure:
    """Before a machine, or on one: then its attempt has ended with this cause."""
    if run.attempt is None or run.attempt.cause != Cause.LAUNCH_REJECTED:
        waited = age_text(run.policy.limits.wait_for_capacity_s)
        return f"{_NO_MACHINE.format(waited=waited)}: every request was refused{_detail(run)}", _OTHER_ZONES
    if run.detail.startswith(BAD_CODE):
        return _bad_code(run)
    return f"The start on the machine was refused{_detail(run)}. Not retried", "Correct what the text names, then"


def _bad_code(run: Run) -> Failure:
    words = clip(run.detail[:1].upper() + run.detail[1:], DETAIL_LIMIT)
    return f"{words}. Not retried", "Delete it from the object store and submit its folder again, or"


def _image_error(run: Run) -> Failure:
    if run.detail.startswith(BAD_CODE):  # of a row of an earlier version
        return _bad_code(run)
    return (
        f"The image could not be started{_detail(run)}. Not retried",
        "Submit another image with `--replace-spec`, or, when this one is fixed,",
    )


def _command_not_found(run: Run) -> Failure:
    end = run.attempt.exit if run.attempt is not None else None
    if end is not None and end.not_entered:
        fields = {NO_CONDA: "conda_env", NO_VENV: "venv"}
        field = next((name for words, name in fields.items() if end.last_line.startswith(words)), "workdir")
        return (
            f"The command could not be started: {clip(end.last_line, DETAIL_LIMIT)}. Not retried",
            f"Submit it with another `{field}` and `--replace-spec`, or, when this one exists,",
        )
    why = "cannot be run" if end is not None and end.code == NOT_RUNNABLE else "does not exist"
    detail = _detail(run).replace(": the command ended", ": it ended", 1)
    advice = "Submit the right command with `--replace-spec`, or, when this one exists,"
    if end is not None and end.last_line.startswith(NO_PYTHON) and not run.policy.image:
        advice = "Submit it with `python3`, or with the `venv` of that machine, and `--replace-spec`, or"
    return f"The command {why} on the machine{detail}. Not retried", advice


def _setup_failed(run: Run) -> Failure:
    end = run.attempt.exit if run.attempt is not None else None
    advice = "Correct `setup` and submit it with `--replace-spec`, or, when it was no fault of yours,"
    if end is None:
        return f"The setup failed{_detail(run)}. Not retried", advice
    line = clip(end.last_line.replace("`", "'"), DETAIL_LIMIT)
    why = "Not retried" + (": it ended twice in the same way" if run.detail.endswith(f"({SAME_FAILURE})") else "")
    return f"The setup exited with code {end.code}, so the command was not started: `{line}`. {why}", advice


def _no_progress(run: Run) -> Failure:
    last = run.attempt.cause if run.attempt is not None else None
    cause = f" (last: {str(last).replace('_', ' ')})" if last is not None else ""
    row = plural(max(run.counters.no_progress, run.counters.free_row, 1), "attempt")
    newest = step_text(run.files.checkpoint_step)
    words = f"{row} in a row ended without a newer checkpoint than {newest}{cause}. Stopped to save money"
    return words, "Look at the attempts, then"


def _limit_reached(run: Run) -> Failure:
    text = clip(run.detail, DETAIL_LIMIT) or f"{run.counters.counted} of {run.policy.limits.max_attempts}"
    return f"Too many failed attempts: {text}", "Look at the attempts, then"


def _machine_deleted(run: Run) -> Failure:
    text = clip(run.detail, DETAIL_LIMIT) or "its machine was deleted repeatedly: use `spot stop` to stop a run"
    return f"Given up: {text}", "When the deletions have ended,"


_FUNCTIONS: Mapping[Cause, Callable[[Run], Failure]] = {
    Cause.USER_ERROR: _user_error,
    Cause.GPU_OOM: _gpu_oom,
    Cause.GPU_UNAVAILABLE: _gpu_unavailable,
    Cause.IMAGE_ERROR: _image_error,
    Cause.LAUNCH_REJECTED: _launch_rejected,
    Cause.COMMAND_NOT_FOUND: _command_not_found,
    Cause.SETUP_FAILED: _setup_failed,
    Cause.NO_PROGRESS: _no_progress,
    Cause.LIMIT_REACHED: _limit_reached,
    Cause.MACHINE_DELETED: _machine_deleted,
}

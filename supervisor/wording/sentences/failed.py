"""What is said of a run that failed: why, one function for each cause, and what its owner can do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.contract.heartbeat import BAD_CODE, NO_CONDA, NO_MODULE, NO_VENV
from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.run import Run
from supervisor.wording.figures import after_colon, age_text, clip, plural, step_text

DETAIL_LIMIT = 150
NOT_RUNNABLE = 126  # what a shell exits with for a file that is there and that it cannot run

LIMIT_PHRASES: Mapping[Cause, str] = {
    Cause.DEADLINE: "The deadline has passed",
    Cause.MAX_RUNTIME: "The training time is used up",
    Cause.BUDGET: "The budget is spent",
}


def failure(run: Run) -> tuple[str, str]:
    """(why it failed, the beginning of the advice that ends in a command); no full stop at their ends."""
    told = _any_failure if run.cause is None else _FAILED.get(run.cause, _any_failure)
    return told(run)


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
    if (
        end is None and run.attempt is not None
    ):  # an exit is kept with every end of a command: it had not begun
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
    return (
        "Submit the mended code with `--replace-spec`, or" if run.policy.code is not None else "Fix it, then"
    )


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
    newest = step_text(run.checkpoint_step)
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
    text = (
        clip(run.detail, DETAIL_LIMIT)
        or "its machine was removed again and again: use `spot stop` to stop a run"
    )
    return f"Given up: {text}", "When nobody removes it any more,"


def _results_unverified(run: Run) -> tuple[str, str]:
    return (
        f"The command ended well, but its results could not be verified{colon(run.detail)}",
        "Repeat its end with",
    )


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

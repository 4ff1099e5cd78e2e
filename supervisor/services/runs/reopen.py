"""What may be done with a run that exists already (RULES section 5), for a submit of its id and for a resume alike.

A new generation starts the budgets anew and keeps the totals and the checkpoint. The baton's new generation is opened
by the loop when it launches: no request writes the baton. A machine of the old generation stays in `retiring` until
it is known gone, so a run that was not settled yet can be reopened as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import BAD_CODE
from supervisor.domain.causes import Cause
from supervisor.domain.errors import (
    CellFixed,
    Conflict,
    PurgeRunning,
    RunActive,
    RunCompleted,
    RunStopping,
    SpecDiffers,
    StopNewer,
    Unavailable,
)
from supervisor.domain.machines import placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.services.runs.policy import Spec

ADVICE = "Submit under another run_id, or wait for its end."


def differences(old: Spec, new: Spec, at: str = "#/spec") -> list[str]:
    """JSON pointers of the fields in which two specs differ, never their values: they may hold secrets."""
    found: list[str] = []
    for name in sorted({*old, *new}):
        mine, theirs = old.get(name), new.get(name)
        if mine == theirs:
            continue
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found += differences(mine, theirs, f"{at}/{name}")
        else:
            found.append(f"{at}/{name}")
    return found


def refuse_live(run: Run, differs: list[str]) -> None:
    """Nothing to do for a live run that is asked for again with the same spec. Raises RunStopping, RunActive."""
    if run.status == Status.STOPPING or run.stop is not None:
        raise RunStopping(
            f"{run.run_id} is being stopped. Resume it when it has ended.",
            {"run_id": run.run_id, "status": run.status},
        )
    if differs:
        raise RunActive(
            f"{run.run_id} is {run.status} with another spec; it differs in {', '.join(differs)}. {ADVICE}",
            {"run_id": run.run_id, "status": run.status, "differs": differs},
            [(pointer, "differs from the live run") for pointer in differs],
        )


def refuse_awaiting(run: Run) -> None:
    """Raises Conflict: a resume has no meaning while a verified run awaits its teardown."""
    if run.status == Status.AWAITING_TEARDOWN:
        raise Conflict(
            f"The work of {run.run_id} is done; its machine awaits approval. Nothing is left to resume.",
            {"run_id": run.run_id, "status": run.status},
        )


def refuse_ended(run: Run, cell: str | None, differs: list[str], replace_spec: bool, rerun: bool) -> None:
    """Raises PurgeRunning, CellFixed, RunCompleted, SpecDiffers when this terminal run may begin no new generation."""
    if run.purging:
        raise PurgeRunning(
            f"The files of {run.run_id} are being purged. `spot purge {run.run_id}` finishes it if it was cut off; "
            "then resume.",
            {"run_id": run.run_id},
        )
    if cell is None or not placement.alike(cell, run.cell):
        raise CellFixed(
            f"{run.run_id} began on provider {run.provider} with its own bucket; both are fixed. "
            "Submit under another run_id to use others.",
            {"run_id": run.run_id, "provider": run.provider},
            [("#/spec/provider", "fixed at the first submit")],
        )
    if run.status == Status.COMPLETED and not rerun:
        raise RunCompleted(
            f"{run.run_id} is completed. Say rerun to start it over from nothing, or submit under another run_id.",
            {"run_id": run.run_id},
        )
    if differs and not replace_spec:
        raise SpecDiffers(
            f"{run.run_id} was submitted with another spec; it differs in {', '.join(differs)}. "
            "Say replace_spec to go on with the new one.",
            {"run_id": run.run_id, "differs": differs},
            [(pointer, "differs from the submitted spec") for pointer in differs],
        )


def reopened(run: Run, policy: Policy, rerun: bool, stop_consumed: str | None, now: float) -> Run:
    """The terminal `run` at the beginning of its next generation."""
    from_nothing = rerun or run.files_gone
    kept = None if from_nothing else run.checkpoint_step
    # An image that did not serve may have been mended under its tag: what that names is asked for again.
    anew = run.cause == Cause.IMAGE_ERROR and not run.detail.startswith(BAD_CODE)
    return replace(
        run,
        generation=run.generation + 1,
        rerun=rerun,
        status=Status.PENDING,
        status_since=now,
        generation_at=now,
        policy=policy,
        cause=None,
        detail="",
        hold="",
        next_at=None,
        pulse=None if from_nothing else run.pulse,
        last_failure="",
        refusals=(),
        counters=replace(run.counters, counted=0, user_failures=0, no_progress=0, streak=0, deleted_at=()),
        checkpoint_step=kept,
        no_progress_base=kept,
        waiting_since=None,
        waiting_told=(),
        avoid_zone="",
        stop=None,
        stop_consumed=stop_consumed or run.stop_consumed,
        approval=None,
        outcome=None,
        needs_person="",
        needs_person_at=None,
        kept_until=None,
        # A machine that was kept for a person to look at goes now.
        retiring=tuple(replace(item, until=min(item.until, now)) for item in run.retiring),
        training_s=0.0,
        budget_from_usd=run.cost_usd,
        image_digest="" if anew else run.image_digest,
        pinned_for="" if anew else run.pinned_for,
        settled=False,
    )


def marker_generation(objects: ObjectStore, run_id: str) -> str | None:
    """The object generation of the run's .stop marker, None when there is none. Raises Unavailable: could not read is
    not absent, and a stop that we cannot see must not be overridden."""
    try:
        return objects.stat(runfiles.stop_marker(run_id)).generation
    except ObjectMissing:
        return None
    except StoreUnavailable as error:
        raise Unavailable(
            f"The object store cannot be read, so {run_id} was not resumed: a stop marker may lie there. Try again.",
            {"run_id": run_id},
        ) from error


def consume_marker(objects: ObjectStore, run_id: str, generation: str | None) -> None:
    """Delete the marker that the new generation has recorded as used up. Raises StopNewer when another was written
    meanwhile: stop wins, the loop will see it."""
    if generation is None:
        return
    try:
        objects.delete(runfiles.stop_marker(run_id), if_generation=generation)
    except PreconditionFailed:
        raise StopNewer(
            f"{run_id} was resumed, but a newer .stop marker was written meanwhile: it will stop again.",
            {"run_id": run_id},
        ) from None
    except StoreUnavailable:
        return  # it stays there, and everybody ignores a marker of the consumed generation

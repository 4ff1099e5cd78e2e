"""Resume: a terminal run begins its next generation; a live one is left alone (RULES section 5).

The stop marker is read before the transaction, recorded in it as used up, and deleted after it, only if it is still
the one that was read.

What may be done with a run that exists already (RULES section 5), for a submit of its id and for a resume alike.

A new generation starts the budgets anew and keeps the totals and the checkpoint. The baton's new generation is opened
by the loop when it launches: no request writes the baton. A machine of the old generation stays in `retiring` until
it is known gone, so a run that was not settled yet can be reopened as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import BAD_CODE
from supervisor.domain import machines
from supervisor.domain.callers import Caller
from supervisor.domain.causes import Cause
from supervisor.domain.errors import (
    CellFixed,
    Conflict,
    PurgeRunning,
    RunActive,
    RunCompleted,
    RunStopping,
    SpecDiffers,
    SpotError,
    Unavailable,
)
from supervisor.domain.events import Event, EventKind
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run, unneeded
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs import code
from supervisor.services.runs.changing import Judged, Key, as_it_is, carried_out, find_run, kept_changing, until_settled
from supervisor.services.runs.keys import Once, Reply, answered
from supervisor.services.runs.policy import Spec, policy_from, providers_of, secret_refusal, settled

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a run. `spec` as it is stored; None = go on with the one it has. `refusal`: why no generation of
    `spec` can begin, found out before any transaction."""

    spec: Spec | None
    replace_spec: bool
    rerun: bool
    caller: Caller
    refusal: SpotError | None = None


def resume(parts: Parts, run_id: str, wish: Wish) -> Judged:
    """Raises NotFound, Conflict and its kin, InvalidRequest and its kin, CodeNotFound, Unavailable, StoreDown."""
    return _resume(parts, run_id, wish, as_it_is)


def resume_once(parts: Parts, run_id: str, wish: Wish, idempotency: Once, shape: Callable[[Judged], Reply]) -> Reply:
    """The same for a request with a key: its answer. Raises KeyReused, KeyInFlight too."""
    return answered(parts, idempotency, lambda: _resume(parts, run_id, wish, shape, idempotency))


def _resume(
    parts: Parts, run_id: str, wish: Wish, shape: Callable[[Judged], Answer], key: Key[Answer] | None = None
) -> Answer:
    if wish.spec is not None:
        refusal = code.refusal(parts, wish.spec) or secret_refusal(wish.spec, parts)
        wish = replace(wish, spec=settled(wish.spec, parts), refusal=refusal)
    judge = partial(_resumed, parts, run_id, wish)
    undone = kept_changing(run_id, "it was not resumed")
    return until_settled(undone, carried_out, parts, judge, shape, key)


def _resumed(parts: Parts, run_id: str, wish: Wish, now: float) -> Judged:
    run = find_run(parts, run_id)
    refuse_awaiting(run)
    return known_run(parts, run, wish, now)


def known_run(parts: Parts, run: Run, wish: Wish, now: float) -> Judged:
    """What becomes of a run that there is. Raises what `resume` raises."""
    # An ended run may have a stop marker: one that cannot be read must not be overridden.
    marker = marker_generation(parts.objects, run.run_id) if run.terminal else None
    old = parts.store.spec(run.key)
    spec = old if wish.spec is None else wish.spec
    differs = differences(old, spec)
    if not run.terminal:
        refuse_live(run, differs)
        return Judged(run, now, before=run, spec=old, labels=old.get("labels", {}))
    provider = _provider(run, old, spec, parts)
    cell = parts.cells.get(provider)
    refuse_ended(run, cell, differs, wish.replace_spec, wish.rerun)
    if wish.refusal is not None:
        raise wish.refusal
    named = spec if "providers" in spec else {**spec, "provider": provider}
    policy = policy_from(named, parts, now)
    after = replace(reopened(run, policy, wish.rerun, marker, now), provider=provider)
    return Judged(
        after,
        now,
        _event(run, after, wish, differs),
        before=run,
        spec=spec,
        labels=spec.get("labels", {}),
        differs=tuple(differs),
        limited=wish.caller,
        marker=marker,
    )


NAMING = frozenset({"provider", "providers"})  # fields of a spec


def _provider(run: Run, old: Spec, spec: Spec, parts: Parts) -> str:
    """Another of the same cell where the spec says so. A run that never named one stays where it is: which provider is
    the supervisor's own may have changed since."""
    unnamed = NAMING.isdisjoint(old) and NAMING.isdisjoint(spec)
    if unnamed and run.provider in parts.providers:
        return run.provider
    return providers_of(spec, parts)[0]


def _event(before: Run, after: Run, wish: Wish, differs: list[str]) -> Event:
    begins = "over from nothing" if wish.rerun else "from its newest checkpoint"
    if before.files_gone:
        begins = "from nothing, because its files were purged"
    spec = f" with another spec ({', '.join(differs)})" if differs else ""
    return wish.caller.changed(
        EventKind.RESUMED,
        f"Resumed by {wish.caller.actor}: generation {after.generation} begins {begins}{spec}.",
        _state(before),
        _state(after),
        {"generation": after.generation, "rerun": wish.rerun, "differs": differs, "stop_consumed": after.stop_consumed},
    )


def _state(run: Run) -> dict[str, object]:
    return {"status": run.status, "cause": run.cause, "generation": run.generation}


ADVICE = "Submit under another run_id, or wait for its end."


def differences(old: Spec, new: Spec, at: str = "#/spec") -> list[str]:
    """JSON pointers of the fields in which two specs differ, never their values: they may hold secrets."""
    pointers: list[str] = []
    for name in sorted({*old, *new}):
        mine, theirs = old.get(name), new.get(name)
        if mine == theirs:
            continue
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            pointers += differences(mine, theirs, f"{at}/{name}")
        else:
            pointers.append(f"{at}/{name}")
    return pointers


def refuse_live(run: Run, differs: list[str]) -> None:
    """Nothing to do for a live run that is asked for again with the same spec. Raises RunStopping, RunActive."""
    if run.status == Status.STOPPING or run.stop is not None:
        raise RunStopping(
            f"{run.run_id} is being stopped. Resume it when it has ended.", {"run_id": run.run_id, "status": run.status}
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
    if run.files.purging:
        raise PurgeRunning(
            f"The files of {run.run_id} are being purged. `spot purge {run.run_id}` finishes it if it was cut off; "
            "then resume.",
            {"run_id": run.run_id},
        )
    if cell is None or not machines.same_provider_and_bucket(cell, run.cell):
        raise CellFixed(
            f"The files of {run.run_id} lie in the store of provider {run.provider}, and the provider that you name "
            "does not share that store. Submit under another run_id.",
            {"run_id": run.run_id, "provider": run.provider},
            [("#/spec/provider", "does not share the store of the run")],
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
    kept = None if from_nothing else run.files.checkpoint_step
    # An image that did not serve may have been mended under its tag: what that names is asked for again.
    anew = run.cause == Cause.IMAGE_ERROR and not run.detail.startswith(BAD_CODE)
    return replace(
        unneeded(run),
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
        files=replace(run.files, checkpoint_step=kept, outcome=None),
        no_progress_base=kept,
        waiting=replace(run.waiting, since=None, reasons=()),
        avoid_zone="",
        stop=None,
        stop_consumed=stop_consumed or run.stop_consumed,
        approval=None,
        kept_until=None,
        # A machine that was kept for a person to look at goes now.
        retiring=tuple(replace(item, until=min(item.until, now)) for item in run.retiring),
        training_s=0.0,
        money=replace(run.money, budget_from_usd=run.money.cost_usd),
        image=replace(
            run.image, digest="" if anew else run.image.digest, pinned_for="" if anew else run.image.pinned_for
        ),
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

"""Resume: a terminal run starts its next generation; a live run stays as it is (RULES section 5).

The same rules apply to a submit with the id of an existing run. A new generation resets the budgets and keeps the
totals and the checkpoint. No request writes the baton: the loop opens the baton's new generation when it launches. A
machine of the old generation stays in `retiring` until it is known to be gone, so a run whose machines are not gone yet
can be resumed too. The stop marker is read before the transaction, recorded in it as used up, and deleted after it if
it is still the same marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import BAD_CODE
from supervisor.domain import machines
from supervisor.domain.attempt import Chain, Moving, Yielding
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
from supervisor.services.runs.changing import (
    Prepare,
    Respond,
    Update,
    commit,
    find_run,
    kept_changing,
    respond_once,
    retry_races,
)
from supervisor.services.runs.dependencies import check_after
from supervisor.services.runs.keys import KeyedRequest, Reply
from supervisor.services.runs.money.caps import capped_policy, charge_of
from supervisor.services.runs.policy import Spec, providers_of, secret_refusal, settled, with_base

PROVIDER_FIELDS = frozenset({"provider", "providers"})  # of a spec
ADVICE = "Submit under another run_id, or wait until the run ends."
NOT_RESUMED = "it was not resumed"


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """`spec`: as it is stored; None = keep the run's spec. `refusal`: why no generation of `spec` can start, found
    before any transaction."""

    caller: Caller
    spec: Spec | None = None
    replace_spec: bool = False
    rerun: bool = False
    refusal: SpotError | None = None


def resume(parts: Parts, run_id: str, request: ResumeRequest) -> Update:
    """Raises NotFound, Conflict and its kin, InvalidRequest and its kin, CodeNotFound, Unavailable, StoreDown."""
    return retry_races(kept_changing(run_id, NOT_RESUMED), commit, parts, _prepared(parts, run_id, request))


def resume_once(parts: Parts, run_id: str, request: ResumeRequest, key: KeyedRequest, respond: Respond) -> Reply:
    """The same for a request with a key. Raises KeyReused, KeyInFlight too."""
    return respond_once(parts, _prepared(parts, run_id, request), key, respond, kept_changing(run_id, NOT_RESUMED))


def _prepared(parts: Parts, run_id: str, request: ResumeRequest) -> Prepare:
    if request.spec is not None:
        refusal = code.refusal(parts, request.spec) or secret_refusal(request.spec, parts)
        request = replace(request, refusal=refusal)
    return partial(_resumed, parts, run_id, request)


def _resumed(parts: Parts, run_id: str, request: ResumeRequest, now: float) -> Update:
    """The spec is settled here, because its base may be gone when a request with a stored response is repeated."""
    if request.spec is not None:
        request = replace(request, spec=settled(request.spec, parts))
    run = find_run(parts, run_id)
    if run.status == Status.AWAITING_TEARDOWN:
        raise Conflict(
            f"The work of {run.run_id} is done; its machine awaits approval. Nothing is left to resume.",
            {"run_id": run.run_id, "status": run.status},
        )
    return existing_run(parts, run, request, now)


def existing_run(parts: Parts, run: Run, request: ResumeRequest, now: float) -> Update:
    """What a submit or a resume does to an existing run. Raises what `resume` raises."""
    # A terminal run may have a stop marker: a marker that cannot be read must not be overridden.
    marker = marker_generation(parts.objects, run.run_id) if run.terminal else None
    old = parts.store.spec(run.key)
    spec = old if request.spec is None else request.spec
    differs = differences(old, spec)
    if not run.terminal:
        refuse_live(run, differs)
        return Update(run, now, before=run, spec=old, labels=old.get("labels", {}))
    provider = _provider(run, old, spec, parts)
    refuse_ended(run, parts.cells.get(provider), differs, request.replace_spec, request.rerun)
    if request.refusal is not None:
        raise request.refusal
    if request.spec is None:  # its base may have been removed since
        with_base(old, parts)
    placed = spec if "providers" in spec else {**spec, "provider": provider}
    policy = capped_policy(placed, parts, now, request.caller.caps, run.money.cost_usd)
    if spec.get("after") != old.get("after"):
        check_after(parts, run.run_id, spec, request.caller, exists=True)
    after = replace(reopened(run, policy, request.rerun, marker, now), provider=provider)
    return Update(
        after,
        now,
        _event(run, after, request, differs),
        before=run,
        spec=spec,
        labels=spec.get("labels", {}),
        differs=tuple(differs),
        limited=request.caller,
        charge=charge_of(policy, request.caller),
        marker=marker,
    )


def _provider(run: Run, old: Spec, spec: Spec, parts: Parts) -> str:
    """The provider that the spec names, of the same cell. A run whose specs never named a provider stays where it is:
    the supervisor's own provider may have changed since."""
    unnamed = PROVIDER_FIELDS.isdisjoint({*old, *spec})
    return run.provider if unnamed and run.provider in parts.providers else providers_of(spec, parts)[0]


def _event(before: Run, after: Run, request: ResumeRequest, differs: list[str]) -> Event:
    start = "over from nothing" if request.rerun else "from its newest checkpoint"
    if before.files_gone:
        start = "from nothing, because its files were purged"
    spec = f" with another spec ({', '.join(differs)})" if differs else ""
    text = f"Resumed by {request.caller.actor}: generation {after.generation} starts {start}{spec}."
    data = {"generation": after.generation, "rerun": request.rerun, "differs": differs}
    data["stop_consumed"] = after.stop_consumed
    return request.caller.changed(EventKind.RESUMED, text, _state(before), _state(after), data)


def _state(run: Run) -> dict[str, object]:
    return {"status": run.status, "cause": run.cause, "generation": run.generation}


def differences(old: Spec, new: Spec, at: str = "#/spec") -> list[str]:
    """JSON pointers of the fields in which two specs differ. Never their values, which may hold secrets."""
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
    """A live run with the same spec needs no change. Raises RunStopping, RunActive."""
    facts: dict[str, object] = {"run_id": run.run_id, "status": run.status}
    if run.status == Status.STOPPING or run.stop is not None:
        raise RunStopping(f"{run.run_id} is being stopped. Resume it when it has ended.", facts)
    if differs:
        raise RunActive(
            f"{run.run_id} is {run.status} with another spec; it differs in {', '.join(differs)}. {ADVICE}",
            {**facts, "differs": differs},
            [(pointer, "differs from the live run") for pointer in differs],
        )


def refuse_ended(run: Run, cell: str | None, differs: list[str], replace_spec: bool, rerun: bool) -> None:
    """`cell`: of the provider that the spec names. Raises PurgeRunning, CellFixed, RunCompleted, SpecDiffers if this
    terminal run cannot start a new generation."""
    if run.files.purging:
        raise PurgeRunning(
            f"The files of {run.run_id} are being purged. `spot purge {run.run_id}` finishes an interrupted purge; "
            "then resume.",
            {"run_id": run.run_id},
        )
    if cell is None or not machines.same_provider_and_bucket(cell, run.cell):
        raise CellFixed(
            f"The files of {run.run_id} are in the store of provider {run.provider}, and the provider of the spec does "
            "not use that store. Submit under another run_id.",
            {"run_id": run.run_id, "provider": run.provider},
            [("#/spec/provider", "does not use the store of the run")],
        )
    if run.status == Status.COMPLETED and not rerun:
        raise RunCompleted(
            f"{run.run_id} is completed. Send rerun to start it over from nothing, or submit under another run_id.",
            {"run_id": run.run_id},
        )
    if differs and not replace_spec:
        raise SpecDiffers(
            f"{run.run_id} was submitted with another spec; it differs in {', '.join(differs)}. "
            "Send replace_spec to continue with the new spec.",
            {"run_id": run.run_id, "differs": differs},
            [(pointer, "differs from the submitted spec") for pointer in differs],
        )


def reopened(run: Run, policy: Policy, rerun: bool, stop_consumed: str | None, now: float) -> Run:
    """The terminal `run` at the start of its next generation."""
    from_nothing = rerun or run.files_gone
    checkpoint_step = None if from_nothing else run.files.checkpoint_step
    # A broken image may have been fixed under its tag: the tag is resolved again.
    if run.cause == Cause.IMAGE_ERROR and not run.detail.startswith(BAD_CODE):
        run = replace(run, image=replace(run.image, digest="", pinned_for=""))
    return replace(
        unneeded(run),
        generation=run.generation + 1,
        rerun=rerun,
        fresh_generation=run.generation + 1 if from_nothing else run.fresh_generation,
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
        once=(),
        refusals=(),
        counters=replace(run.counters, counted=0, user_failures=0, no_progress=0, free_row=0, streak=0, deleted_at=()),
        files=replace(run.files, checkpoint_step=checkpoint_step, outcome=None),
        no_progress_base=checkpoint_step,
        waiting=replace(run.waiting, since=None, reasons=()),
        avoid_zone="",
        moving=Moving(),
        yielding=Yielding(),
        chain=Chain() if from_nothing else run.chain,
        stop=None,
        stop_consumed=stop_consumed or run.stop_consumed,
        approval=None,
        kept_until=None,
        # A machine that was kept for inspection is released now; `keep: machine` starts it again.
        retiring=tuple(
            item if item.kept is not None and policy.keep.machine else replace(item, until=min(item.until, now))
            for item in run.retiring
        ),
        training_s=0.0,
        money=replace(run.money, budget_from_usd=run.money.cost_usd),
        settled=False,
    )


def marker_generation(objects: ObjectStore, run_id: str) -> str | None:
    """The object generation of the run's .stop marker; None = there is no marker. Raises Unavailable: "could not read"
    is not "absent", and a stop that we cannot read must not be overridden."""
    try:
        return objects.stat(runfiles.stop_marker(run_id)).generation
    except ObjectMissing:
        return None
    except StoreUnavailable as error:
        raise Unavailable(
            f"The object store cannot be read, so {run_id} was not resumed: it may hold a stop marker. Retry.",
            {"run_id": run_id},
        ) from error

"""Submit: one transaction writes a run and its first event, and the request does nothing else.

The request calls no provider and writes no object: the next tick finds the row. It reads one listing if a new run has a
name chosen by the user, because a run of the older runner may have that name. A submit with the id of an existing run
follows the table of RULES section 5. An Idempotency-Key stores the response in the same transaction: the response
exists exactly if the run exists, and the same key returns it again.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from supervisor.domain.callers import Caller
from supervisor.domain.errors import OldRunThere, RunIdTaken, SpotError, Unavailable
from supervisor.domain.events import EventKind
from supervisor.domain.run import Run, SmokeRun
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectReader, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs import code
from supervisor.services.runs.changing import Update, commit, respond_once, retry_races
from supervisor.services.runs.dependencies import check_after
from supervisor.services.runs.keys import Reply, keyed_request, scope_of
from supervisor.services.runs.money.caps import capped_policy, charge_of
from supervisor.services.runs.money.plans import check_plan
from supervisor.services.runs.policy import Spec, providers_of, secret_refusal, settled, warnings_of
from supervisor.services.runs.resume import ResumeRequest, existing_run, marker_generation
from supervisor.services.runs.smoked import smoke_of
from supervisor.services.runs.waiving import WaiveRequest, waived_event, with_waivers
from supervisor.services.views.formats import dumps
from supervisor.services.views.run_view import RunJson, run_json

SCOPE = "POST /v1/runs"  # of the idempotency keys of submits
# Names that only the older runner puts into a run's folder.
ONLY_OLDER_RUNNER = (
    "state.json",
    "heartbeat.json",
    "status.txt",
    "restart_config.json",
    "run_config.json",
    "checkpoint_sync/",
    "events/",
    ".owner.lock",
    "restart.lock",
)


class SubmittedRun(RunJson):
    """`differs`: JSON pointers of the fields that the new spec changed."""

    warnings: Sequence[str]
    differs: Sequence[str]


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """`spec`: see `policy`. `key`: the Idempotency-Key. `ignore_old`: start from nothing, although the store has a run
    of the older runner with this name. `waive`: checks that can be waived (services/runs/waiving). `smoke`: of this
    spec, by the user's computer."""

    spec: Spec
    run_id: str | None = None
    replace_spec: bool = False
    rerun: bool = False
    key: str | None = None
    ignore_old: bool = False
    waive: tuple[WaiveRequest, ...] = ()
    smoke: SmokeRun | None = None
    plan_id: str | None = None  # of the plan that it was shown
    prepares: str = ""  # the base for which it prepares a machine; "" = none


@dataclass(frozen=True, slots=True)
class Namesake:
    """What a run of the older runner means for a new run of the same name. `refusal`: why the new run is refused.
    `marker`: the old stop marker, which would stop the new run at once."""

    refusal: SpotError | None = None
    marker: str | None = None
    warnings: tuple[str, ...] = ()


NO_NAMESAKE = Namesake()


def submit(parts: Parts, request: SubmitRequest, caller: Caller) -> Reply:
    """201: a new run. 200: an existing run, unchanged or resumed. Raises the errors of RULES section 5, InvalidRequest
    and its kin, TooManyActiveRuns, KeyReused, KeyInFlight, Unavailable, StoreDown."""
    payload = [request.run_id, request.spec, request.replace_spec, request.rerun]
    payload += [True] if request.ignore_old else []
    payload += [{each.check: each.reason for each in request.waive}] if request.waive else []
    payload += [asdict(request.smoke)] if request.smoke is not None else []
    payload += [request.plan_id] if request.plan_id is not None else []
    key = keyed_request(request.key, scope_of(caller, SCOPE), payload)
    refusal = code.refusal(parts, request.spec) or secret_refusal(request.spec, parts)
    wanted = ResumeRequest(caller, request.spec, request.replace_spec, request.rerun, refusal)
    prepare = partial(_prepared, parts, request, wanted)
    error = Unavailable("The run kept changing while it was submitted; nothing was changed. Retry.")
    respond = partial(_reply, parts)
    if key is None:
        return respond(retry_races(error, commit, parts, prepare))
    return respond_once(parts, prepare, key, respond, error)


def _prepared(parts: Parts, request: SubmitRequest, wanted: ResumeRequest, now: float) -> Update:
    """The spec is settled here, because its base may be gone when a request with a stored response is repeated."""
    wanted = replace(wanted, spec=settled(request.spec, parts))
    update = (new_run if request.run_id is None else named_run)(parts, request, wanted, now)
    if update.limited is None:
        return update
    check_plan(parts, request.plan_id, subject_of(request, update), update.run, caller=wanted.caller, now=now)
    return replace(update, plan_id=request.plan_id)


def subject_of(request: SubmitRequest, update: Update) -> list[object]:
    """What a plan is made for."""
    return [request.run_id, update.spec, request.replace_spec, request.rerun, request.ignore_old]


def named_run(parts: Parts, request: SubmitRequest, wanted: ResumeRequest, now: float) -> Update:
    """For a name that the user chose: an existing run or a new one. Raises what `submit` raises."""
    run_id = request.run_id or ""
    run = parts.store.find(run_id)
    if run is None:
        old = _namesake(parts, run_id, request.ignore_old) if wanted.refusal is None else NO_NAMESAKE
        return new_run(parts, request, wanted, now, old)
    if not wanted.caller.owns(run.owner):
        raise RunIdTaken("This run_id is taken. Choose another.")
    return _with_waivers(_with_smoke(existing_run(parts, run, wanted, now), request), request, wanted.caller)


def new_run(
    parts: Parts, request: SubmitRequest, wanted: ResumeRequest, now: float, old: Namesake = NO_NAMESAKE
) -> Update:
    """The row without its key. Raises what `submit` raises."""
    refusal = wanted.refusal or old.refusal
    if refusal is not None:
        raise refusal
    caller, spec = wanted.caller, request.spec if wanted.spec is None else wanted.spec
    policy, provider = capped_policy(spec, parts, now, caller.caps), providers_of(spec, parts)[0]
    policy = replace(policy, prepares=request.prepares) if request.prepares else policy
    check_after(parts, request.run_id or "", spec, caller, exists=False)
    run = Run(
        key=0,
        run_id=request.run_id or generated_run_id(),
        owner=caller.owner,
        cell=parts.cells[provider],
        provider=provider,
        generation=1,
        status=Status.PENDING,
        policy=policy,
        created_at=now,
        generation_at=now,
        status_since=now,
        stop_consumed=old.marker,
        smoke=smoke_of(request.smoke, spec),
    )
    values = {"status": run.status, "generation": run.generation}
    event = caller.changed(EventKind.SUBMITTED, f"Submitted by {caller.actor}.", {}, values)
    labels = spec.get("labels", {})
    update = Update(run, now, event, spec=spec, labels=labels, warnings=old.warnings, limited=caller)
    update = replace(update, charge=charge_of(policy, caller))
    return _with_waivers(update, request, caller) if request.waive else update


def _with_smoke(update: Update, request: SubmitRequest) -> Update:
    """A live run keeps what it has."""
    if update.event is None or request.smoke is None:
        return update
    return replace(update, run=replace(update.run, smoke=smoke_of(request.smoke, update.spec or request.spec)))


def _with_waivers(update: Update, request: SubmitRequest, caller: Caller) -> Update:
    """They stand in the event of the submit, or in one of their own where a live run stays as it is."""
    after = with_waivers(update.run, request.waive, caller, update.now)
    if after is update.run:
        return update
    event = waived_event(update.run, after, caller)
    if update.event is not None:
        text, data = f"{update.event.text} {event.text}", {**event.data, **update.event.data}
        event = replace(update.event, text=text, data=data)
    return replace(update, run=after, event=event)


def _namesake(parts: Parts, run_id: str, ignored: bool) -> Namesake:
    """An unreadable store does not block a submit; the response carries a warning."""
    try:
        if not _older_runner_folder(parts.objects, run_id):
            return NO_NAMESAKE
        if ignored:
            return Namesake(marker=marker_generation(parts.objects, run_id))
    except (StoreUnavailable, Unavailable) as error:
        text = f"The object store was not read, so it may hold an older run of this name: {error}"
        return Namesake(warnings=(text,))
    url = f"{parts.objects.url.rstrip('/')}/runs/{run_id}"
    text = (
        f"{url} is a run of the older runner; a new run of this name would not use its checkpoint. Nothing was stored. "
        f"Import it: spot import {url}. Or start from nothing with --ignore-old (`ignore_old`)."
    )
    return Namesake(OldRunThere(text, {"url": url, "run_id": run_id}))


def _older_runner_folder(objects: ObjectReader, run_id: str) -> bool:
    """Whether the run's folder in our own store belongs to the older runner and no run of ours has started in it.
    Raises StoreUnavailable."""
    folder = f"runs/{run_id}/"
    page = next(iter(objects.pages(folder)), None)
    names = [info.key.removeprefix(folder) for info in page.objects] if page is not None else []
    return "baton.json" not in names and any(name.startswith(ONLY_OLDER_RUNNER) for name in names)


def generated_run_id() -> str:
    """Readable and easy to type: `run-` and six letters or digits."""
    return "run-" + base64.b32encode(secrets.token_bytes(4)).decode().lower()[:6]


def _reply(parts: Parts, update: Update) -> Reply:
    run, spec = update.run, update.spec or {}
    submitted: SubmittedRun = {
        **run_json(run, update.now, update.labels, parts.gpu),
        "warnings": (*warnings_of(spec, *parts.traits_of(run)), *update.warnings),
        "differs": update.differs,
    }
    status = 201 if update.before is None else 200
    return Reply(status, dumps(submitted), f"/v1/runs/{run.run_id}", version=run.version)

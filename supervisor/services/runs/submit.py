"""Submit: a run and its first event are written in one transaction, and nothing else happens in the request.

A new run and a known one are judged by two functions, outside of the transaction (`changing.carried_out`).

No provider is called here and no object is written: the next tick finds the row. One listing is read where a new run
has a name of the user's choice: a run of the older runner may lie there. A known run_id takes the table of
RULES section 5. With an Idempotency-Key the answer is kept in the same transaction, so it exists exactly if the run
does; the same key gives that answer again.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from functools import partial

from supervisor.domain.callers import Caller
from supervisor.domain.errors import OldRunThere, RunIdTaken, SpotError, Unavailable
from supervisor.domain.events import EventKind
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectReader, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs import code
from supervisor.services.runs.changing import Judged, carried_out, until_settled
from supervisor.services.runs.keys import Reply, answered, once, scope_of
from supervisor.services.runs.policy import Spec, policy_from, providers_of, secret_refusal, settled, warnings_of
from supervisor.services.runs.resume import Wish, known_run, marker_generation
from supervisor.services.views.run_view import dumps, run_json

SCOPE = "POST /v1/runs"  # of the keys of submits
# What lies in a run's folder if the older runner made it, and never in one of ours.
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


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """`spec` as in services/policy. `key` is the Idempotency-Key. `ignore_old`: begin from nothing, though a run of the
    older runner has this name in the same store."""

    spec: Spec
    run_id: str | None = None
    replace_spec: bool = False
    rerun: bool = False
    key: str | None = None
    ignore_old: bool = False


@dataclass(frozen=True, slots=True)
class Namesake:
    """What a run of the older runner means for a new one of its name. `refusal`: why there can be none. `marker`: its
    stop marker, which would stop the new run at once."""

    refusal: SpotError | None = None
    marker: str | None = None
    warnings: tuple[str, ...] = ()


NO_NAMESAKE = Namesake()


def submit(parts: Parts, request: SubmitRequest, caller: Caller) -> Reply:
    """201: a new run. 200: an existing one, unchanged or resumed. Raises the errors of RULES section 5, InvalidRequest
    and its kin, TooManyActiveRuns, KeyReused, KeyInFlight, Unavailable, StoreDown."""
    payload = [request.run_id, request.spec, request.replace_spec, request.rerun]
    payload += [True] if request.ignore_old else []
    key = once(request.key, scope_of(caller, SCOPE), payload)
    refusal = code.refusal(parts, request.spec) or secret_refusal(request.spec, parts)
    wish = Wish(settled(request.spec, parts), request.replace_spec, request.rerun, caller, refusal)
    judge = partial(new_run if request.run_id is None else named_run, parts, request, wish)
    undone = Unavailable("The run kept changing while it was submitted; nothing was changed. Try again.")
    shape = partial(_reply, parts)
    if key is None:
        return until_settled(undone, carried_out, parts, judge, shape)
    return answered(parts, key, lambda: until_settled(undone, carried_out, parts, judge, shape, key))


def named_run(parts: Parts, request: SubmitRequest, wish: Wish, now: float) -> Judged:
    """Of a name that the user chose: the known run, or a new one. Raises what `submit` raises."""
    run_id = request.run_id or ""
    run = parts.store.find(run_id)
    if run is None:
        old = _namesake(parts, run_id, request.ignore_old) if wish.refusal is None else NO_NAMESAKE
        return new_run(parts, request, wish, now, old)
    if not wish.caller.owns(run.owner):
        raise RunIdTaken("This run_id is taken. Choose another.")
    return known_run(parts, run, wish, now)


def new_run(parts: Parts, request: SubmitRequest, wish: Wish, now: float, old: Namesake = NO_NAMESAKE) -> Judged:
    """As it is to be stored, but for its key. Raises what `submit` raises."""
    refusal = wish.refusal or old.refusal
    if refusal is not None:
        raise refusal
    spec = request.spec if wish.spec is None else wish.spec
    policy, provider = policy_from(spec, parts, now), providers_of(spec, parts)[0]
    run = Run(
        key=0,
        run_id=request.run_id or generated_run_id(),
        owner=wish.caller.owner,
        cell=parts.cells[provider],
        provider=provider,
        generation=1,
        status=Status.PENDING,
        policy=policy,
        created_at=now,
        generation_at=now,
        status_since=now,
        stop_consumed=old.marker,
    )
    stands = {"status": run.status, "generation": run.generation}
    event = wish.caller.changed(EventKind.SUBMITTED, f"Submitted by {wish.caller.actor}.", {}, stands)
    return Judged(run, now, event, spec=spec, labels=spec.get("labels", {}), warnings=old.warnings, limited=wish.caller)


def _namesake(parts: Parts, run_id: str, ignored: bool) -> Namesake:
    """A store that cannot be read holds up no submit, and is told of."""
    try:
        if not _older_runner_folder(parts.objects, run_id):
            return NO_NAMESAKE
        if ignored:
            return Namesake(marker=marker_generation(parts.objects, run_id))
    except (StoreUnavailable, Unavailable) as error:
        text = f"The object store was not read, so an older run of this name may lie there: {error}"
        return Namesake(warnings=(text,))
    url = f"{parts.objects.url.rstrip('/')}/runs/{run_id}"
    text = (
        f"{url} is a run of the older runner; a new run of this name would not use its checkpoint. Nothing was stored. "
        f"Take it over: spot import {url}. Or begin from nothing with --ignore-old (`ignore_old`)."
    )
    return Namesake(OldRunThere(text, {"url": url, "run_id": run_id}))


def _older_runner_folder(objects: ObjectReader, run_id: str) -> bool:
    """Whether the run's folder in our own store is the older runner's, and no run of ours has begun in it. Raises
    StoreUnavailable."""
    folder = f"runs/{run_id}/"
    page = next(iter(objects.pages(folder)), None)
    names = [info.key.removeprefix(folder) for info in page.objects] if page is not None else []
    return "baton.json" not in names and any(name.startswith(ONLY_OLDER_RUNNER) for name in names)


def generated_run_id() -> str:
    """Readable and easy to type: `run-` and six letters or digits."""
    return "run-" + base64.b32encode(secrets.token_bytes(4)).decode().lower()[:6]


def _reply(parts: Parts, judged: Judged) -> Reply:
    run, spec = judged.run, judged.spec or {}
    answer = run_json(run, judged.now, judged.labels, parts.gpu)
    answer["warnings"] = (*warnings_of(spec, *parts.traits_of(run)), *judged.warnings)
    answer["differs"] = judged.differs
    status = 201 if judged.before is None else 200
    return Reply(status, dumps(answer), f"/v1/runs/{run.run_id}", version=run.version)

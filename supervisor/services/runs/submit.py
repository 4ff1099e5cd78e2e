"""Submit: a run and its first event are written in one transaction, and nothing else happens in the request.

No provider is called here and no object is written: the next tick finds the row. One listing is read where a new run
has a name of the user's choice: a run of the older runner may lie there. A known run_id takes the table of
RULES section 5. With an Idempotency-Key the answer is kept in the same transaction, so it exists exactly if the run
does; the same key gives that answer again.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, replace

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import OldRunThere, RunIdTaken, SpotError, Unavailable
from supervisor.domain.events import EventKind
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectReader, StoreUnavailable
from supervisor.ports.store import DuplicateRun, Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs import code
from supervisor.services.runs.changing import RACES
from supervisor.services.runs.keys import Once, Reply, answered, keep, once, scope_of, taken
from supervisor.services.runs.policy import (
    Spec,
    policy_from,
    provider_of,
    secret_refusal,
    settled,
    warnings_of,
)
from supervisor.services.runs.reopen import marker_generation
from supervisor.services.runs.resume import (
    Look,
    Raced,
    Resumed,
    Wish,
    look,
    refuse_one_more,
    resume_in,
    settle,
)
from supervisor.services.views.run_view import dumps, run_json

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
    older runner has this name in the same store. The rest is found out, never asked for."""

    spec: Spec
    run_id: str | None = None
    replace_spec: bool = False
    rerun: bool = False
    key: str | None = None
    ignore_old: bool = False
    refusal: SpotError | None = None  # why no run of this spec can begin, found out before any transaction
    stop_consumed: str | None = None  # of an old run that is ignored: its stop marker
    warning: str = ""


def submit(parts: Parts, request: SubmitRequest, caller: Caller) -> Reply:
    """201: a new run. 200: an existing one, unchanged or resumed. Raises the errors of RULES section 5, InvalidRequest
    and its kin, TooManyActiveRuns, KeyReused, KeyInFlight, Unavailable, StoreDown."""
    payload = [request.run_id, request.spec, request.replace_spec, request.rerun]
    payload += [True] if request.ignore_old else []
    asked = once(request.key, key_scope(caller), payload)
    return answered(parts, asked, lambda: _submit(parts, request, caller, asked))


def _submit(parts: Parts, request: SubmitRequest, caller: Caller, asked: Once | None) -> Reply:
    request = prepared(parts, request)
    for _ in range(RACES):
        seen = look(parts, request.run_id) if request.run_id is not None else Look(None, None)
        request = with_old(parts, request, seen)
        try:
            reply, resumed = _submit_once(parts, request, caller, seen, asked)
        except (DuplicateRun, Raced):
            continue
        if resumed is not None:
            settle(parts, seen, resumed)
        elif not reply.replayed:
            parts.wake.set()
        return reply
    raise Unavailable("The run kept changing while it was submitted; nothing was changed. Try again.")


def prepared(parts: Parts, request: SubmitRequest) -> SubmitRequest:
    """With the spec as it is stored, and with what is wrong with its code or its secrets."""
    refusal = code.refusal(parts, request.spec) or secret_refusal(request.spec, parts)
    return replace(request, spec=settled(request.spec, parts), refusal=refusal)


def _older_runner_folder(objects: ObjectReader, run_id: str) -> bool:
    """Whether the run's folder in our own store is the older runner's, and no run of ours has begun in it. Raises
    StoreUnavailable."""
    folder = f"runs/{run_id}/"
    page = next(iter(objects.pages(folder)), None)
    names = [info.key.removeprefix(folder) for info in page.objects] if page is not None else []
    return "baton.json" not in names and any(name.startswith(ONLY_OLDER_RUNNER) for name in names)


def with_old(parts: Parts, request: SubmitRequest, seen: Look) -> SubmitRequest:
    """With what an old run of this name in our own store means for a new one: its checkpoint would be ignored, and its
    stop marker would stop the new run at once. A store that cannot be read holds up no submit, and is told of."""
    run_id = request.run_id
    if run_id is None or seen.run is not None or request.refusal is not None:
        return request
    try:
        if not _older_runner_folder(parts.objects, run_id):
            return request
        if request.ignore_old:
            return replace(request, stop_consumed=marker_generation(parts.objects, run_id))
    except (StoreUnavailable, Unavailable) as error:
        text = f"The object store was not read, so an older run of this name may lie there: {error}"
        return replace(request, warning=text)
    url = f"{parts.objects.url.rstrip('/')}/runs/{run_id}"
    refusal = OldRunThere(
        f"{url} is a run of the older runner; a new run of this name would not use its checkpoint. Nothing was stored. "
        f"Take it over: spot import {url}. Or begin from nothing with --ignore-old (`ignore_old`).",
        {"url": url, "run_id": run_id},
    )
    return replace(request, refusal=refusal)


def _submit_once(
    parts: Parts, request: SubmitRequest, caller: Caller, seen: Look, asked: Once | None
) -> tuple[Reply, Resumed | None]:
    now = parts.clock.now()
    if asked is not None:
        return _once_per_key(parts, request, asked, caller=caller, seen=seen, now=now)
    # Policy and answer are made outside the transaction: everybody else's writes wait for it.
    policy = policy_from(request.spec, parts, now) if seen.run is None else None
    with parts.store.begin(now) as tx:
        run, resumed = _write(tx, parts, request, policy, caller, seen, now)
    return _reply(parts, request, run, resumed, now), resumed


def _once_per_key(
    parts: Parts, request: SubmitRequest, asked: Once, *, caller: Caller, seen: Look, now: float
) -> tuple[Reply, Resumed | None]:
    with parts.store.begin(now) as tx:
        before = taken(tx, asked, now)
        if before is not None:
            return before, None
        run, resumed = _write(tx, parts, request, None, caller, seen, now)
        reply = _reply(parts, request, run, resumed, now)
        keep(tx, asked, reply)
    return reply, resumed


def _write(
    tx: Transaction,
    parts: Parts,
    request: SubmitRequest,
    policy: Policy | None,
    caller: Caller,
    seen: Look,
    now: float,
) -> tuple[Run, Resumed | None]:
    """The new run, or what became of the known one. `policy` None = not made yet."""
    known = tx.find(request.run_id) if request.run_id is not None else None
    if known is None:
        if request.refusal is not None:
            raise request.refusal
        policy = policy or policy_from(request.spec, parts, now)
        refuse_one_more(tx, caller.owner, caller)
        return _insert(tx, parts, request, policy, caller, now), None
    refuse_stranger(known, caller)
    wish = Wish(request.spec, request.replace_spec, request.rerun, caller, request.refusal)
    resumed = resume_in(tx, parts, known, wish=wish, seen=seen, now=now)
    return resumed.run, resumed


def _insert(
    tx: Transaction, parts: Parts, request: SubmitRequest, policy: Policy, caller: Caller, now: float
) -> Run:
    run = new_run(parts, request, request.run_id or generated_run_id(), policy, caller.owner, now)
    stands = {"status": run.status, "generation": run.generation}
    event = caller.changed(EventKind.SUBMITTED, f"Submitted by {caller.actor}.", {}, stands)
    return tx.insert(run, request.spec, request.spec.get("labels", {}), (event,))


def new_run(parts: Parts, request: SubmitRequest, run_id: str, policy: Policy, owner: str, now: float) -> Run:
    """As it is stored, but for its key."""
    provider = provider_of(request.spec, parts)
    return Run(
        key=0,
        run_id=run_id,
        owner=owner,
        cell=parts.cells[provider],
        provider=provider,
        generation=1,
        status=Status.PENDING,
        policy=policy,
        created_at=now,
        generation_at=now,
        status_since=now,
        stop_consumed=request.stop_consumed,
    )


def refuse_stranger(known: Run, caller: Caller) -> None:
    """Raises RunIdTaken for another owner's run."""
    if not caller.owns(known.owner):
        raise RunIdTaken("This run_id is taken. Choose another.")


def generated_run_id() -> str:
    """Readable and easy to type: `run-` and six letters or digits."""
    return "run-" + base64.b32encode(secrets.token_bytes(4)).decode().lower()[:6]


def _reply(parts: Parts, request: SubmitRequest, run: Run, resumed: Resumed | None, now: float) -> Reply:
    spec = request.spec if resumed is None else resumed.spec
    answer = run_json(run, now, spec.get("labels", {}), parts.gpu)
    warnings = warnings_of(spec, parts.traits(run.provider))
    answer["warnings"] = (*warnings, *([request.warning] if request.warning else []))
    answer["differs"] = () if resumed is None else resumed.differs
    status, location = 201 if resumed is None else 200, f"/v1/runs/{run.run_id}"
    return Reply(status, dumps(answer), location, version=run.version)


def key_scope(caller: Caller) -> str:
    return scope_of(caller, "POST /v1/runs")

"""A request that changes one run: read and check the run, write the change in one short transaction, retry on a race.

Reading and checking happens outside of the transaction, because every other writer waits for that one. The result is a
value, `Update`. The row's version guards the write: if the row has changed since, the request starts over (`Raced`).
With an idempotency key the response is made and stored in the same transaction (see `keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import ParamSpec, TypeVar

from supervisor.contract import runfiles
from supervisor.contract.identifiers import is_run_id
from supervisor.domain.callers import Caller
from supervisor.domain.errors import NotFound, StopNewer, TooManyActiveRuns, Unavailable
from supervisor.domain.events import Event
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.store import Change, DuplicateRun, Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs.keys import KeyedRequest, Reply, replay_if_refused
from supervisor.services.runs.money.caps import Charge, reserve
from supervisor.services.runs.money.plans import refuse_unplanned, use_up
from supervisor.services.runs.policy import Spec
from supervisor.wording.figures import clip

RACES_MAX = 8  # how often a request starts over

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Raced(Exception):
    """The row has changed since it was read: start over."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action on one run. `update(run, now)`: the changed run and its event; None = nothing changes; it raises the
    refusal. `failure`: the words for "it was not done", where the run kept changing."""

    update: Callable[[Run, float], tuple[Run, Event] | None]
    failure: str


@dataclass(frozen=True, slots=True)
class Update:
    """What a request writes, as prepared at `now`. `run`: the row to store; after the write, the stored row. `event`
    None: the row stays as it is. `before`: the row as it was read, None = there was none. `spec`: valid after the
    write; written for a new row and where it `differs`; None = the row's spec, not read. `limited`: the caller whose
    limit of active runs applies, None = no run starts. `marker`: generation of the stop marker that the new generation
    of the run uses up. `charge`: what the change lets the run spend for a token with a cap. `plan_id`: the plan that
    the start uses up, which was checked; None = it was started without one. `reply`: after the write, the response to a
    request with a key."""

    run: Run
    now: float
    event: Event | None = None
    before: Run | None = None
    spec: Spec | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    limited: Caller | None = None
    marker: str | None = None
    charge: Charge | None = None
    plan_id: str | None = None
    reply: Reply | None = None

    @property
    def changed(self) -> bool:
        return self.event is not None


Prepare = Callable[[float], Update]  # from the time; raises the refusal
Respond = Callable[[Update], Reply]  # runs in the transaction, so it must not read the database


def change(parts: Parts, run_id: str, action: Action) -> Run:
    """The run after the action, as it is stored. Raises NotFound, Unavailable, StoreDown, and what the action
    raises."""
    return retry_races(kept_changing(run_id, action.failure), commit, parts, _prepared(parts, run_id, action)).run


def change_once(parts: Parts, run_id: str, action: Action, key: KeyedRequest, respond: Respond) -> Reply:
    """The same for a request with a key. The key is also used up where nothing changes, so that a repeat cannot change
    anything later. `respond` gets the labels too. Raises KeyReused, KeyInFlight too."""
    prepare = _prepared(parts, run_id, action)

    def with_labels(now: float) -> Update:
        update = prepare(now)
        return replace(update, labels=parts.store.labels(update.run.key))

    return respond_once(parts, with_labels, key, respond, kept_changing(run_id, action.failure))


def respond_once(parts: Parts, prepare: Prepare, key: KeyedRequest, respond: Respond, error: Exception) -> Reply:
    """The response to a request with a key: a stored one, or the one made now. Raises what `prepare` and `commit`
    raise; `error` where the run kept changing."""

    def work() -> Reply:
        reply = retry_races(error, commit, parts, prepare, key, respond).reply
        assert reply is not None, "a commit with a key returns a reply"
        return reply

    return replay_if_refused(parts, key, work)


def retry_races(
    error: Exception, work: Callable[Arguments, Result], *args: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """What `work` returns, started over on Raced and DuplicateRun. Raises `error` after RACES_MAX races."""
    for _ in range(RACES_MAX):
        with suppress(Raced, DuplicateRun):
            return work(*args, **named)
    raise error


def commit(parts: Parts, prepare: Prepare, key: KeyedRequest | None = None, respond: Respond | None = None) -> Update:
    """Prepare an update and write it. With a key, `respond` makes the response, which is stored in the same
    transaction; or the update has the stored response, and nothing is written. Raises what `prepare` raises,
    TooManyActiveRuns, OverDayCap, PlanRequired, PlanRefused, StopNewer, KeyReused, KeyInFlight, StoreDown; Raced and
    DuplicateRun, for `retry_races`."""
    now = parts.clock.now()
    update = prepare(now)
    if key is None and update.event is None and update.spec is None:
        return update
    with parts.store.begin(now) as tx:
        earlier = None if key is None else key.take(tx, now)
        if earlier is not None:
            return replace(update, reply=earlier)
        if update.limited is not None:
            _refuse_one_more(tx, update, update.limited)
            _use_plan(tx, update, update.limited)
        _hold_payers(tx, update)
        if update.event is None:
            stored = tx.find(update.run.run_id)
            stored = stored if stored is not None and stored.version == update.run.version else None
        elif update.before is None:
            stored = tx.insert(update.run, update.spec or {}, update.labels, (update.event,))
        else:
            stored = tx.apply(Change(update.before, update.run, (update.event,)), now)
        if stored is None:
            raise Raced
        _keep_account(tx, update, stored, now)
        if update.before is not None and update.spec is not None and update.differs:
            tx.put_spec(stored, update.spec, update.labels)
        update = replace(update, run=stored)
        if key is not None and respond is not None:
            reply = respond(update)
            key.keep(tx, reply)
            update = replace(update, reply=reply)
    if update.changed:
        parts.wake.set()
        _consume_marker(parts.objects, update.run.run_id, update.marker)
    return update


def _use_plan(tx: Transaction, update: Update, caller: Caller) -> None:
    """Raises PlanRequired, PlanRefused."""
    if update.plan_id is None:
        refuse_unplanned(caller)
    else:
        use_up(tx, update.plan_id, update.now)


def _hold_payers(tx: Transaction, update: Update) -> None:
    """The tokens whose account `_keep_account` changes."""
    payers = {update.charge.token_id} if update.charge is not None else set()
    if update.before is not None and _restarts(update):
        payers.add(tx.payer(update.before))
    tx.hold_tokens(payers - {""})


def _restarts(update: Update) -> bool:
    return update.before is not None and update.before.generation != update.run.generation


def _keep_account(tx: Transaction, update: Update, stored: Run, now: float) -> None:
    """Raises OverDayCap."""
    if update.before is not None and _restarts(update):
        tx.close_allowance(update.before, now)
    if update.charge is not None:
        reserve(tx, stored, update.charge, now)


def _prepared(parts: Parts, run_id: str, action: Action) -> Prepare:
    def prepare(now: float) -> Update:
        run = find_run(parts, run_id)
        changed = action.update(run, now)
        return Update(run, now) if changed is None else Update(changed[0], now, changed[1], before=run)

    return prepare


def _consume_marker(objects: ObjectStore, run_id: str, generation: str | None) -> None:
    """Delete the stop marker that the new generation has recorded as used up. Raises StopNewer if another marker was
    written since: a stop wins, the loop will see it."""
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
        return  # the marker stays; the loop ignores a marker of the consumed generation


def kept_changing(run_id: str, failure: str) -> Unavailable:
    return Unavailable(f"{run_id} kept changing; {failure}. Retry.", {"run_id": run_id})


def find_run(parts: Parts, run_id: str) -> Run:
    """Raises NotFound. The API has checked the owner before (api/wire/route)."""
    run = parts.store.find(run_id) if is_run_id(run_id) else None
    if run is None:
        raise _not_found(run_id)
    return run


def refuse_unknown(parts: Parts, run_id: str, caller: Caller) -> None:
    """Raises NotFound, with the same text for a missing run and for a run of another owner."""
    if not caller.owns(find_run(parts, run_id).owner):
        raise _not_found(run_id)


def _not_found(run_id: str) -> NotFound:
    return NotFound(f"There is no run {clip(run_id, 80)}. `spot ls` lists the runs.")


def refuse_more(active: int, owner: str, caller: Caller) -> None:
    """`active`: how many runs of this owner have not ended. Raises TooManyActiveRuns."""
    limit = caller.max_active_runs
    if limit is not None and active >= limit:
        raise TooManyActiveRuns(
            f"{owner} has {limit} active runs, the limit of this token. No run was started: wait until a run ends, or "
            "stop one.",
            {"max_active_runs": limit},
        )


def _refuse_one_more(tx: Transaction, update: Update, caller: Caller) -> None:
    """Raises TooManyActiveRuns; Raced where this very run has started meanwhile."""
    if caller.max_active_runs is None:
        return
    owner = update.run.owner
    try:
        refuse_more(tx.active_of(owner, caller.max_active_runs), owner, caller)
    except TooManyActiveRuns:
        stored = tx.find(update.run.run_id)
        if stored is not None and (update.before is None or stored.version != update.before.version):
            raise Raced from None
        raise

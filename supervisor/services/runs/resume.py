"""Resume: a terminal run begins its next generation; a live one is left alone (RULES section 5).

The stop marker is read before the transaction, recorded in it as used up, and deleted after it, only if it is still
the one that was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import SpotError, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.ports.store import Change, Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs import code, reopen
from supervisor.services.runs.changing import RACES, find_run, refuse_more
from supervisor.services.runs.keys import Once, Reply, answered, keep, taken
from supervisor.services.runs.policy import Spec, policy_from, provider_of, secret_refusal, settled

Told = TypeVar("Told")


class Raced(Exception):
    """The row changed between our look and our write: look again."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of an existing run. `spec` None = go on with the one it has."""

    spec: Spec | None
    replace_spec: bool
    rerun: bool
    caller: Caller
    refusal: SpotError | None = (
        None  # why no generation of `spec` can begin, found out before any transaction
    )


@dataclass(frozen=True, slots=True)
class Resumed:
    """`spec` is the one that counts now; `changed` is False when the run was live and was left alone."""

    run: Run
    spec: Spec
    changed: bool
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """The run as it was seen before the transaction, and the stop marker that lay there. None: no such run."""

    run: Run | None
    marker: str | None

    @property
    def reopens(self) -> bool:
        return self.run is not None and self.run.terminal


def resume(parts: Parts, run_id: str, wish: Wish) -> Resumed:
    """Raises NotFound, Conflict and its kin, InvalidRequest and its kin, CodeNotFound, Unavailable, StoreDown."""
    return _resume(parts, run_id, wish, lambda tx, now: None, lambda tx, resumed: resumed)


def resume_once(
    parts: Parts, run_id: str, wish: Wish, asked: Once, shape: Callable[[Resumed], Reply]
) -> Reply:
    """The same for a request with a key: its answer. Raises KeyReused, KeyInFlight too."""

    def answer(tx: Transaction, resumed: Resumed) -> Reply:
        reply = shape(resumed)
        keep(tx, asked, reply)
        return reply

    def work() -> Reply:
        return _resume(parts, run_id, wish, lambda tx, now: taken(tx, asked, now), answer)

    return answered(parts, asked, work)


def _resume(
    parts: Parts,
    run_id: str,
    wish: Wish,
    known: Callable[[Transaction, float], Told | None],
    answer: Callable[[Transaction, Resumed], Told],
) -> Told:
    """`known` and `answer` are the first and the last in the transaction; what is known already is all that is told."""
    if wish.spec is not None:
        refusal = code.refusal(parts, wish.spec) or secret_refusal(wish.spec, parts)
        wish = replace(wish, spec=settled(wish.spec, parts), refusal=refusal)
    for _ in range(RACES):
        reopen.refuse_awaiting(find_run(parts, run_id))
        seen, now = look(parts, run_id), parts.clock.now()
        try:
            with parts.store.begin(now) as tx:
                before = known(tx, now)
                if before is not None:
                    return before
                found = tx.find(run_id)
                if found is None:
                    raise Raced
                resumed = resume_in(tx, parts, found, wish=wish, seen=seen, now=now)
                told = answer(tx, resumed)
        except Raced:
            continue
        settle(parts, seen, resumed)
        return told
    raise Unavailable(f"{run_id} kept changing; it was not resumed. Try again.", {"run_id": run_id})


def look(parts: Parts, run_id: str) -> Look:
    """Before the transaction, which must stay short. Raises Unavailable when a needed marker cannot be read."""
    run = parts.store.find(run_id)
    seen = Look(run, None)
    return Look(run, reopen.marker_generation(parts.objects, run_id)) if seen.reopens else seen


def resume_in(tx: Transaction, parts: Parts, run: Run, *, wish: Wish, seen: Look, now: float) -> Resumed:
    """The part inside the transaction. Raises Raced, and what `resume` raises."""
    resumed, event = judged(parts, run, tx.spec(run.key), wish, seen, now)
    if event is None:
        return resumed
    refuse_one_more(tx, run.owner, wish.caller)
    stored = tx.apply(Change(run, resumed.run, (event,)), now)
    if stored is None:
        raise Raced
    if resumed.differs:
        tx.put_spec(stored, resumed.spec, resumed.spec.get("labels", {}))
    return replace(resumed, run=stored)


def refuse_one_more(tx: Transaction, owner: str, caller: Caller) -> None:
    """Before a run of this owner begins. Raises TooManyActiveRuns."""
    if caller.max_active_runs is not None:
        refuse_more(tx.active_of(owner, caller.max_active_runs), owner, caller)


def judged(
    parts: Parts, run: Run, old: Spec, wish: Wish, seen: Look, now: float
) -> tuple[Resumed, Event | None]:
    """What becomes of this run, with the event that tells it; no event = it stays as it is. Writes nothing. `old`: its
    spec until now. Raises Raced, and what `resume` raises."""
    spec = old if wish.spec is None else wish.spec
    differs = reopen.differences(old, spec)
    if not run.terminal:
        reopen.refuse_live(run, differs)
        return Resumed(run, old, changed=False), None
    if not seen.reopens:
        raise Raced  # it ended a moment ago: its stop marker has not been looked at
    cell = parts.cells.get(provider_of(spec, parts))
    reopen.refuse_ended(run, cell, differs, wish.replace_spec, wish.rerun)
    if wish.refusal is not None:
        raise wish.refusal
    after = reopen.reopened(run, policy_from(spec, parts, now), wish.rerun, seen.marker, now)
    event = _event(run, after, wish, differs)
    return Resumed(after, spec, changed=True, differs=tuple(differs)), event


def settle(parts: Parts, seen: Look, resumed: Resumed) -> None:
    """After the commit. Raises StopNewer."""
    if resumed.changed:
        parts.wake.set()
        reopen.consume_marker(parts.objects, resumed.run.run_id, seen.marker)


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
        {
            "generation": after.generation,
            "rerun": wish.rerun,
            "differs": differs,
            "stop_consumed": after.stop_consumed,
        },
    )


def _state(run: Run) -> dict[str, object]:
    return {"status": run.status, "cause": run.cause, "generation": run.generation}

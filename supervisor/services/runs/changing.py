"""A request that changes one run: looked at and judged, then written in one short transaction; done again where
somebody else was faster.

What is to be written is a value, `Judged`. It is made outside of the transaction, because everybody else's writes wait
for that one. The row's version guards what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from supervisor.contract import runfiles
from supervisor.contract.identifiers import is_run_id
from supervisor.domain.callers import Caller
from supervisor.domain.errors import NotFound, StopNewer, TooManyActiveRuns, Unavailable
from supervisor.domain.events import Event
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.store import Change, DuplicateRun, Transaction
from supervisor.services.parts import Parts
from supervisor.services.runs.policy import Spec
from supervisor.wording.figures import clip

RACES = 8  # how often we look again when somebody else was faster

Judge = Callable[[Run, float], tuple[Run, Event] | None]
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Raced(Exception):
    """What we looked at has changed since: look again."""


def until_settled(undone: Exception, work: Callable[Given, Answer], *args: Given.args, **named: Given.kwargs) -> Answer:
    """What `work` returns, called again while somebody else was faster (Raced, DuplicateRun). Raises `undone` where
    things keep changing."""
    for _ in range(RACES):
        with suppress(Raced, DuplicateRun):
            return work(*args, **named)
    raise undone


class Key(Protocol[Answer]):
    """What keeps the answer of a request that may come twice. Both are called in the transaction of the deed."""

    def taken(self, tx: Transaction, now: float) -> Answer | None:
        """The answer that is kept already; None = the key is ours now."""
        ...

    def keep(self, tx: Transaction, answer: Answer) -> None: ...


@dataclass(frozen=True, slots=True)
class Judged:
    """What a request comes to, found out at `now`. `run`: as it is to be stored, and once written as it was stored.
    `event` None = it stays as it is. `before`: the row as it was seen, None = there was none. `spec`: the one that
    counts then, written where there was no row and where it `differs`; None = the row's, unread. `limited`: whose limit
    of active runs counts; None = no run begins. `marker`: of the stop that the new generation uses up."""

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

    @property
    def changed(self) -> bool:
        return self.event is not None


def carried_out(
    parts: Parts, judge: Callable[[float], Judged], shape: Callable[[Judged], Answer], key: Key[Answer] | None = None
) -> Answer:
    """What `shape` says of the deed that `judge(now)` asks for, or what was answered with this key before. With a key
    the answer is made and kept in the transaction, so `shape` reads no database. Raises what `judge` raises,
    TooManyActiveRuns, StopNewer, KeyReused, KeyInFlight, StoreDown; Raced, DuplicateRun: for `until_settled`."""
    now = parts.clock.now()
    judged = judge(now)
    if key is None and judged.event is None and judged.spec is None:
        return shape(judged)
    with parts.store.begin(now) as tx:
        kept = None if key is None else key.taken(tx, now)
        if kept is not None:
            return kept
        if judged.limited is not None:
            _refuse_one_more(tx, judged, judged.limited)
        if judged.event is None:
            stored = tx.find(judged.run.run_id)
            stored = stored if stored is not None and stored.version == judged.run.version else None
        elif judged.before is None:
            stored = tx.insert(judged.run, judged.spec or {}, judged.labels, (judged.event,))
        else:
            stored = tx.apply(Change(judged.before, judged.run, (judged.event,)), now)
        if stored is None:
            raise Raced
        if judged.before is not None and judged.spec is not None and judged.differs:
            tx.put_spec(stored, judged.spec, judged.labels)
        judged = replace(judged, run=stored)
        if key is not None:
            answer = shape(judged)
            key.keep(tx, answer)
    if judged.changed:
        parts.wake.set()
        consume_marker(parts.objects, judged.run.run_id, judged.marker)
    return shape(judged) if key is None else answer


def change(parts: Parts, run_id: str, judge: Judge, undone: str) -> Run:
    """The run as it is stored in the end. `judge(run, now)`: what becomes of it, and the event that tells it; None = it
    stays as it is; a refusal is raised. `undone`: what did not happen where the run kept changing. Raises NotFound,
    Unavailable, StoreDown, and what `judge` raises."""
    wanted, error = partial(judged_by, judge, parts, run_id), kept_changing(run_id, undone)
    judged = until_settled(error, carried_out, parts, wanted, as_it_is)
    return judged.run


def as_it_is(judged: Judged) -> Judged:
    return judged


def judged_by(judge: Judge, parts: Parts, run_id: str, now: float) -> Judged:
    """Raises NotFound, and what `judge` raises."""
    run = find_run(parts, run_id)
    wanted = judge(run, now)
    return Judged(run, now) if wanted is None else Judged(wanted[0], now, wanted[1], before=run)


def kept_changing(run_id: str, undone: str) -> Unavailable:
    return Unavailable(f"{run_id} kept changing; {undone}. Try again.", {"run_id": run_id})


def find_run(parts: Parts, run_id: str) -> Run:
    """Raises NotFound. Whose run it is was asked at the door (api/wire/route)."""
    run = parts.store.find(run_id) if is_run_id(run_id) else None
    if run is None:
        raise _not_found(run_id)
    return run


def refuse_unknown(parts: Parts, run_id: str, caller: Caller) -> None:
    """Raises NotFound, in the same words for a run that there is not and for another owner's."""
    if not caller.owns(find_run(parts, run_id).owner):
        raise _not_found(run_id)


def _not_found(run_id: str) -> NotFound:
    return NotFound(f"There is no run {clip(run_id, 80)}; `spot ls` lists those that there are.")


def refuse_more(active: int, owner: str, caller: Caller) -> None:
    """`active`: how many of this owner's runs are not over. Raises TooManyActiveRuns."""
    most = caller.max_active_runs
    if most is not None and active >= most:
        raise TooManyActiveRuns(
            f"{owner} has {most} active runs already, which is as many as this token allows. Nothing was begun: wait "
            "until one ends, or stop one.",
            {"max_active_runs": most},
        )


def _refuse_one_more(tx: Transaction, judged: Judged, caller: Caller) -> None:
    """Before a run begins. Raises TooManyActiveRuns; Raced where it is this very run that began meanwhile."""
    if caller.max_active_runs is None:
        return
    owner = judged.run.owner
    try:
        refuse_more(tx.active_of(owner, caller.max_active_runs), owner, caller)
    except TooManyActiveRuns:
        there = tx.find(judged.run.run_id)
        if there is not None and (judged.before is None or there.version != judged.before.version):
            raise Raced from None
        raise


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

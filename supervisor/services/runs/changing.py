"""One change of one run that somebody asks for: looked at, judged, written unless somebody was faster; then once more.

The row is judged outside of the transaction, because everybody else's writes wait for that one; its version guards what
is written.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.contract.identifiers import is_run_id
from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import NotFound, TooManyActiveRuns, Unavailable
from supervisor.domain.events import Event
from supervisor.domain.run import Run
from supervisor.ports.store import Change
from supervisor.services.parts import Parts
from supervisor.wording.figures import clip

RACES = 8  # how often we look again when somebody else was faster

Judge = Callable[[Run, float], tuple[Run, Event] | None]


def find_run(parts: Parts, run_id: str) -> Run:
    """Raises NotFound. Whose run it is was asked at the door (api/wire/access)."""
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


def change(parts: Parts, run_id: str, judge: Judge, undone: str) -> Run:
    """The run as it is stored in the end. `judge(run, now)`: what becomes of it, and the event that tells it; None = it
    stays as it is; a refusal is raised. `undone`: what did not happen where the run kept changing. Raises NotFound,
    Unavailable, StoreDown, and what `judge` raises."""
    for _ in range(RACES):
        run, now = find_run(parts, run_id), parts.clock.now()
        wanted = judge(run, now)
        if wanted is None:
            return run
        after, event = wanted
        with parts.store.begin(now) as tx:
            stored = tx.apply(Change(run, after, (event,)), now)
        if stored is not None:
            parts.wake.set()
            return stored
    raise Unavailable(f"{run_id} kept changing; {undone}. Try again.", {"run_id": run_id})

"""What a submit checks of the runs that come before: an unknown run or a cycle is refused, so no run waits for ever.

`after` names runs of the same owner that exist. A new run cannot be part of a cycle, because nothing names it yet; a
resume with another spec can make one, so the runs before it are followed to their ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.domain.callers import Caller
from supervisor.domain.errors import AfterCycle, UnknownAfter
from supervisor.ports.store import RunFilter, RunPage
from supervisor.services.parts import Parts
from supervisor.services.runs.policy import Spec


def check_after(parts: Parts, run_id: str, spec: Spec, caller: Caller, exists: bool) -> None:
    """`run_id`: of the run with this spec; "" = it is generated. `exists`: other runs may name it already. Raises
    UnknownAfter, AfterCycle."""
    names: list[str] = list(spec.get("after", ()))
    if not names:
        return
    if run_id in names:
        raise _cycle(run_id, [])
    page = _page(parts, names)
    visible = {run.run_id for run in page.runs if caller.owns(run.owner)}
    unknown = [(f"#/spec/after/{number}", "unknown run") for number, name in enumerate(names) if name not in visible]
    if unknown:
        first = names[int(unknown[0][0].rpartition("/")[2])]
        text = f"after names {first}, and there is no such run. Submit it first. Nothing was stored."
        raise UnknownAfter(text, {"run_ids": [name for name in names if name not in visible]}, unknown)
    if exists:
        _refuse_cycle(parts, run_id, page)


def _refuse_cycle(parts: Parts, run_id: str, page: RunPage) -> None:
    """Follow the runs before, each once, with one query for each step of the chain. Raises AfterCycle."""
    came_from: dict[str, str] = {run.run_id: "" for run in page.runs}
    while page.runs:
        further: list[str] = []
        for run in page.runs:
            for name in run.policy.after:
                if name == run_id:
                    raise _cycle(run_id, _way(came_from, run.run_id))
                if name not in came_from:
                    came_from[name] = run.run_id
                    further.append(name)
        page = _page(parts, further)


def _way(came_from: dict[str, str], name: str) -> list[str]:
    way = [name]
    while came_from[way[-1]]:
        way.append(came_from[way[-1]])
    return way[::-1]


def _cycle(run_id: str, between: Sequence[str]) -> AfterCycle:
    way = " after ".join([run_id, *between, run_id])
    text = f"The run would wait for itself: {way}. Nothing was stored."
    return AfterCycle(text, {"run_ids": list(between)}, [("#/spec/after", "makes a cycle")])


def _page(parts: Parts, names: Sequence[str]) -> RunPage:
    if not names:
        return RunPage((), {}, None)
    return parts.store.page(RunFilter(run_ids=tuple(names)), None, len(names))

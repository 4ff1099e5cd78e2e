"""Stop or resume every run that matches a filter, each run in its own transaction with the use case for one run.

One request is bounded in runs and in time; a cursor continues where it ended. Runs in a status that the action cannot
change are counted and not read, so that 100,000 finished runs do not delay the action on one live run. A refusal for
one run does not stop the others, and a repeated request changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.domain.errors import CountDiffers, InvalidRequest, SpotError
from supervisor.domain.run import Run
from supervisor.domain.status import TERMINAL, Status
from supervisor.ports.store import RunFilter, RunPage
from supervisor.services.parts import Parts
from supervisor.services.runs.actions import stop
from supervisor.services.runs.changing import change
from supervisor.services.runs.resume import ResumeRequest, refuse_ended, refuse_live, resume
from supervisor.services.views import formats
from supervisor.wording.figures import plural

MOST = 1000  # runs that one request reads
WITHIN_S = 5.0  # after this time the request starts no further run


class RefusedRun(TypedDict):
    """`code`: as in the response to the same request for this run alone."""

    run_id: str
    code: str
    detail: str


class ManyDone(TypedDict):
    """`matched`: all runs of the filter when this request began. `changed`, `runs`: the runs that this request changed
    (or would change), 1000 at most. `unchanged`: the runs that it read or skipped, because the request does not apply
    to them. `more`: other runs may be left; repeat the request with `next_cursor` as `cursor` and without `expect`."""

    dry_run: bool
    matched: int
    changed: int
    unchanged: int
    refused: list[RefusedRun]
    runs: list[str]
    more: bool
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """`limit`: how many runs to read, at most MOST; 0 = MOST. `expect`: how many matching runs the user has seen; None
    = not given."""

    where: RunFilter
    limit: int = 0
    cursor: str | None = None
    dry_run: bool = False
    expect: int | None = None


@dataclass(frozen=True, slots=True)
class _ManyAction:
    """`idle`: statuses that the action does not change. `passes(run)`: it does not change this run either.
    `check(run)`: raises the refusal, as far as the row shows it. `act(run_id)`: the action on one run."""

    idle: frozenset[Status]
    passes: Callable[[Run], bool]
    check: Callable[[Run], None]
    act: Callable[[str], object]


@dataclass(slots=True)
class _Done:
    """`upto`: key of the last run that was read."""

    unchanged: int
    changed: list[str] = field(default_factory=list)
    refused: list[RefusedRun] = field(default_factory=list)
    upto: int | None = None


def stop_many(parts: Parts, request: ManyRequest, caller: Caller) -> ManyDone:
    """Raises CountDiffers, CursorInvalid, InvalidRequest, StoreDown."""
    action = _ManyAction(
        idle=TERMINAL | {Status.AWAITING_TEARDOWN, Status.STOPPING},
        passes=lambda run: run.stop is not None,
        check=lambda run: None,
        act=lambda run_id: change(parts, run_id, stop(caller)),
    )
    return _many(parts, request, action)


def resume_many(parts: Parts, request: ManyRequest, caller: Caller) -> ManyDone:
    """Each run keeps its spec. Completed runs stay as they are. Raises as `stop_many`."""

    def check(run: Run) -> None:
        if not run.terminal:
            refuse_live(run, [])
        refuse_ended(run, parts.cells.get(run.provider), [], replace_spec=False, rerun=False)

    action = _ManyAction(
        idle=frozenset({Status.COMPLETED, Status.AWAITING_TEARDOWN}),
        passes=lambda run: not run.terminal and run.stop is None and run.status is not Status.STOPPING,
        check=check,
        act=lambda run_id: resume(parts, run_id, ResumeRequest(caller)),
    )
    return _many(parts, request, action)


def _many(parts: Parts, request: ManyRequest, action: _ManyAction) -> ManyDone:
    secret, where = parts.store.secret, request.where
    if request.cursor is not None and request.expect is not None:
        text = "`expect` counts all runs of the filter. Send it in the first request only, without a cursor."
        raise InvalidRequest(text, {}, [("#/expect", "has no meaning with a cursor")])
    before = None if request.cursor is None else formats.read_cursor(secret, request.cursor, where)
    statuses = where.statuses or tuple(str(status) for status in Status)
    page = _page(parts, request, [word for word in statuses if word not in action.idle], before)
    matched = sum(page.counts.get(word, 0) for word in statuses)
    _check_count(request.expect, matched)
    passed_over = sum(page.counts.get(word, 0) for word in statuses if word in action.idle)
    done = _each(parts, page, action, request.dry_run, _Done(passed_over if before is None else 0))
    more = done.upto is not None and (page.next_key is not None or done.upto != page.runs[-1].key)
    return {
        "dry_run": request.dry_run,
        "matched": matched,
        "changed": len(done.changed),
        "unchanged": done.unchanged,
        "refused": done.refused,
        "runs": done.changed,
        "more": more,
        "next_cursor": formats.make_cursor(secret, done.upto, where) if more and done.upto is not None else None,
    }


def _page(parts: Parts, request: ManyRequest, statuses: list[str], before: int | None) -> RunPage:
    """The runs in these statuses; the counts include all statuses."""
    if statuses:
        limit = min(request.limit or MOST, MOST)
        return parts.store.page(replace(request.where, statuses=tuple(statuses)), before, limit)
    return replace(parts.store.page(request.where, None, 1), runs=(), next_key=None)


def _check_count(expected: int | None, matched: int) -> None:
    if expected is not None and expected != matched:
        raise CountDiffers(
            f"{plural(matched, 'run')} match, and you have seen {expected}. Nothing was changed. Look again.",
            {"matched": matched, "expected": expected},
        )


def _each(parts: Parts, page: RunPage, action: _ManyAction, dry_run: bool, done: _Done) -> _Done:
    until = parts.clock.monotonic() + WITHIN_S
    for run in page.runs:
        if done.upto is not None and parts.clock.monotonic() >= until:
            return done
        done.upto = run.key
        if action.passes(run):
            done.unchanged += 1
            continue
        try:
            action.check(run)
            if not dry_run:
                action.act(run.run_id)
        except SpotError as error:
            done.refused.append({"run_id": run.run_id, "code": error.code, "detail": error.detail})
        else:
            done.changed.append(run.run_id)
    return done

"""Stop or resume every run that a filter names: each by the use case for one run, in a transaction of its own.

One request is bounded in runs and in time; a cursor goes on where it ended. Runs to which the wish means nothing are
counted by their status and not read, so that a hundred thousand finished runs do not stand before the one that works.
What one run refuses holds up no other; the same request again changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from supervisor.domain.callers import Caller
from supervisor.domain.errors import CountDiffers, InvalidRequest, SpotError
from supervisor.domain.run import Run
from supervisor.domain.status import TERMINAL, Status
from supervisor.ports.store import RunFilter, RunPage
from supervisor.services.parts import Parts
from supervisor.services.runs import resume as reopen
from supervisor.services.runs.asking import stop
from supervisor.services.runs.resume import Wish, resume
from supervisor.services.views import cursor as cursors
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import plural

MOST = 1000  # runs that one request looks at
WITHIN_S = 5.0  # and no new one is begun after this


@dataclass(frozen=True, slots=True)
class Asked:
    """`limit`: how many runs to look at, MOST at most; 0 = so many. `expect`: how many runs of the filter somebody has
    seen; None = it does not say."""

    where: RunFilter
    limit: int = 0
    cursor: str | None = None
    dry_run: bool = False
    expect: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of each run. `idle`: statuses to which it means nothing. `passes(run)`: nor to this run.
    `check(run)`: raises why it would be refused, as far as the row tells. `do(run_id)`: done to one run."""

    idle: frozenset[Status]
    passes: Callable[[Run], bool]
    check: Callable[[Run], None]
    do: Callable[[str], object]


@dataclass(slots=True)
class _Done:
    """`upto`: the key of the last run that was looked at."""

    unchanged: int
    changed: list[str] = field(default_factory=list)
    refused: list[Json] = field(default_factory=list)
    upto: int | None = None


def stop_many(parts: Parts, request: Asked, caller: Caller) -> Json:
    """Raises CountDiffers, CursorInvalid, InvalidRequest, StoreDown."""
    wanted = Wanted(
        idle=TERMINAL | {Status.AWAITING_TEARDOWN, Status.STOPPING},
        passes=lambda run: run.stop is not None,
        check=lambda run: None,
        do=lambda run_id: stop(parts, run_id, caller),
    )
    return _many(parts, request, wanted)


def resume_many(parts: Parts, request: Asked, caller: Caller) -> Json:
    """Each with the spec that it has. Completed runs have nothing left to resume. Raises as `stop_many`."""

    def check(run: Run) -> None:
        if not run.terminal:
            reopen.refuse_live(run, [])
        reopen.refuse_ended(run, parts.cells.get(run.provider), [], replace_spec=False, rerun=False)

    wanted = Wanted(
        idle=frozenset({Status.COMPLETED, Status.AWAITING_TEARDOWN}),
        passes=lambda run: not run.terminal and run.stop is None and run.status is not Status.STOPPING,
        check=check,
        do=lambda run_id: resume(parts, run_id, Wish(None, False, False, caller)),
    )
    return _many(parts, request, wanted)


def _many(parts: Parts, request: Asked, wanted: Wanted) -> Json:
    secret, where = parts.store.secret, request.where
    if request.cursor is not None and request.expect is not None:
        text = "`expect` counts all runs of the filter; say it in the first request only, without a cursor."
        raise InvalidRequest(text, {}, [("#/expect", "has no meaning with a cursor")])
    before = None if request.cursor is None else cursors.read(secret, request.cursor, where)
    statuses = where.statuses or tuple(str(status) for status in Status)
    page = _page(parts, request, [word for word in statuses if word not in wanted.idle], before)
    matched = sum(page.counts.get(word, 0) for word in statuses)
    _check_count(request.expect, matched)
    passed_over = sum(page.counts.get(word, 0) for word in statuses if word in wanted.idle)
    done = _each(parts, page, wanted, request.dry_run, _Done(passed_over if before is None else 0))
    more = done.upto is not None and (page.next_key is not None or done.upto != page.runs[-1].key)
    return {
        "dry_run": request.dry_run,
        "matched": matched,
        "changed": len(done.changed),
        "unchanged": done.unchanged,
        "refused": done.refused,
        "runs": done.changed,
        "more": more,
        "next_cursor": cursors.make(secret, done.upto, where) if more and done.upto is not None else None,
    }


def _page(parts: Parts, request: Asked, statuses: list[str], before: int | None) -> RunPage:
    """The runs in these statuses; the counts are of all statuses."""
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


def _each(parts: Parts, page: RunPage, wanted: Wanted, dry_run: bool, done: _Done) -> _Done:
    until = parts.clock.monotonic() + WITHIN_S
    for run in page.runs:
        if done.upto is not None and parts.clock.monotonic() >= until:
            return done
        done.upto = run.key
        if wanted.passes(run):
            done.unchanged += 1
            continue
        try:
            wanted.check(run)
            if not dry_run:
                wanted.do(run.run_id)
        except SpotError as error:
            done.refused.append({"run_id": run.run_id, "code": error.code, "detail": error.detail})
        else:
            done.changed.append(run.run_id)
    return done

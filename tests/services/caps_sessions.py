"""Adversarial sessions against a token's cap: twenty requests at once, which start, resume, raise, lower and end runs.

As a program it carries out sessions until it is killed: `python -m tests.services.caps_sessions URL FIRST COUNT`. It
prints the number of each session that is over.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.domain.callers import Caller, Caps, Scope, Token
from supervisor.domain.errors import SpotError
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Change, RunFilter
from supervisor.services.runs.altering import alter
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.storage.store import open_store
from tests.services.bed import COMMAND, Bed, make_bed

DAY = 10.0  # the cap
AT_ONCE, NAMES = 20, 12
MOST = 4.5  # the largest budget of a submit


def spec(budget: float | None = None, **more: Any) -> dict[str, Any]:
    return {**COMMAND, **more} | ({} if budget is None else {"limits": {"budget_usd": budget}})


def payer(bed: Bed, number: int = 1, **caps: Any) -> Caller:
    """A caller with a stored token."""
    scopes = frozenset({Scope.READ, Scope.WRITE})
    token = Token(f"tok-{number:012d}", "ci", "local", scopes, bed.clock.now(), "local", caps=Caps(**caps))
    bed.store.tokens.add(token, f"digest {number}", Event(EventKind.TOKEN_CREATED, "made", "local"))
    return token.caller("")


def ended(bed: Bed, run_id: str, cost_usd: float) -> None:
    """It has ended, and its machine is gone."""
    run = bed.run(run_id)
    money = replace(run.money, cost_usd=run.money.budget_from_usd + cost_usd)
    bed.change(run_id, status=Status.STOPPED, settled=True, status_since=bed.clock.now(), money=money)


def session(bed: Bed, number: int, chance: random.Random, pool: ThreadPoolExecutor) -> None:
    caller = payer(bed, number, usd_per_day=DAY)
    deeds = [_deed(bed, caller, f"s{number}-{n % NAMES}", chance.random(), chance.random()) for n in range(AT_ONCE)]
    for done in [pool.submit(deed) for deed in deeds]:
        done.result()


def judge(bed: Bed, number: int) -> float:
    """What the token has spent, and may still spend. Raises AssertionError where it is above the cap."""
    runs = bed.store.page(RunFilter(text=f"s{number}-"), None, 1000).runs
    mine = [run for run in runs if run.run_id.startswith(f"s{number}-")]
    total = sum(run.money.cost_usd + _may_spend(run) for run in mine)
    assert total <= DAY + 1e-5, f"session {number}: ${total:.6f}"
    counted = bed.store.counted_micro(f"tok-{number:012d}", bed.clock.now())
    assert counted <= DAY * 1e6, f"session {number}: {counted} are counted"
    return total


def _may_spend(run: Run) -> float:
    budget = run.policy.limits.budget_usd
    assert budget is not None
    spent = run.money.cost_usd - run.money.budget_from_usd
    return 0.0 if run.terminal else max(0.0, budget - spent)


def _deed(bed: Bed, caller: Caller, run_id: str, kind: float, size: float) -> Callable[[], None]:
    def work() -> None:
        try:
            run, budget = bed.store.find(run_id), 0.5 + (MOST - 0.5) * size
            if run is None:
                submit(bed.parts, SubmitRequest(spec(budget), run_id, key=f"{run_id} {size}"), caller)
            elif run.terminal:
                resume(bed.parts, run_id, ResumeRequest(caller, spec(budget), replace_spec=True))
            elif kind < 0.5:
                alter(bed.parts, run_id, {"limits": {"budget_usd": 0.1 + 6 * size}}, None, caller)
            else:
                _end(bed, run, size)
        except (SpotError, AssertionError):
            pass  # refused; or another request has changed the run first

    return work


def _end(bed: Bed, run: Run, share: float) -> None:
    """It has spent this share of its budget. Written as the loop writes: a row that has changed since it was read stays
    as it is, else the cost of one generation would be booked on a later one with a lower budget."""
    now, cost_usd = bed.clock.now(), (run.policy.limits.budget_usd or 0.0) * share
    money = replace(run.money, cost_usd=run.money.budget_from_usd + cost_usd)
    after = replace(run, status=Status.STOPPED, settled=True, status_since=now, money=money)
    with bed.store.begin(now) as tx:
        tx.apply(Change(run, after), now)


def main(url: str, first: int, count: int) -> None:
    bed = make_bed(open_store(url, migrate=False), Path(tempfile.gettempdir()))
    chance = random.Random()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(first, first + count):
            session(bed, number, chance, pool)
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

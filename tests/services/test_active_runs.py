"""A token's limit of active runs is exact for simultaneous requests, and a refusal stores nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.callers import Caller
from supervisor.domain.errors import TooManyActiveRuns
from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter
from supervisor.services.plan.plan import forecast_submit
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.fakes.callers import MEMBER
from tests.services.bed import COMMAND, Bed

MOST, PARALLEL, ASKED = 5, 8, 24
LIMITED = replace(MEMBER, max_active_runs=MOST)


def begin(bed: Bed, run_id: str, caller: Caller = LIMITED, key: str | None = None) -> bool:
    try:
        submit(bed.parts, SubmitRequest(COMMAND, run_id, key=key), caller)
    except TooManyActiveRuns:
        return False
    return True


def test_of_many_at_once_as_many_begin_as_may(any_bed: Bed) -> None:
    """Without the queue of an owner's writers more runs would start on Postgres (see the store's own suite)."""
    begin(any_bed, "another-owners", replace(LIMITED, owner="her"))
    with ThreadPoolExecutor(PARALLEL) as pool:
        begun = list(pool.map(lambda n: begin(any_bed, f"run-{n}", key=f"k-{n}"), range(ASKED)))
    assert sum(begun) == MOST
    stored = any_bed.store.page(RunFilter(owner="local"), None, 1).counts
    assert stored == {"pending": MOST}


def test_below_the_limit_runs_start_again(bed: Bed) -> None:
    assert [begin(bed, f"run-{n}") for n in range(MOST + 1)] == [True] * MOST + [False]
    assert begin(bed, "run-0")  # existing and live: nothing starts
    with pytest.raises(TooManyActiveRuns, match="5 active runs"):
        forecast_submit(bed.parts, SubmitRequest(COMMAND, "run-9"), LIMITED, bed.clock.now())
    bed.change("run-0", status=Status.STOPPED)
    assert begin(bed, "run-9")
    with pytest.raises(TooManyActiveRuns):
        resume(bed.parts, "run-0", ResumeRequest(LIMITED))
    with pytest.raises(TooManyActiveRuns):
        forecast_submit(bed.parts, SubmitRequest(COMMAND, "run-0"), LIMITED, bed.clock.now())
    assert bed.run("run-0").generation == 1
    assert resume(bed.parts, "run-0", ResumeRequest(MEMBER)).changed  # without a limit


def test_two_simultaneous_starts_stay_within_the_limit(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    one, plain, others = replace(MEMBER, max_active_runs=1), bed.store.begin, ["a click"]
    wanted = ResumeRequest(one)
    assert begin(bed, "run-0", one)
    bed.change("run-0", status=Status.STOPPED)

    def later(now: float) -> Any:
        if others and others.pop():
            assert resume(bed.parts, "run-0", wanted).changed
        return plain(now)

    monkeypatch.setattr(bed.store, "begin", later)
    assert not resume(bed.parts, "run-0", wanted).changed
    assert bed.run("run-0").generation == 2


def test_a_refused_key_is_not_used_up(bed: Bed) -> None:
    for n in range(MOST):
        begin(bed, f"run-{n}")
    assert not begin(bed, "run-9", key="k")
    bed.change("run-0", status=Status.COMPLETED)
    assert begin(bed, "run-9", key="k")

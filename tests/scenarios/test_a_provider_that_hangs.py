"""Two providers, one hangs for an hour: no run of the other is delayed, and none of its own runs is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.events import EventKind
from supervisor.domain.observation import OBSERVE_S
from supervisor.domain.status import Status
from supervisor.ports.provider import ProviderUnavailable
from tests.scenarios.sim_plan import Plan
from tests.scenarios.two_providers import TwoProviders, two_providers

HOUR_S = 3600.0
SHORT = Plan(steps=60, after="stays")  # a minute of training; its machine must be released
LONG = Plan(steps=1_000_000)
FAR_RUNS, NEW_FAR_RUNS = 3, 12  # more new runs than the far provider has threads
SLACK_S = OBSERVE_S + 30.0  # one wait for the far provider, and actions that are due one poll later


def near_run(
    stage: TwoProviders, run_id: str, slack_s: float = 0.0, pace: tuple[float, float] = (HOUR_S, HOUR_S)
) -> Any:
    """(seconds to running, to its machine being gone), neither longer than `pace` and the slack."""
    stage.submit(run_id, "local", SHORT)
    runs_s = stage.seconds_until(run_id, Status.RUNNING, pace[0] + slack_s)
    return runs_s, stage.seconds_until(run_id, "settled", pace[1] + slack_s)


def hour(stage: TwoProviders) -> None:
    """The story. Raises AssertionError if a run of the near provider is delayed."""
    for number in range(FAR_RUNS):
        stage.submit(f"far-{number}", "far", LONG if number else Plan(steps=600, after="stays"))
    pace = near_run(stage, "before")
    stage.run_for(120.0)
    assert {stage.row(f"far-{number}").status for number in range(FAR_RUNS)} == {Status.RUNNING}

    stage.tick_s.clear()
    stage.slow.hangs_until = stage.clock.monotonic() + HOUR_S
    stage.slow.answered = frozenset({"machines"})  # at first its requests hang, then everything
    for number in range(NEW_FAR_RUNS):
        stage.submit(f"new-{number}", "far", SHORT)
    stage.run_for(5.0)
    assert "launch" in stage.slow.began
    stage.slow.answered = frozenset()
    number = 0
    while stage.clock.monotonic() < stage.slow.hangs_until - 400.0:
        near_run(stage, f"near-{number}", SLACK_S if number == 0 else 2.0, pace)
        stage.run_for(100.0)
        number += 1
    assert number > 8
    assert max(stage.tick_s) <= OBSERVE_S
    assert sum(stage.tick_s) <= OBSERVE_S, "the far provider cost one wait in the whole hour"


def test_no_run_of_the_other_is_delayed(tmp_path: Path) -> None:
    stage = two_providers(tmp_path)
    try:
        hour(stage)
        far = [stage.row(f"far-{number}") for number in range(1, FAR_RUNS)]
        assert {(run.status, run.counters.attempts) for run in far} == {(Status.RUNNING, 1)}, "their beats arrive"
        assert stage.row("far-0").status != Status.FAILED
        assert not stage.row("far-0").settled, "its machine cannot be released yet"
        assert all(stage.row(f"new-{number}").attempt is None for number in range(NEW_FAR_RUNS))

        stage.run_for(HOUR_S)
        assert stage.row("far-0").settled
        assert {(stage.row(run.run_id).status, stage.row(run.run_id).counters.attempts) for run in far} == {
            (Status.RUNNING, 1)
        }
        for number in range(NEW_FAR_RUNS):
            run = stage.row(f"new-{number}")
            assert (run.status, run.settled, run.counters.attempts) == (Status.COMPLETED, True, 1)
        kinds = {stored.event.kind for stored in stage.rows.events(None, 0, 5000)}
        assert not kinds & {EventKind.MACHINE_LEAKED, EventKind.BREAKER_OPENED, EventKind.SWEEP_REFUSED}
        assert stage.faults.seen == []
    finally:
        stage.close()


def test_a_create_without_a_response_is_settled_where_every_listing_comes_late(tmp_path: Path) -> None:
    """The request was lost: a listing that was requested after it, and lacks the machine, proves that."""
    stage = two_providers(tmp_path)
    try:
        stage.slow.takes_s = OBSERVE_S + 5.0
        stage.far.next_launch(ProviderUnavailable("no response"), comes_up=False)
        stage.submit("lost", "far", SHORT)
        stage.seconds_until("lost", "settled", HOUR_S)
        run = stage.row("lost")
        assert (run.status, run.counters.attempts) == (Status.COMPLETED, 1)
    finally:
        stage.close()


@pytest.mark.parametrize("broken", [{"bound_s": float("inf")}, {"apart": False}])
def test_without_the_bound_or_separate_threads_it_is(tmp_path: Path, broken: dict[str, Any]) -> None:
    stage = two_providers(tmp_path, **broken)
    try:
        with pytest.raises(AssertionError, match="near-0 is"):
            hour(stage)
    finally:
        stage.close()

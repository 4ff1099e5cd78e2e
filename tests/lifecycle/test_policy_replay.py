"""The simulator of `make policy`: by hand, and that it notices a rule that is worse than it claims."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from supervisor.lifecycle.rungs.rule import Rung
from tools.policy import __main__ as report
from tools.policy import guessing, races, traces, zones
from tools.policy.bound import bound_usd
from tools.policy.replay import State, greedy, on_demand, production, replay, uniform_progress
from tools.policy.traces import ON_DEMAND_USD, SPOT_USD, Case, H, Zone, cases

WORK_TICKS = 48 * 6


def test_on_demand_costs_the_work_and_one_changeover_in_whole_ticks() -> None:
    outcome = replay((False,) * 312, 0.1 * H, on_demand)
    assert outcome.usd == pytest.approx((WORK_TICKS + 1) * ON_DEMAND_USD / 6)
    assert not outcome.missed


def test_with_spot_all_the_time_every_rule_pays_for_spot_alone_and_no_plan_is_cheaper() -> None:
    up = (True,) * 420
    usd = (WORK_TICKS + 1) * SPOT_USD / 6
    assert [replay(up, 0.1 * H, rule).usd for rule in (greedy, uniform_progress, production())] == [
        pytest.approx(usd)
    ] * 3
    # The bound pays the last tick as far as it is needed.
    assert usd - SPOT_USD / 6 < bound_usd(up, 0.1 * H) <= usd


def test_a_rule_that_waits_for_ever_is_a_miss_and_not_a_bargain() -> None:
    outcome = replay((False,) * 312, 0.1 * H, lambda _: Rung.WAIT)
    assert outcome.usd == 0.0
    assert outcome.missed


def test_spot_that_is_not_there_cannot_be_taken() -> None:
    assert replay((False,) * 312, 0.1 * H, lambda _: Rung.SPOT).missed


def test_a_lost_machine_costs_a_changeover_again() -> None:
    seen: list[tuple[Rung | None, float]] = []

    def spot_or_wait(state: State) -> Rung:
        seen.append((state.held, state.left_s))
        return Rung.SPOT if state.is_up else Rung.WAIT

    replay((True, True, False, True, True), 0.1 * H, spot_or_wait)
    trained = [before[1] - after[1] for before, after in pairwise(seen)]
    assert trained == [240.0, 600.0, 0.0, 240.0]
    assert [held for held, _ in seen] == [None, Rung.SPOT, None, None, Rung.SPOT]


def test_the_benchmark_has_its_1080_cases() -> None:
    every = list(cases())
    assert len(every) == 1_080
    assert {len(case.up) for case in every} == {312, 420}
    assert len({case.cell for case in every}) == 36


def test_the_training_waits_for_the_cheap_zone_while_it_has_slack() -> None:
    """The dear zone is up all the time, the cheap one from the second hour on: at one and a half times the work the
    training waits; where the deadline is near it takes what there is."""
    ticks = zones.WINDOW_TICKS
    cheap = Zone("near-a", 10.0, 80.0, (False,) * 6 + (True,) * (ticks - 6))
    dear = Zone("far-a", 60.0, 80.0, (True,) * ticks)
    works_h = ticks / 6 / 1.5
    relaxed = zones.replay((cheap, dear), 0, 1.5)
    assert relaxed.usd == pytest.approx((works_h + 0.2) * 10.0)
    assert not relaxed.missed
    hurried = zones.replay((cheap, dear), 0, 1.02)
    assert hurried.usd > 3_000.0
    assert not hurried.missed


def test_a_rule_that_misses_deadlines_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [Case("a machine", 52, 0.1, (False,) * 312)]
    monkeypatch.setattr(traces, "cases", lambda: few)
    monkeypatch.setattr(races, "report", lambda: ([], []))
    monkeypatch.setattr(report, "_h100", lambda: ({1.5: 500.0, 1.2: 700.0}, 0))
    monkeypatch.setattr(guessing, "report", lambda _: guessing.Report("", 1.0, []))
    monkeypatch.setattr(report, "production", lambda *_, **__: lambda _state: Rung.WAIT)
    assert report.main([]) == 1
    *_, verdict, last = capsys.readouterr().out.splitlines()
    assert verdict == "MISSED: 1 deadlines were missed"
    assert json.loads(last)["misses"] == 1

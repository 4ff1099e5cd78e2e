"""Simulated run-days before the watch over hangs: 12 in `make test`, 1,000 in `make campaign`."""

from tests.agent.hangs.simulation import RHYTHMS, simulate
from tests.properties import examples


def test_false_alarms_are_rare_and_planted_hangs_are_found_in_time() -> None:
    """The broken variant: the same watch by the rhythm alone, without motion, raises ten times as many alarms."""
    figures = simulate(examples(2 * len(RHYTHMS), 1000)).shown()
    assert figures["false_alarms_per_run_day"] <= 0.1
    assert figures["by_rhythm_alone_per_run_day"] > 0.5
    assert figures["beyond_limit_p95_s"] <= 0
    assert figures["silent_delay_max_s"] <= 1800
    assert figures["silent_false_alarms"] == 0

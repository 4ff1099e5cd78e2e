"""The short way of a decision against the rules, in 100,000 situations of a run that trains."""

from __future__ import annotations

from supervisor.lifecycle.phases import short_way
from tests.lifecycle.test_short_way import check


def test_the_short_way_decides_as_the_rules_do() -> None:
    assert check(short_way.trains_on, 100_000, seed=100) > 0.2

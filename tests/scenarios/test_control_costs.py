"""What the control of a run costs in a bucket: requests counted over simulated hours, against what the doctor computes.

The loop, its rotation of stop markers and its listings are the real ones; the agent keeps the pace of the real agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.policies import Knobs
from supervisor.services.reading import cost
from supervisor.services.reading.cost import CLASS_A_USD, CLASS_B_USD, MONTH_S, beat_cost
from tests.scenarios.play import play_lines
from tests.scenarios.stage import Stage

HOURS_S = 2 * 3600.0
LIVE = "plan one checkpoint=900000\nsubmit one steps=900000\nwait until one status=running within=3min\nwait 5min"


class Bill:
    """Dollars of the requests about beats, the baton and stop markers; files of the training are not control."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.usd, self._stage = 0.0, stage
        for name, price in (("put", CLASS_A_USD), ("get", CLASS_B_USD), ("stat", CLASS_B_USD)):
            monkeypatch.setattr(stage.objects, name, self._priced(getattr(stage.objects, name), price))
        pages = stage.objects.pages
        monkeypatch.setattr(
            stage.objects, "pages", lambda prefix, *rest, **named: self._listed(prefix, pages(prefix, *rest, **named))
        )

    def _priced(self, call: Callable[..., Any], price: float) -> Callable[..., Any]:
        def counted(key: str, *given: Any, **named: Any) -> Any:
            if key.startswith(runfiles.BEATS) or key in (runfiles.baton("one"), runfiles.stop_marker("one")):
                self.usd += price
            return call(key, *given, **named)

        return counted

    def _listed(self, prefix: str, pages: Iterator[Any]) -> Iterator[Any]:
        for page in pages:
            self.usd += CLASS_A_USD if prefix.startswith(runfiles.BEATS) else 0.0
            yield page

    def of_a_month(self) -> float:
        before = self.usd
        self._stage.run_for(HOURS_S)
        return (self.usd - before) * MONTH_S / HOURS_S


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()


def computed_usd(stage: Stage) -> float:
    knobs = Knobs("s")
    parts = beat_cost(knobs.beat_store_s, 300.0, stage.settings.poll, knobs.stop_poll_s)
    return parts.beats_usd + parts.looks_usd


def test_the_requests_of_hours_cost_what_the_doctor_computes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a figure that forgets the agent's reads beside each beat is caught."""
    play_lines(stage, LIVE)
    counted = pytest.approx(Bill(stage, monkeypatch).of_a_month(), rel=0.01)
    assert computed_usd(stage) == counted
    monkeypatch.setattr(cost, "READS_PER_BEAT", 0)
    assert computed_usd(stage) != counted

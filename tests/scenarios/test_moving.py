"""A run that names two places: stock-out, a hanging place and preemptions lead on, and it comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.events import EventKind
from supervisor.domain.status import Status
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.scenarios.deeds_of_people import ACTOR, spec_of
from tests.scenarios.sim_plan import Plan
from tests.scenarios.two_places import TwoPlaces, two_places

HOUR_S = 3600.0
TRAINS = Plan(steps=1_000_000)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[TwoPlaces]:
    stage = two_places(tmp_path)
    yield stage
    assert stage.faults.seen == []
    stage.close()


def begin(stage: TwoPlaces, **spec: Any) -> None:
    stage.plans["digits"] = TRAINS
    whole = spec_of(stage, {}) | {"providers": ["far", "local"], **spec}
    submit(stage.parts, SubmitRequest(whole, run_id="digits"), ACTOR)
    stage.seconds_until("digits", Status.RUNNING, HOUR_S)


def lose(stage: TwoPlaces) -> str:
    """The machine is taken away; where the next one runs."""
    run = stage.row("digits")
    assert run.live_attempt is not None
    place = {"far": stage.far}.get(run.provider, stage.provider)
    place.preempt(run.live_attempt.ref, 30.0)
    number = run.live_attempt.number

    def trains_again() -> bool:
        attempt = stage.row("digits").live_attempt
        return attempt is not None and attempt.number > number and attempt.running_at is not None

    began = stage.clock.monotonic()
    while not trains_again():
        assert stage.clock.monotonic() - began < HOUR_S, stage.row("digits")
        stage.run_for(1.0)
    return stage.row("digits").provider


def test_a_stock_out_leads_on_and_the_next_placement_back(stage: TwoPlaces) -> None:
    begin(stage)
    assert stage.row("digits").provider == "far"
    stage.far.capacity["far-a"] = 0
    assert lose(stage) == "local"
    del stage.far.capacity["far-a"]
    stage.run_for(HOUR_S)
    assert stage.row("digits").provider == "local", "it is not moved while it trains"
    assert lose(stage) == "far"
    assert [one.placement.provider for one in stage.rows.attempts(stage.row("digits").key)] == [
        "far", "local", "far",
    ]  # fmt: skip


def test_a_place_that_hangs_is_passed_over(stage: TwoPlaces) -> None:
    """Its old machine cannot be seen, but the beats stop with a notice: the run goes on elsewhere."""
    begin(stage)
    attempt = stage.row("digits").live_attempt
    assert attempt is not None
    stage.far.preempt(attempt.ref, 30.0)
    stage.run_for(1.0)
    stage.slow.hangs_until = stage.clock.monotonic() + HOUR_S
    stage.run_for(600.0)
    assert (stage.row("digits").provider, stage.row("digits").status) == ("local", Status.RUNNING)


def test_preemptions_lead_on_and_are_forgotten(stage: TwoPlaces) -> None:
    window_s = 2 * HOUR_S
    begin(stage, escalate={"after": 2, "within_s": window_s, "to": "next_provider"})
    assert [lose(stage), lose(stage)] == ["far", "local"]
    stage.run_for(window_s)
    assert lose(stage) == "far"
    texts = [one.event.text for one in stage.rows.events("digits", 0, 1000)]
    [asked] = [text for text in texts if "the next provider first" in text]
    assert asked.endswith("the next provider first, after 2 preemptions within 2 h).")
    kinds = {one.event.kind for one in stage.rows.events(None, 0, 5000)}
    assert EventKind.MACHINE_LEAKED not in kinds

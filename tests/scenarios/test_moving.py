"""A run with two providers: stock-out, a hanging provider and preemptions move it to the next one, and it returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineListing
from supervisor.domain.status import Status
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.scenarios.sim_plan import Plan
from tests.scenarios.two_providers import TwoProviders, two_providers
from tests.scenarios.user_verbs import ACTOR, spec_of

HOUR_S = 3600.0
TRAINS = Plan(steps=1_000_000)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[TwoProviders]:
    stage = two_providers(tmp_path)
    yield stage
    assert stage.faults.seen == []
    stage.close()


def start(stage: TwoProviders, **spec: Any) -> None:
    stage.plans["digits"] = TRAINS
    whole = spec_of(stage, {}) | {"providers": ["far", "local"], **spec}
    submit(stage.parts, SubmitRequest(whole, run_id="digits"), ACTOR)
    stage.seconds_until("digits", Status.RUNNING, HOUR_S)


def lose(stage: TwoProviders) -> str:
    """Preempt the machine. Returns the provider of the next one."""
    run = stage.row("digits")
    assert run.live_attempt is not None
    provider = {"far": stage.far}.get(run.provider, stage.provider)
    provider.preempt(run.live_attempt.ref, 30.0)
    number = run.live_attempt.number

    def trains_again() -> bool:
        attempt = stage.row("digits").live_attempt
        return attempt is not None and attempt.number > number and attempt.running_at is not None

    began = stage.clock.monotonic()
    while not trains_again():
        assert stage.clock.monotonic() - began < HOUR_S, stage.row("digits")
        stage.run_for(1.0)
    return stage.row("digits").provider


def test_a_stock_out_moves_it_and_the_next_placement_returns(stage: TwoProviders) -> None:
    start(stage)
    assert stage.row("digits").provider == "far"
    stage.far.capacity["far-a"] = 0
    assert lose(stage) == "local"
    del stage.far.capacity["far-a"]
    stage.run_for(HOUR_S)
    assert stage.row("digits").provider == "local", "it is not moved while it trains"
    assert lose(stage) == "far"
    assert [attempt.placement.provider for attempt in stage.rows.attempts(stage.row("digits").key)] == [
        "far", "local", "far",
    ]  # fmt: skip


def test_a_provider_that_hangs_is_skipped(stage: TwoProviders) -> None:
    """Its old machine cannot be seen, but the beats stop with a notice: the run continues at the other provider."""
    start(stage)
    attempt = stage.row("digits").live_attempt
    assert attempt is not None
    stage.far.preempt(attempt.ref, 30.0)
    stage.run_for(1.0)
    stage.slow.hangs_until = stage.clock.monotonic() + HOUR_S
    stage.run_for(600.0)
    assert (stage.row("digits").provider, stage.row("digits").status) == ("local", Status.RUNNING)


def test_preemptions_move_it_and_are_forgotten(stage: TwoProviders) -> None:
    window_s = 2 * HOUR_S
    start(stage, escalate={"after": 2, "within_s": window_s, "to": "next_provider"})
    assert [lose(stage), lose(stage)] == ["far", "local"]
    stage.run_for(window_s)
    assert lose(stage) == "far"
    texts = [stored.event.text for stored in stage.rows.events("digits", 0, 1000)]
    [launching] = [text for text in texts if "the next provider first" in text]
    assert launching.endswith("the next provider first, after 2 preemptions within 2 h).")
    kinds = {stored.event.kind for stored in stage.rows.events(None, 0, 5000)}
    assert EventKind.MACHINE_LEAKED not in kinds


def forgets_the_zone(stage: TwoProviders) -> int:
    """Six hours with a dead machine in a zone that left the settings. Returns how many machines the run had."""
    start(stage)
    run = stage.row("digits")
    assert run.live_attempt is not None
    stage.far.settings_zones = frozenset({"far-b"})
    stage.far.kill(run.live_attempt.ref)
    stage.run_for(6 * HOUR_S)
    return stage.row("digits").counters.attempts


def test_a_machine_in_a_zone_that_left_the_settings_is_not_replaced(stage: TwoProviders) -> None:
    assert forgets_the_zone(stage) == 1, "it may train there, unseen"
    stage.far.settings_zones = None
    stage.run_for(HOUR_S)
    run = stage.row("digits")
    assert (run.status, run.counters.attempts) == (Status.RUNNING, 2)


def test_a_listing_that_takes_such_a_zone_for_an_empty_one_is_caught(
    stage: TwoProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MachineListing, "unread", lambda self, zone: "")
    assert forgets_the_zone(stage) == 2

"""What the control of a run costs in a bucket: requests counted over simulated hours, against what the doctor computes.

The loop, its rotation of stop markers and its listings are the real ones; the agent keeps the pace of the real agent.
While pushed beats are acknowledged, stored ones rest: then nothing may be noticed later, and nothing may look dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.life.beats import Rest
from supervisor.contract import runfiles
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.objectstore import Page
from supervisor.ports.store import RunFilter
from supervisor.reconciler.observing.resting import Resting
from supervisor.services.reading import cost
from supervisor.services.reading.cost import (
    CLASS_A_USD,
    CLASS_B_USD,
    CONTROL_USD,
    MONTH_S,
    BeatCost,
    beat_cost,
    resting_cost,
)
from tests.scenarios.play import play_lines
from tests.scenarios.sim_plan import NEVER, NotReached
from tests.scenarios.stage import Settings, Stage, TrueClock

HOURS_S = 2 * 3600.0
LIVE = """
plan one checkpoint=900000 push={push}
submit one steps=900000 zones=a,b
wait until one status=running within=3min
wait 20min
"""
MINUTE_S = 60.0


class Bill:
    """Dollars of the requests about beats, the baton, stop markers and orders; files of the training are no control."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.usd, self._stage = 0.0, stage
        for name, price in (("put", CLASS_A_USD), ("get", CLASS_B_USD), ("stat", CLASS_B_USD)):
            monkeypatch.setattr(stage.objects, name, self._priced(getattr(stage.objects, name), price))
        pages = stage.objects.pages
        monkeypatch.setattr(
            stage.objects, "pages", lambda prefix, *rest, **named: self._listed(prefix, pages(prefix, *rest, **named))
        )

    def _priced(self, call: Callable[..., Any], price: float) -> Callable[..., Any]:
        own = (runfiles.baton("one"), runfiles.stop_marker("one"), runfiles.orders("one"))

        def counted(key: str, *given: Any, **named: Any) -> Any:
            if key.startswith(runfiles.BEATS) or key in own:
                self.usd += price
            return call(key, *given, **named)

        return counted

    def _listed(self, prefix: str, pages: Iterator[Any]) -> Iterator[Any]:
        for page in pages:
            self.usd += CLASS_A_USD if prefix.startswith(runfiles.BEATS) else 0.0
            yield page

    def of_a_month(self, hours_s: float = HOURS_S) -> float:
        before = self.usd
        self._stage.run_for(hours_s)
        return (self.usd - before) * MONTH_S / hours_s


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder, Settings(priced=True))
    yield stage
    stage.close()


def computed_usd(stage: Stage, of: Callable[..., BeatCost]) -> float:
    knobs = Knobs("s")
    parts = of(knobs.beat_store_s, 300.0, stage.settings.poll, knobs.stop_poll_s)
    return parts.beats_usd + parts.looks_usd


def live(stage: Stage, push: str = "yes") -> None:
    play_lines(stage, LIVE.format(push=push).strip())


def stored_age_s(stage: Stage) -> float:
    return TrueClock(stage.clock).now() - stage.objects.stat(runfiles.beat("one")).updated


def the_run(stage: Stage) -> Run:
    (run,) = stage.all_rows(RunFilter())
    return run


def attempts(stage: Stage) -> int:
    attempt = the_run(stage).attempt
    assert attempt is not None
    return attempt.number


# --- the figure -------------------------------------------------------------------------------------------------------


def test_without_pushes_the_requests_of_hours_cost_what_the_doctor_computes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a figure that forgets the agent's reads beside each beat is caught."""
    live(stage, push="no")
    counted = pytest.approx(Bill(stage, monkeypatch).of_a_month(), rel=0.01)
    assert computed_usd(stage, beat_cost) == counted
    monkeypatch.setattr(cost, "READS_PER_BEAT", 0)
    assert computed_usd(stage, beat_cost) != counted


def test_with_pushes_the_control_of_a_run_costs_less_than_two_cents_a_month(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run alone, the supervisor's own looks included."""
    live(stage)
    counted = Bill(stage, monkeypatch).of_a_month(12 * 3600.0)
    assert computed_usd(stage, resting_cost) == pytest.approx(counted, rel=0.01)
    assert counted <= CONTROL_USD
    monkeypatch.setattr(Resting, "grant", lambda resting, *_: resting.restart())
    assert Bill(stage, monkeypatch).of_a_month(3600.0) > CONTROL_USD, "without the grant it costs what it did"


# --- and nothing is noticed later -------------------------------------------------------------------------------------


def no_way(*_: object) -> object:
    raise NotReached


def test_a_push_that_fails_brings_a_stored_beat_at_once_and_nothing_ends(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an agent that rests on for an hour without its supervisor would look dead."""
    live(stage)
    assert stored_age_s(stage) > 10 * MINUTE_S
    stage.agent("one").reach.push = no_way
    stage.run_for(15.0)
    assert stored_age_s(stage) <= 15.0
    stage.run_for(20 * MINUTE_S)
    assert attempts(stage) == 1
    monkeypatch.setattr(Rest, "allows", lambda *_: True)
    stage.run_for(6 * MINUTE_S)
    assert attempts(stage) == 2


def test_a_loop_that_hangs_grants_nothing(stage: Stage) -> None:
    """Its process still responds to pushes, and no tick reads them."""
    live(stage)
    stage.next_tick = NEVER
    stage.clock.advance(0.0)
    for _ in range(12):
        stage.next_tick = NEVER
        stage.run_for(10.0)
    assert stored_age_s(stage) <= 60.0


def test_a_new_supervisor_ends_no_run_whose_stored_beats_rest(stage: Stage) -> None:
    live(stage)
    stage.kill()
    stage.start()
    stage.run_for(10 * MINUTE_S)
    assert attempts(stage) == 1


def test_nor_does_one_that_no_push_reaches(stage: Stage) -> None:
    live(stage)
    stage.kill()
    stage.start()
    stage.agent("one").reach.push = no_way
    stage.run_for(10 * MINUTE_S)
    assert attempts(stage) == 1


@pytest.mark.parametrize("priced", [True, False])
def test_a_silent_machine_is_noticed_as_soon_as_ever(folder: Path, priced: bool) -> None:
    stage = Stage(folder, Settings(priced=priced))
    try:
        live(stage)
        stage.agent("one").silent = True
        stage.run_for(170.0)
        assert attempts(stage) == 1
        stage.run_for(60.0)
        assert attempts(stage) == 2 or the_run(stage).status == Status.RECOVERING
    finally:
        stage.close()


def test_a_marker_by_hand_stops_the_run_within_five_minutes(stage: Stage) -> None:
    live(stage)
    stage.objects.put(runfiles.stop_marker("one"), b"")
    stage.run_for(6 * MINUTE_S)
    assert the_run(stage).status == Status.STOPPED


def test_an_old_agent_stores_as_ever_beside_a_supervisor_that_grants(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rest, "acknowledged", lambda *_: None)
    live(stage)
    assert stored_age_s(stage) <= 60.0
    assert attempts(stage) == 1


def test_a_listing_that_fails_when_it_is_needed_ends_nothing_and_delays_little(stage: Stage) -> None:
    """The supervisor loses the pushes and the store at once, then has the store again: what was stored then counts.
    A machine that falls silent in the same way is noticed once its silence has been watched."""
    live(stage)
    push, stage.agent("one").reach.push = stage.agent("one").reach.push, no_way
    stage.own_access.blocked = True
    stage.run_for(10 * MINUTE_S)
    assert attempts(stage) == 1
    stage.own_access.blocked = False
    stage.run_for(10 * MINUTE_S)
    assert (attempts(stage), the_run(stage).status) == (1, Status.RUNNING)
    stage.agent("one").reach.push = push
    stage.run_for(10 * MINUTE_S)
    assert stored_age_s(stage) > 5 * MINUTE_S, "they rest again"
    stage.agent("one").silent, stage.own_access.blocked = True, True
    stage.run_for(10 * MINUTE_S)
    assert attempts(stage) == 1
    stage.own_access.blocked = False
    stage.run_for(260.0)
    assert attempts(stage) == 2 or the_run(stage).status == Status.RECOVERING


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_step_of_the_wall_clock_ends_no_rest_in_a_death(stage: Stage, step_s: float) -> None:
    live(stage)
    stage.clock.step(step_s)
    stage.run_for(10 * MINUTE_S)
    assert (attempts(stage), the_run(stage).status) == (1, Status.RUNNING)
    stage.agent("one").reach.push = no_way
    stage.clock.step(-step_s)
    stage.run_for(10 * MINUTE_S)
    assert (attempts(stage), the_run(stage).status) == (1, Status.RUNNING)


def test_a_wrong_date_of_the_store_after_a_rest_is_no_silence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's Date is an hour fast when the pushes end: the last listing is too old to bound what that says."""
    live(stage)
    pages = stage.objects.pages

    def dated(*given: Any, **named: Any) -> Iterator[Page]:
        for page in pages(*given, **named):
            yield page._replace(server_time=page.server_time + 3600.0)

    monkeypatch.setattr(stage.objects, "pages", dated)
    stage.agent("one").reach.push = no_way
    stage.run_for(10 * MINUTE_S)
    assert (attempts(stage), the_run(stage).status) == (1, Status.RUNNING)


def test_a_database_that_is_away_grants_nothing(stage: Stage) -> None:
    """Its ticks read no beats, although the process still responds to pushes."""
    live(stage)
    stage.rows.down = True
    stage.run_for(5 * MINUTE_S)
    assert stored_age_s(stage) <= 60.0
    stage.rows.down = False
    stage.run_for(10 * MINUTE_S)
    assert (attempts(stage), the_run(stage).status) == (1, Status.RUNNING)


def test_a_store_in_trouble_is_noticed_with_the_next_stop_marker(stage: Stage) -> None:
    live(stage)
    stage.own_access.blocked = True
    stage.run_for(11 * MINUTE_S)
    assert stage.supervisor is not None
    observer = stage.supervisor.tick.observer
    assert observer.store_trouble
    stage.own_access.blocked = False
    stage.run_for(MINUTE_S)
    assert not observer.store_trouble

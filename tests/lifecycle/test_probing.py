"""A zone that has refused gets few requests when its cool-down is over, and all of them after it gave a machine."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import Launch
from supervisor.domain.causes import Cause
from supervisor.domain.machines import OfferKey, ZoneRecord, offer_key
from supervisor.domain.observation import Absent, Observation, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.phases.placing import HELD_S, PROBES, paced
from tests.lifecycle.sample_runs import NOW, run_in
from tests.lifecycle.strategies import offers

PLACES = tuple(offer for offer in offers() if offer.placement.spot)[:1]
KEY = offer_key(PLACES[0].placement)
REFUSED = {KEY: ZoneRecord(3, NOW - 1, "no_capacity", "none left")}
READ = Observation(beat=Absent(), stop=Absent(), baton=Absent())


def waiting(key: int) -> Run:
    return run_in(
        Status.WAITING, key=key, run_id=f"run-{key}", provider="local", policy=Policy(), cause=Cause.NO_CAPACITY,
        waiting=Waiting(since=NOW - 600), next_at=NOW - 1,
    )  # fmt: skip


def decided(runs: list[Run], zones: dict[OfferKey, ZoneRecord]) -> list[Decision]:
    world = World(Knobs("s"), offers={"local": PLACES}, zones=zones)
    decisions = [decide(run, READ, world, NOW) for run in runs]
    return paced(decisions, {run.key: run for run in runs}, zones, NOW)


def launches(decisions: list[Decision]) -> list[int]:
    return [d.run.key for d in decisions if any(isinstance(action, Launch) for action in d.actions)]


def test_few_runs_probe_an_offer_that_has_refused_and_the_others_retry_soon() -> None:
    runs = [waiting(key) for key in range(1, 501)]
    found = decided(runs, REFUSED)
    assert launches(found) == list(range(1, PROBES + 1))
    held = [decision for decision in found if not decision.actions]
    assert len(held) == 500 - PROBES
    assert {(d.run.status, d.run.next_at, d.check_after, d.events) for d in held} == {
        (Status.WAITING, NOW + HELD_S, NOW + HELD_S, ())
    }


def test_all_runs_may_request_an_offer_that_has_not_refused() -> None:
    assert len(launches(decided([waiting(key) for key in range(1, 51)], {}))) == 50


def test_calls_that_are_under_way_count_and_their_repeats_are_never_held_back() -> None:
    asked = [decision.run for decision in decided([waiting(key) for key in range(1, 3)], REFUSED)]
    again = [decide(run, replace(READ, machine=Absent()), World(Knobs("s"), zones=REFUSED), NOW) for run in asked]
    others = [waiting(key) for key in range(3, 11)]
    world = World(Knobs("s"), offers={"local": PLACES}, zones=REFUSED)
    new = [decide(run, READ, world, NOW) for run in others]
    found = paced([*new, *again], {run.key: run for run in [*asked, *others]}, REFUSED, NOW)
    assert launches(found) == [3, 1, 2]


def test_a_run_that_is_held_back_for_the_first_time_says_why() -> None:
    fresh = [replace(waiting(key), status=Status.PENDING, cause=None, next_at=None) for key in range(1, 6)]
    told = [event.text for decision in decided(fresh, REFUSED)[PROBES:] for event in decision.events]
    assert told == ["Waiting: no_capacity. none left. Nothing is billed."] * (5 - PROBES)

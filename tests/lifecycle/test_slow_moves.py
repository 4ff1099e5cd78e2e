"""`on_slow: move`: a throttled run moves once at its next checkpoint where that pays, and says why where it stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.baton import Baton, Holder
from supervisor.contract.signs import LOADER, THROTTLED, Signs, Slow, encode
from supervisor.domain.attempt import Moving
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import MACHINES, Absent, Observation, Seen, Unknown, World
from supervisor.domain.policies import Limits, Policy
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.wording.attempt import ended_text
from supervisor.wording.run import status_text
from tests.lifecycle.sample_runs import NOW, WORLD, ZONES, H, attempt, beat_of, machine_of, place, pulse, run_in

HOT = encode(Signs(slow=(Slow(THROTTLED, (64.0, 0.5, 88.0)),)))
POLICY = Policy(zones=ZONES, shapes=("g2-standard-8",), on_slow="move")
LIVE = attempt(training_at=NOW - 7700)  # five minutes from the request to the training
BATON = Baton("the-supervisor", 1, None, Holder(4, "1.4.1", "m", False), None, None, None)


def offers(*places: Placement) -> World:
    given = {"gce": tuple(Offer(each, 0.5, 1.0) for each in places)}
    return replace(WORLD, offers=given, sources={"gce": MACHINES})


ELSEWHERE = offers(*(place(zone) for zone in ZONES))


def trains(*, signs: str = HOT, step: int = 5000, checkpoint: int | None = 4000, **fields: Any) -> Run:
    told = pulse(
        step=step, total=23_000, steps_per_s=1.0, checkpoint_step=checkpoint, signs=signs,
        first_progress_at=NOW - 5000, progress_at=NOW - 8,
    )  # fmt: skip
    return run_in(Status.RUNNING, **{"attempt": LIVE, "pulse": told, "policy": POLICY, "reported": True, **fields})


def seen(run: Run, **fields: Any) -> Observation:
    assert run.pulse is not None
    told = {
        "step": run.pulse.step, "total": run.pulse.total, "checkpoint_step": run.pulse.checkpoint_step,
        "steps_per_s": run.pulse.steps_per_s, "signs": run.pulse.signs, **fields,
    }  # fmt: skip
    beat = beat_of(LIVE, run.pulse.sequence + 1, **told)
    return Observation(Seen(machine_of(LIVE), 1.0, "listing"), Seen(beat, 5.0, "push"), baton=Seen(BATON))


def decided(run: Run, world: World = ELSEWHERE, now: float = NOW, **fields: Any) -> Decision:
    return decide(run, seen(run, **fields), world, now)


def planned(world: World = ELSEWHERE, **fields: Any) -> Run:
    decision = decided(trains(**fields), world)
    assert decision.run.moving.after_step == 4000
    return decision.run


def test_it_plans_says_so_with_its_figures_and_acts_at_the_next_checkpoint() -> None:
    """Five hours are left at this pace; half of them is lost to the heat."""
    decision = decided(trains())
    [event] = decision.events
    assert event.text == (
        "The GPU is throttled, at 50 % of its usual pace and 88 °C. The run moves at its next checkpoint: "
        "a move saves 2 h 30 min of the 5 h that are left, and takes 5 min."
    )
    figures = {"found": "on_slow moves", "share": 0.5, "left_s": 18_000, "saves_s": 9000, "takes_s": 300}
    assert figures.items() <= event.data.items()
    assert decision.run.live_attempt is not None
    assert "88 °C (`on_slow`); it moves at its next checkpoint. " in status_text(decision.run, NOW)
    again = decided(decision.run, now=NOW + 30)
    assert (again.events, again.actions, again.run.moving) == ((), (), decision.run.moving)

    moved = decided(decision.run, now=NOW + 60, checkpoint_step=5000)
    assert moved.run.status == Status.RECOVERING
    assert moved.run.attempt is not None
    assert (moved.run.attempt.cause, moved.run.avoid_zone) == (Cause.SUPERSEDED, "us-east1-d")
    assert moved.run.moving == Moving(None, NOW + 60, 1.0)
    assert moved.run.counters == decision.run.counters
    [machine] = moved.run.retiring
    assert machine.until == NOW + 60 + WORLD.knobs.notice_overlap_s, "it goes on until the next one takes over"
    [event] = moved.events
    why = "moved at checkpoint 5,000: its GPU was throttled to 50 % of the usual pace; that saves 2 h 30 min"
    assert f"{why} and takes 5 min. " in event.text
    assert "Restarting in us-east1-b" in event.text
    assert ended_text(moved.run.attempt, NOW + 60).startswith("The run left us-east1-d after 2 h 12 min: moved at")


@pytest.mark.parametrize(
    "run",
    [
        trains(policy=replace(POLICY, on_slow="off")),
        trains(signs=encode(Signs(slow=(Slow(LOADER, (97.0, 40.0)),)))),
        trains(signs=encode(Signs(slow=(Slow(THROTTLED, (64.0, None, 88.0)),)))),
        trains(signs=""),
    ],
)
def test_what_is_not_throttled_or_not_wanted_changes_nothing(run: Run) -> None:
    for moving in (Moving(), Moving(after_step=100)):
        decision = decided(replace(run, moving=moving), checkpoint_step=5000)
        assert decision.run.live_attempt is not None
        assert decision.actions == ()
        assert moving.after_step is not None or decision.events == ()


@pytest.mark.parametrize("part", ["machine", "beat"])
@pytest.mark.parametrize("lost", [Unknown("not read"), Absent(1.0)])
def test_without_a_reading_nothing_moves(part: str, lost: Any) -> None:
    """Broken variant: the pulse of an earlier beat decided, which already had the checkpoint."""
    run = trains(moving=Moving(after_step=100))
    obs = replace(seen(run), **{part: lost, "lookup": Unknown("not read")})
    decision = decide(run, obs, ELSEWHERE, NOW)
    assert decision.run.live_attempt is not None
    assert decision.actions == ()
    assert decision.run.moving == run.moving


def test_a_stop_wins() -> None:
    run = trains(moving=Moving(after_step=100), stop=StopRequest("ops", NOW - 1))
    decision = decided(run, checkpoint_step=5000)
    assert decision.run.status == Status.STOPPING
    assert decision.run.retiring == ()


# --- it stays ---------------------------------------------------------------------------------------------------------

STAYS = "The GPU is throttled, at 50 % of its usual pace and 88 °C. The run stays: "
BUSY = replace(ELSEWHERE, zones={
    offer_key(place(zone)): ZoneRecord(1, NOW + 300, "no_capacity", "none") for zone in ZONES if zone != "us-east1-d"
})  # fmt: skip
OTHER_SHAPE = offers(place("us-east1-d"), Placement("gce", "us-east1", "us-east1-b", "n1-small", True))
ON_DEMAND = offers(place("us-east1-d"), replace(place("us-east1-b"), spot=False))


@pytest.mark.parametrize(
    ("run", "world", "why"),
    [
        (trains(step=22_500), ELSEWHERE, "a move must save 2 times what it takes; a move saves 4 min 10 s of"),
        (
            trains(policy=replace(POLICY, limits=Limits(max_runtime_s=8100.0))),
            ELSEWHERE,
            "a move must save 2 times what it takes; a move saves 3 min 20 s of the 6 min 40 s",
        ),
        (trains(policy=replace(POLICY, limits=Limits(deadline=NOW + 600))), ELSEWHERE, "a move must save 2 times"),
        (
            trains(step=23_000, attempt=replace(LIVE, training_at=LIVE.requested_at)),
            ELSEWHERE,
            "a move must save 2 times",
        ),
        (trains(), BUSY, "no other zone has a free spot g2-standard-8 now"),
        (trains(), offers(place("us-east1-d")), "no other zone has a free spot g2-standard-8 now"),
        (trains(), ON_DEMAND, "no other zone has a free spot g2-standard-8 now"),
        (trains(), OTHER_SHAPE, "no other zone has a free spot g2-standard-8 now"),
        (trains(moving=Moving(moved_at=NOW - 2 * H, pace=0.1)), ELSEWHERE, "it moved 2 h ago, and moves once in 6 h"),
        (
            trains(moving=Moving(moved_at=NOW - 9 * H, pace=1.9)),
            ELSEWHERE,
            "its last move brought no better pace than 1.9 steps/s",
        ),
    ],
)
def test_it_stays_and_says_why_once(run: Run, world: World, why: str) -> None:
    decision = decided(run, world)
    [event] = decision.events
    assert event.text.startswith(STAYS + why)
    assert decision.run.moving.after_step is None
    again = decided(decision.run, world, NOW + 30)
    assert (again.events, again.run.live_attempt is None) == ((), False)


def test_after_a_move_that_helped_it_may_move_again() -> None:
    assert planned(moving=Moving(moved_at=NOW - 9 * H, pace=1.0)).moving.after_step == 4000


def test_without_a_total_and_a_limit_four_hours_are_assumed() -> None:
    run = trains()
    assert run.pulse is not None
    [event] = decided(replace(run, pulse=replace(run.pulse, total=None))).events
    assert "a move saves 2 h of the 4 h that are left" in event.text


def test_before_its_first_checkpoint_it_moves_at_that_one() -> None:
    first = decided(trains(checkpoint=None))
    assert first.run.moving.after_step == -1
    moved = decided(first.run, now=NOW + 60, checkpoint_step=0)
    assert moved.run.status == Status.RECOVERING


def test_a_card_that_recovers_ends_the_plan() -> None:
    decision = decided(planned(), signs="", checkpoint_step=5000)
    [event] = decision.events
    assert event.text == "The GPU is not throttled any more: the run stays where it is."
    assert decision.run.moving.after_step is None
    assert decision.run.live_attempt is not None
    back = decided(decision.run, now=NOW + 60, signs=HOT)
    assert back.run.moving.after_step == 5000
    assert back.events == (), "the same in one attempt is said once"


def test_where_the_zones_fill_up_meanwhile_the_plan_waits_for_another_checkpoint() -> None:
    waits = decided(planned(), BUSY, checkpoint_step=5000)
    assert (waits.events, waits.run.moving.after_step) == ((), 5000)
    moved = decided(waits.run, ELSEWHERE, NOW + 60, checkpoint_step=6000)
    assert moved.run.status == Status.RECOVERING


def test_a_plan_that_does_not_pay_any_more_is_given_up() -> None:
    decision = decided(planned(), step=22_900, checkpoint_step=22_900)
    assert decision.events[0].text.startswith(STAYS + "a move must save")
    assert (decision.run.moving.after_step, decision.run.status) == (None, Status.RUNNING)

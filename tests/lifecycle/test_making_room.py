"""Who yields its machine to a run of a higher priority: the one whose machine is missing, and only where it may."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract.heartbeat import CHECKPOINT, Exit
from supervisor.domain.actions import AskAgentToStop, Release
from supervisor.domain.attempt import Drills, Retiring, Try, Yielding
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, How, Meter, Offer, Placement, Quota, ZoneRecord, offer_key
from supervisor.domain.observation import MACHINES, Absent, Observation, Part, Seen, Unknown, World
from supervisor.domain.policies import KeepRule, Knobs, Policy
from supervisor.domain.profile import Fact, Profile, Source
from supervisor.domain.run import Person, Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.offers.making_room import LOOKED_AT, PAUSE_S, with_room
from supervisor.services.runs.heartbeat import stopping_generations
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, beat_of, machine_of, place, pulse, run_in
from tests.properties import examples

HERE, THERE = place("us-east1-d"), place("us-east1-b")
POLICY = Policy(zones=("us-east1-d", "us-east1-b"), shapes=("g2-standard-8",))
FULL = replace(
    WORLD,
    knobs=replace(WORLD.knobs, max_parallel_runs=1),
    offers={"gce": (Offer(HERE, 0.5, 1.0), Offer(THERE, 0.5, 1.0))},
    sources={"gce": MACHINES},
)
OPEN = replace(FULL, knobs=WORLD.knobs)


def trains(key: int = 1, zone: str = "us-east1-d", **fields: object) -> Run:
    """It has trained for an hour, and its newest checkpoint is `key` minutes old."""
    live = attempt(zone=zone, training_at=NOW - H, step_from=100)
    told = pulse(
        step=900, checkpoint_step=800, checkpoint_at=NOW - 60 * key, first_progress_at=NOW - H, progress_at=NOW
    )
    values = {"policy": POLICY, "attempt": live, "pulse": told, "reported": True, **fields}
    return run_in(Status.RUNNING, key=key, run_id=f"run-{key}", **values)


def waits(key: int = 50, cause: Cause = Cause.MACHINE_LIMIT, priority: int = 5, **fields: object) -> Run:
    values = {"policy": replace(POLICY, priority=priority), "cause": cause, **fields}
    return run_in(Status.WAITING, key=key, run_id=f"run-{key}", **values)


def pairs(runs: Sequence[Run], world: World = FULL, capacity: Capacity | None = None) -> dict[int, int]:
    """Run that yields -> run that it yields to."""
    capacities = {} if capacity is None else {"gce": capacity}
    return {key: each.to for key, each in with_room(world, runs, capacities, NOW).yields.items()}


def quota(*places: Placement, cause: str = "quota") -> World:
    return replace(OPEN, zones={offer_key(each): ZoneRecord(1, NOW + 500, cause, "limit") for each in places})


# --- who yields -------------------------------------------------------------------------------------------------------


def test_the_lowest_priority_yields_and_of_equals_the_freshest_checkpoint() -> None:
    runs = [trains(1, policy=replace(POLICY, priority=1)), trains(3), trains(2), waits()]
    assert pairs(runs, replace(FULL, knobs=replace(FULL.knobs, max_parallel_runs=3))) == {2: 50}
    assert pairs([trains(policy=replace(POLICY, priority=5)), waits()]) == {}, "an equal one does not yield"
    assert pairs([trains(), waits(priority=0)]) == {}


CAP = Fact(43_200.0, Source.DOCUMENTED, "2027-01-15", "tests")
OLD = Retiring(attempt().ref, "1.3.1", NOW - 5, NOW - 5)


@pytest.mark.parametrize(
    "run",
    [
        trains(policy=replace(POLICY, min_run_s=H + 1)),
        trains(policy=replace(POLICY, keep=KeepRule(machine=True))),
        trains(pulse=pulse(checkpoint_step=100, checkpoint_at=NOW)),
        trains(pulse=pulse(checkpoint_step=None)),
        trains(pulse=replace(trains().pulse, beat_at=NOW - 1000)),  # type: ignore[type-var]
        trains(pulse=replace(trains().pulse, phase=CHECKPOINT)),  # type: ignore[type-var]
        trains(pulse=replace(trains().pulse, launch_id="1.3.1")),  # type: ignore[type-var]
        trains(stop=StopRequest("ops", NOW)),
        trains(hold="its baton is torn"),
        trains(drills=Drills(launch_id="1.4.1", number=1)),
        trains(retiring=(OLD,)),
        replace(trains(), status=Status.FINISHING),
    ],
)
def test_a_run_that_may_not_yields_nothing(run: Run) -> None:
    """Broken variant: each line of `may_yield` that is left out."""
    assert pairs([run, waits()]) == {}


@pytest.mark.parametrize(
    "world",
    [
        replace(FULL, unread=frozenset({"us-east1-d"})),
        replace(FULL, irreplaceable=frozenset({"gce"})),
        replace(FULL, meters={("gce", "us-east1-d"): Meter(How.COMMAND, "off", ("off",))}),
        replace(FULL, quotas={("gce", "g2-standard-8"): Quota("GPU hours", NOW, 5.0)}),
        replace(FULL, profiles={("gce", "us-east1-d"): Profile("g", "G", session_cap_s=CAP)}),
    ],
)
def test_a_machine_that_cannot_be_had_back_stays(world: World) -> None:
    assert pairs([trains(), waits()], world) == {}


@pytest.mark.parametrize(
    "run", [waits(hold="its baton is torn"), waits(person=Person("its code is broken", NOW)), waits(retiring=(OLD,))]
)
def test_no_machine_is_given_to_a_run_that_cannot_take_it(run: Run) -> None:
    """Its own old machine counts as one more of the limit."""
    world = replace(FULL, knobs=replace(FULL.knobs, max_parallel_runs=2)) if run.retiring else FULL
    assert pairs([trains(), run], world) == {}


# --- whom it helps ----------------------------------------------------------------------------------------------------


def test_a_limit_of_an_owner_is_freed_by_that_owner_alone() -> None:
    world = replace(OPEN, knobs=replace(WORLD.knobs, max_parallel_per_owner=1))
    assert pairs([trains(owner="bob"), trains(2), waits()], world) == {2: 50}
    assert pairs([trains(owner="bob"), waits()], world) == {}


def test_a_quota_is_freed_by_a_machine_of_that_very_offer() -> None:
    short = waits(cause=Cause.QUOTA, next_at=NOW + 500)
    both = quota(HERE, THERE)
    assert pairs([trains(), trains(2, "us-east1-b"), short], both) == {1: 50}
    elsewhere = replace(short, policy=replace(short.policy, zones=("us-east1-b",)))
    assert pairs([trains(), elsewhere], both) == {}
    assert pairs([trains(), short], quota(HERE)) == {}, "the other zone may have a machine"
    assert pairs([trains(), short], quota(HERE, THERE, cause="no_capacity")) == {}, "a stock-out is not ours to end"


def test_a_full_computer_is_freed_where_the_machine_was() -> None:
    queued = waits(cause=Cause.QUEUED)
    assert pairs([trains(), queued], OPEN, Capacity(machines=0)) == {1: 50}
    assert pairs([trains(), queued], OPEN, Capacity(zones={"us-east1-d": 0, "us-east1-b": 0})) == {1: 50}
    assert pairs([trains(), queued], OPEN, Capacity(machines=-1)) == {}, "one machine less is not enough"
    assert pairs([trains(), queued], OPEN) == {}, "the listing was not read"
    cards = Capacity(cards=1, cards_of={"g2-standard-8": 2}, all_cards=4)
    assert pairs([trains(), queued], OPEN, cards) == {1: 50}


def test_one_yields_to_one_waiting_run() -> None:
    world = replace(FULL, knobs=replace(FULL.knobs, max_parallel_runs=3))
    running = [trains(1), trains(2), trains(3)]
    assert pairs([*running, waits()], world) == {1: 50}
    assert pairs([*running, waits(), waits(51, priority=6)], world) == {1: 51, 2: 50}


def test_of_many_that_wait_the_first_are_looked_at_in_one_tick() -> None:
    count = LOOKED_AT + 5
    runs = [trains(key) for key in range(1, count + 1)] + [waits(100 + key) for key in range(count)]
    served = pairs(runs, replace(FULL, knobs=replace(FULL.knobs, max_parallel_runs=count))).values()
    assert sorted(served) == [100 + key for key in range(LOOKED_AT)]


def test_a_run_that_one_yields_to_already_gets_no_second_machine() -> None:
    """Broken variant: nothing remembers whom it yielded to."""
    world = replace(FULL, knobs=replace(FULL.knobs, max_parallel_runs=2))
    leaving = trains(1, yielding=Yielding("1.4.1", 50, NOW - 60))
    assert pairs([leaving, trains(2), waits()], world) == {}
    assert pairs([leaving, waits(51)]) == {}, "no run yields twice"
    later = trains(1, yielding=Yielding("1.3.1", 50, NOW - 60, gone_at=NOW - 30))
    assert pairs([later, trains(2), waits()], world) == {}
    long_ago = replace(later, yielding=replace(later.yielding, at=NOW - PAUSE_S - 1))
    assert pairs([long_ago, trains(2), waits()], world) == {1: 50}


def test_a_machine_that_leaves_anyway_is_waited_for() -> None:
    over = trains(1)
    assert over.attempt is not None
    item = Retiring(over.attempt.ref, "1.4.1", NOW - 5, NOW - 5, "done")
    over = replace(over, status=Status.COMPLETED, attempt=replace(over.attempt, ended_at=NOW - 5), retiring=(item,))
    world = replace(FULL, knobs=replace(FULL.knobs, max_parallel_runs=2))
    assert pairs([over, trains(2), waits()], world) == {}
    assert pairs([over, trains(2), waits(), waits(51)], world) == {2: 51}


def test_a_yielded_quota_is_asked_for_once_more() -> None:
    short = waits(cause=Cause.QUOTA, next_at=NOW + 500, policy=replace(POLICY, priority=5, zones=("us-east1-d",)))
    given = trains(yielding=Yielding("1.3.1", 50, NOW - 60, place=HERE, gone_at=NOW - 5))
    world = with_room(quota(HERE, THERE), [given, short], {}, NOW)
    assert world.freed == {50: offer_key(HERE)}
    read = Observation(stop=Absent(), baton=Absent())
    assert decide(short, read, world, NOW).run.status == Status.LAUNCHING
    assert decide(short, read, replace(world, freed={}), NOW).run.status == Status.WAITING
    call = Try(1, 1, "1.1.1", "m", HERE, NOW - 4, ended_at=NOW - 3)
    asked = replace(short, try_=call)
    assert with_room(quota(HERE, THERE), [given, asked], {}, NOW).freed == {}, "it has asked since"


# --- the run itself ---------------------------------------------------------------------------------------------------


def seen(run: Run, machine: Part | None = None, **fields: object) -> Observation:  # type: ignore[type-arg]
    assert run.attempt is not None
    assert run.pulse is not None
    told = {"step": 901, "checkpoint_step": 800, **fields}
    beat = Seen(beat_of(run.attempt, run.pulse.sequence + 1, **told), 5.0, "push")
    listed = Seen(machine_of(run.attempt), 1.0, "listing") if machine is None else machine
    return Observation(listed, beat, baton=Absent())


def ordered() -> Run:
    world = with_room(FULL, [trains(), waits()], {}, NOW)
    run = trains()
    decision = decide(run, seen(run), world, NOW)
    assert decision.actions == (AskAgentToStop(run.attempt.ref),)  # type: ignore[union-attr]
    [event] = decision.events
    assert event.text == (
        "It gives its machine to a run of a higher priority: run-50 of priority 5 waits (machine_limit), and this one "
        "has 0. It saves, and goes back to the queue."
    )
    return decision.run


def test_the_order_stands_in_the_row_and_is_repeated_until_the_agent_has_left() -> None:
    run = ordered()
    assert run.yields
    assert stopping_generations([run]) == {"run-1": "1.4.1"}, "a push answers it, to this launch alone"
    again = decide(run, seen(run), FULL, NOW + 30)
    assert (again.run.status, len(again.actions), again.events) == (Status.RUNNING, 1, ())
    left = decide(run, seen(run, left="stopped", checkpoint_step=901), FULL, NOW + 60)
    after = left.run
    assert (after.status, after.cause, after.counters) == (Status.RECOVERING, Cause.YIELDED, run.counters)
    assert after.files.checkpoint_step == 901
    assert not after.yields


def test_the_exit_that_our_own_term_made_is_no_failure() -> None:
    """Broken variant: the exit code 1 after TERM ended the attempt as a failure of the command."""
    run = ordered()
    gone = Exit(1, None, True, 100.0, "terminated")
    goes_on = decide(run, seen(run, exit=gone), FULL, NOW + 30)
    assert goes_on.run.attempt is not None
    assert goes_on.run.attempt.cause in (None, Cause.YIELDED)


def test_it_ends_when_the_time_to_save_is_over() -> None:
    run = ordered()
    later = decide(run, seen(run), FULL, NOW + run.policy.stop_grace_s + 1)
    assert later.run.cause == Cause.YIELDED
    assert any(isinstance(action, Release) for action in decide(later.run, replace(seen(run), retiring=(
        Seen(machine_of(run.attempt)),)), FULL, NOW + 200).actions)  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize("machine", [Unknown("timed out"), Absent(1.0), Seen(machine_of(attempt()), 500.0, "listing")])
def test_without_a_fresh_reading_nobody_yields(machine: Part) -> None:  # type: ignore[type-arg]
    world = with_room(FULL, [trains(), waits()], {}, NOW)
    run = trains()
    decision = decide(run, replace(seen(run, machine), lookup=Unknown("not read")), world, NOW)
    assert not decision.run.yields
    assert not any(isinstance(action, AskAgentToStop) for action in decision.actions)
    blind = decide(run, replace(seen(run), beat=Unknown("down")), world, NOW)
    assert not blind.run.yields


def test_the_run_judges_the_order_by_what_was_read_in_this_tick() -> None:
    world = with_room(FULL, [trains(), waits()], {}, NOW)
    run = trains()
    assert decide(run, seen(run), world, NOW).run.yields
    assert not decide(run, seen(run, phase=CHECKPOINT), world, NOW).run.yields


# --- properties -------------------------------------------------------------------------------------------------------

RUNNING = st.builds(
    lambda key, zone, priority, owner: trains(
        key, zone, owner=owner, policy=replace(POLICY, priority=priority, min_run_s=600.0 * (key % 9))
    ),
    st.integers(1, 40), st.sampled_from(("us-east1-d", "us-east1-b")), st.sampled_from((0, 0, 3)),
    st.sampled_from(("ann", "bob")),
)  # fmt: skip
WAITING = st.builds(
    lambda key, cause, priority, owner: waits(key, cause, priority, owner=owner),
    st.integers(50, 80), st.sampled_from((Cause.MACHINE_LIMIT, Cause.QUOTA, Cause.QUEUED, Cause.NO_CAPACITY)),
    st.sampled_from((0, 3, 5)), st.sampled_from(("ann", "bob")),
)  # fmt: skip


def unique(runs: Sequence[Run]) -> list[Run]:
    return list({run.key: run for run in runs}.values())


@given(st.lists(RUNNING, max_size=6).map(unique), st.lists(WAITING, max_size=5).map(unique), st.booleans())
@settings(max_examples=examples(50, 2000))
def test_a_yield_is_down_the_ladder_and_one_for_each(running: list[Run], waiting: list[Run], is_full: bool) -> None:
    most = len(running) if is_full else 0
    world = replace(quota(HERE, THERE) if not is_full else FULL, knobs=Knobs("s", max_parallel_runs=most))
    runs = {run.key: run for run in (*running, *waiting)}
    found = pairs([*running, *waiting], world, Capacity(machines=0))
    assert len(set(found.values())) == len(found)
    for key, to in found.items():
        assert runs[key].policy.priority < runs[to].policy.priority
        assert runs[key].policy.min_run_s <= H
        assert runs[to].cause != Cause.NO_CAPACITY


def test_runs_without_priorities_cost_nothing_and_with_them_little() -> None:
    """Measured beside a tenth of them."""

    training = trains()

    def cost_s(count: int, priority: int) -> float:
        runs = [waits(key, priority=priority * (key % 3)) for key in range(count)]
        runs += [replace(training, key=key) for key in range(count)]
        return min(timed(lambda: with_room(FULL, runs, {}, NOW)) for _ in range(2))

    assert cost_s(1_000, 0) < 0.2
    assert cost_s(1_000, 1) < 40 * cost_s(100, 1) + 0.2


def timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began

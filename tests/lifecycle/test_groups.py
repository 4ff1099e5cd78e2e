"""Groups: at most max_parallel runs with a machine, first come, first served; and runs that start after others."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity
from supervisor.domain.observation import Observation, World
from supervisor.domain.policies import Knobs, Limits, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.offers import groups
from supervisor.lifecycle.offers.groups import awaited, limit_of, with_groups
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.wording.forecast import needs_person
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import NOW
from tests.lifecycle.sweep_model import COOL, OFFERS, READ, Sweep, member
from tests.lifecycle.worlds import offers
from tests.properties import examples


def launching(sweep: Sweep) -> list[int]:
    return [key for key, run in sweep.runs.items() if run.status == Status.LAUNCHING]


def waits(sweep: Sweep, key: int) -> tuple[Status, Cause | None]:
    return sweep.runs[key].status, sweep.runs[key].cause


# --- slots ------------------------------------------------------------------------------------------------------------


def test_free_slots_go_to_the_runs_that_were_submitted_first() -> None:
    sweep = Sweep([member(key) for key in (4, 2, 3, 1)], 2)
    sweep.tick()
    assert sorted(launching(sweep)) == [1, 2]
    assert {waits(sweep, key) for key in (3, 4)} == {(Status.WAITING, Cause.GROUP_LIMIT)}


def test_the_sentence_says_what_the_run_waits_for() -> None:
    sweep = Sweep([member(1, 1), member(2, 1)], 1)
    sweep.tick()
    run = sweep.runs[2]
    assert status_text(run, sweep.now) == (
        "Waiting since 12:00 UTC: 1 run of group sweep may have a machine at once, and others come first. Nothing is "
        "billed. Next: it starts when it is first in its group and a machine of the group is gone."
    )
    assert next_action(run, sweep.now).what == "wait for a slot"
    assert needs_person(run) == ""


def test_the_smallest_limit_of_the_live_runs_counts() -> None:
    over = replace(member(1, 1), status=Status.COMPLETED)
    assert limit_of([over, member(2, 4), member(3, 3), member(4, None)]) == 3
    assert limit_of([over, member(4, None)]) is None


def test_a_group_without_a_limit_starts_all_its_runs() -> None:
    sweep = Sweep([member(key, None) for key in range(1, 6)], 5)
    sweep.tick()
    assert len(launching(sweep)) == 5


def test_another_owners_group_of_the_same_name_is_another_group() -> None:
    sweep = Sweep([member(1, 1), replace(member(2, 1), owner="eve")], 2)
    sweep.tick()
    assert launching(sweep) == [1, 2]


def test_a_preempted_run_keeps_its_slot_while_it_waits_for_capacity() -> None:
    sweep = Sweep([member(1, 1), member(2, 1)], 1)
    sweep.tick()
    sweep.obtain(1)
    sweep.preempt(1)
    sweep.gone(1)
    sweep.weather(0)
    for _ in range(3):
        sweep.tick()
    assert waits(sweep, 1) == (Status.WAITING, Cause.NO_CAPACITY)
    assert waits(sweep, 2) == (Status.WAITING, Cause.GROUP_LIMIT)


def test_a_machine_that_is_not_gone_keeps_its_slot() -> None:
    sweep = Sweep([member(1, 1), member(2, 1)], 1)
    sweep.tick()
    sweep.obtain(1)
    sweep.complete(1)
    sweep.tick()
    assert launching(sweep) == []
    sweep.gone(1)
    sweep.tick()
    assert launching(sweep) == [2]


def test_as_many_runs_as_there_are_slots_wait_for_capacity_and_the_others_for_the_group() -> None:
    sweep = Sweep([member(key) for key in range(1, 6)], 2)
    sweep.weather(0)
    sweep.tick()
    causes = [sweep.runs[key].cause for key in range(1, 6)]
    assert causes == [Cause.NO_CAPACITY] * 2 + [Cause.GROUP_LIMIT] * 3


def test_a_run_without_an_offer_lets_a_later_one_pass() -> None:
    """Its zone has no capacity, or its quota is 0: with one slot it must not hold up the whole sweep."""
    picky = member(1, 1)
    picky = replace(picky, policy=replace(picky.policy, zones=("zone-a",)))
    cooling = {key: record for key, record in COOL.items() if key[1] == "zone-a"}
    assert cooling
    world = World(Knobs("s", cooldown_max_s=1e7), offers=OFFERS, zones=cooling)
    runs = [picky, member(2, 1), member(3, 1)]
    world = with_groups(world, runs, {}, NOW)
    found = [decide(run, READ, world, NOW).run for run in runs]
    assert [(run.status, run.cause) for run in found] == [
        (Status.WAITING, Cause.NO_CAPACITY),
        (Status.LAUNCHING, None),
        (Status.WAITING, Cause.GROUP_LIMIT),
    ]


def test_a_run_on_hold_comes_last() -> None:
    sweep = Sweep([member(1, 1, hold="the image cannot be looked up"), member(2, 1)], 1)
    sweep.tick()
    assert launching(sweep) == [2]


def test_a_waiting_member_requests_nothing_reads_nothing_and_is_not_written_again() -> None:
    runs = [member(1, 1), member(2, 1)]
    world = World(Knobs("s"), offers=OFFERS)
    runs[0] = decide(runs[0], READ, with_groups(world, runs, {}, NOW), NOW).run
    world = with_groups(world, runs, {}, NOW)
    first = decide(runs[1], Observation(), world, NOW)
    assert (first.wants, first.actions, first.lessons) == (frozenset(), (), ())
    assert [event.text for event in first.events] == [
        "Waiting: 1 run of group sweep may have a machine at once, and others come first. Nothing is billed."
    ]
    again = decide(first.run, Observation(), world, NOW + 30)
    assert again.run is first.run
    assert again.events == ()


def test_no_limit_of_waiting_counts_while_it_waits_for_its_group() -> None:
    limits = Limits(wait_for_capacity_s=100.0)
    runs = [replace(run, policy=replace(run.policy, limits=limits)) for run in (member(1, 1), member(2, 1))]
    sweep = Sweep(runs, 1)
    for _ in range(50):
        sweep.tick()
    assert waits(sweep, 2) == (Status.WAITING, Cause.GROUP_LIMIT)
    sweep.obtain(1)
    sweep.complete(1)
    sweep.gone(1)
    sweep.weather(0)
    sweep.tick()
    assert (sweep.runs[2].cause, sweep.runs[2].waiting.since) == (Cause.NO_CAPACITY, sweep.now)


def test_a_run_without_a_slot_takes_no_capacity_of_our_own_machines_from_others() -> None:
    """The first two runs are of a full group, and the third is of none."""
    busy = Sweep([member(1, 1), member(2, 1)], 1)
    busy.tick()
    members = [busy.runs[1], busy.runs[2], replace(member(3), policy=Policy())]
    capacities = {"local": Capacity(machines=2)}
    world = with_groups(World(Knobs("s"), offers=OFFERS), members, capacities, NOW)
    world = with_queue(world, members, capacities, lambda _: False, NOW)
    assert set(world.may_launch) == {3}


def test_ten_thousand_waiting_members_cost_one_pass() -> None:
    """Measured beside a tenth of them: neither the square of their number nor a choice of zones for each."""

    def cost_s(count: int) -> float:
        runs = [replace(member(key), status=Status.WAITING, cause=Cause.GROUP_LIMIT) for key in range(1, count)]
        world = World(Knobs("s"), offers={"local": offers()}, zones=COOL)
        times = []
        for _ in range(3):
            began = time.process_time()
            with_groups(world, runs, {}, NOW)
            times.append(time.process_time() - began)
        return min(times)

    assert cost_s(10_000) < 25 * cost_s(1_000)


# --- after other runs -------------------------------------------------------------------------------------------------


def after(sweep: Sweep) -> Run:
    sweep.tick()
    return sweep.runs[2]


def chain(first: Status) -> Sweep:
    """cell-2 starts after cell-1, which has this status."""
    before = replace(member(1, None), status=first, settled=True)
    return Sweep([before, member(2, None, ("cell-1",))], 2)


def test_a_run_starts_when_the_run_before_it_is_completed() -> None:
    assert after(chain(Status.COMPLETED)).status == Status.LAUNCHING


def test_a_run_waits_while_the_run_before_it_is_not_over() -> None:
    run = after(chain(Status.RUNNING))
    assert (run.status, run.cause) == (Status.WAITING, Cause.DEPENDENCY)
    assert status_text(run, NOW + 30) == (
        "Waiting since 12:00 UTC: it starts when cell-1 is completed. Nothing is billed. "
        "Next: it starts by itself after that."
    )


@pytest.mark.parametrize("status", [Status.FAILED, Status.STOPPED, Status.PARTIAL])
def test_a_run_after_one_that_ended_otherwise_waits_for_a_person(status: Status) -> None:
    run = after(chain(status))
    assert (run.status, run.cause) == (Status.WAITING, Cause.DEPENDENCY_FAILED)
    assert status_text(run, NOW + 30) == (
        f"Waiting since 12:00 UTC: it starts after cell-1, which is {status}; resume that run, or stop this one. "
        "Nothing is billed. Next: nothing before you act."
    )
    assert needs_person(run) == f"it starts after cell-1, which is {status}; resume that run, or stop this one"
    assert next_action(run, NOW).what == "needs you"


def test_a_resume_of_the_failed_run_lets_it_go_on() -> None:
    sweep = chain(Status.FAILED)
    after(sweep)
    sweep.resume(1)
    assert after(sweep).cause == Cause.DEPENDENCY
    sweep.obtain(1)
    sweep.complete(1)
    assert after(sweep).status == Status.LAUNCHING


def test_what_was_not_read_is_not_completed() -> None:
    run = member(2, None, ("cell-1",))
    assert awaited([run]) == {"cell-1"}
    world = with_groups(World(Knobs("s"), offers=OFFERS), [run], {}, NOW)
    found = decide(run, READ, world, NOW)
    assert (found.run.cause, found.actions) == (Cause.DEPENDENCY, ())


def test_a_run_that_has_begun_is_not_called_back() -> None:
    """The run before it is run over again: a preemption of the second one changes nothing."""
    sweep = chain(Status.COMPLETED)
    after(sweep)
    sweep.obtain(2)
    sweep.runs[1] = replace(sweep.runs[1], status=Status.RUNNING)
    sweep.preempt(2)
    sweep.gone(2)
    assert after(sweep).status == Status.LAUNCHING
    assert awaited([sweep.runs[2]]) == set()


def test_several_runs_before_it_are_named_as_far_as_they_fit() -> None:
    names = tuple(f"cell-{number}" for number in range(1, 6))
    run = member(9, None, names)
    detail = decide(run, READ, World(Knobs("s"), offers=OFFERS), NOW).run.detail
    assert detail == "it starts when cell-1, cell-2 and 3 others are completed"


def test_a_run_that_waits_for_others_takes_no_slot() -> None:
    sweep = Sweep([member(1, 1, ("cell-3",)), member(2, 1), member(3, 1)], 1)
    sweep.tick()
    assert launching(sweep) == [2]


# --- in any order -----------------------------------------------------------------------------------------------------

HAPPENINGS = ("obtain", "obtain", "refuse", "preempt", "complete", "fail", "gone", "gone", "stop", "resume", "weather")
# What happens, to which run, and which runs are decided after it: all (0), every other one (1, 2), or none.
STEPS = st.tuples(st.sampled_from(HAPPENINGS), st.integers(1, 4), st.sampled_from((0, 0, 1, 2, None)))
Story = list[tuple[str, int, int | None]]


# The only run with a machine loses it while no zone has capacity; another run looks for one first when there is some.
LOSES_CAPACITY: Story = [
    ("obtain", 1, None), ("weather", 1, None), ("preempt", 1, None), ("gone", 1, 0), ("weather", 1, 0),
]  # fmt: skip


def play(limit: int, story: Story) -> None:
    sweep = Sweep([member(key, limit, ("cell-1",) if key == 2 else ()) for key in range(1, 5)], limit)
    sweep.tick()
    for name, key, part in story:
        getattr(sweep, name)(key)
        if part is not None:
            sweep.tick(part)


def property_of(count: int, *phases: Phase) -> Callable[[], None]:
    @example(1, LOSES_CAPACITY)
    @settings(max_examples=count, database=None, derandomize=True, report_multiple_bugs=False, phases=phases)
    @given(st.integers(1, 2), st.lists(STEPS, min_size=4, max_size=24))
    def holds(limit: int, story: Story) -> None:
        play(limit, story)

    return holds


def test_whatever_happens_a_group_keeps_its_promises() -> None:
    property_of(examples(300, 10_000), Phase.explicit, Phase.generate, Phase.shrink)()


Break = Callable[[pytest.MonkeyPatch], None]


def only_live_attempts_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "has_machine", property(lambda run: run.live_attempt is not None))


def a_preempted_run_loses_its_slot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "_keeps_slot", lambda run: False)


def the_last_one_comes_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "_rank", lambda run: (False, -run.key))


def two_in_one_tick_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    real = groups._without_slot

    def without_slot(group: list[Run], limit: int, *more: object) -> tuple[list[int], list[int]]:
        return ([], []) if sum(run.has_machine for run in group) < limit else real(group, limit, *more)  # type: ignore[arg-type]

    patch.setattr(groups, "_without_slot", without_slot)


def nobody_waits_for_another_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups, "_after_others", lambda run, world: None)


def a_slot_is_never_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "has_machine", property(lambda run: run.try_ is not None))


@pytest.mark.parametrize(
    "broken",
    [
        only_live_attempts_count,
        a_preempted_run_loses_its_slot,
        the_last_one_comes_first,
        two_in_one_tick_are_not_counted,
        nobody_waits_for_another_run,
        a_slot_is_never_given_back,
    ],
)
def test_a_broken_rule_is_caught(monkeypatch: pytest.MonkeyPatch, broken: Break) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        property_of(300, Phase.explicit, Phase.generate)()

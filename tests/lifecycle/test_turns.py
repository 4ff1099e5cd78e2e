"""Whose turn it is: priority, then fair share, then age; and the limits of the settings, which always hold."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.domain.actions import Launch
from supervisor.domain.causes import OWN_WAITS, Cause
from supervisor.domain.machines import Capacity, ZoneRecord, offer_key
from supervisor.domain.observation import World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers import turns
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.lifecycle.offers.turns import Places, in_turn, with_limits
from supervisor.lifecycle.phases.placing import paced
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.house_model import OFFERS, House, wanting
from tests.lifecycle.sample_runs import NOW
from tests.properties import examples


def order(runs: Iterable[Run], machines: Mapping[str, int] | None = None, **used_at: float) -> list[int]:
    return [run.key for run in in_turn(runs, machines or {}, used_at)]


# --- the order --------------------------------------------------------------------------------------------------------


def test_the_highest_priority_comes_first_then_the_share_then_the_age() -> None:
    runs = [wanting(1), wanting(2), wanting(3, "bob"), wanting(4, "bob"), wanting(5, "bob", 7), wanting(6, "cyd", -1)]
    assert order(runs) == [5, 1, 2, 3, 4, 6], "bob's important run counts against his others"
    assert order(runs, {"ann": 2}) == [5, 3, 1, 4, 2, 6], "ann has two machines already"
    assert order(reversed(runs)) == order(runs)


def test_of_equal_shares_the_owner_who_used_a_machine_longest_ago_comes_first() -> None:
    runs = [wanting(1), wanting(2), wanting(3, "bob")]
    assert order(runs, None, ann=NOW, bob=NOW - 60)[0] == 3
    assert order(runs, None, ann=NOW)[0] == 3, "bob never used one"
    assert order(runs)[0] == 1


def test_a_run_that_is_held_back_comes_last() -> None:
    assert order([wanting(1, priority=9, hold="its baton is torn"), wanting(2)]) == [2, 1]


def test_the_free_capacity_of_a_computer_goes_by_turns() -> None:
    runs = [wanting(key) for key in (1, 2, 3)] + [wanting(4, "bob"), wanting(5, "cyd", 3)]
    world = with_queue(World(Knobs("s"), offers=OFFERS), runs, {"local": Capacity(machines=3)}, lambda _: False, NOW)
    assert set(world.may_launch) == {5, 1, 4}


def test_probes_of_an_offer_that_failed_go_to_the_highest_priority_alone() -> None:
    """Otherwise a freed place of a quota could go to one of the other two probes."""
    house = House([wanting(1), wanting(2), wanting(3, priority=5)])
    before = dict(house.runs)
    place = OFFERS["local"][0].placement
    zones = {offer_key(place): ZoneRecord(1, NOW, "quota", "limit 1")}
    decisions = [Decision(run) for run in before.values()]
    house.tick()
    decisions = [launching(before[key], house.runs[key]) for key in before]
    kept = paced(decisions, before, zones, NOW)
    assert {each.run.key: each.run.status for each in kept} == {
        1: Status.WAITING,
        2: Status.WAITING,
        3: Status.LAUNCHING,
    }


def launching(before: Run, after: Run) -> Decision:
    assert after.try_ is not None
    return Decision(after, actions=(Launch(after.try_, True),))


# --- limits -----------------------------------------------------------------------------------------------------------


def test_no_more_runs_than_the_limits_have_a_machine() -> None:
    house = House([wanting(key) for key in (1, 2, 3)] + [wanting(4, "bob"), wanting(5, "bob")], most=3, of_owner=2)
    assert house.tick() == [1, 2, 4]
    assert house.tick() == []


def test_the_sentence_says_the_limit_and_what_ends_the_wait() -> None:
    house = House([wanting(1), wanting(2), wanting(3)], most=5, of_owner=2)
    house.tick()
    run = house.runs[3]
    assert (run.cause, run.next_at) == (Cause.MACHINE_LIMIT, None)
    assert status_text(run, house.now) == (
        "Waiting since 12:00 UTC: 2 of 2 machines of the owner ann are in use. Nothing is billed. "
        "Next: it starts when one of these ends and its turn has come."
    )
    assert next_action(run, house.now).what == "wait for a machine of another run"
    house.of_owner, house.most = 0, 1
    house.tick()
    assert house.runs[3].detail == "2 of 1 machine is in use"


def test_a_wait_for_a_limit_counts_to_no_limit_of_waiting_and_is_written_once() -> None:
    assert Cause.MACHINE_LIMIT in OWN_WAITS
    house = House([wanting(1), wanting(2)], most=1)
    house.tick()
    before = house.runs[2]
    house.tick()
    assert house.runs[2] is before


def test_a_machine_that_is_not_gone_keeps_its_place_and_the_next_one_is_in_turn() -> None:
    house = House([wanting(1), wanting(2), wanting(3, "bob"), wanting(4, "bob", 1)], most=1)
    assert house.tick() == [4]
    house.obtain(4)
    house.complete(4)
    assert house.tick() == []
    house.gone(4)
    assert house.tick() == [1], "bob had the last one"


def test_a_preempted_run_keeps_its_place_before_its_equals_but_not_before_a_higher_one() -> None:
    for priority, next_one in ((0, 1), (1, 2)):
        house = House([wanting(1)], most=1)
        house.tick()
        house.obtain(1)
        house.submit("bob", priority)
        house.tick()
        house.preempt(1)
        began = house.tick()
        house.gone(1)
        assert (began or house.tick()) == [next_one]


def test_a_run_without_an_offer_blocks_nobody() -> None:
    picky = wanting(1, priority=3)
    picky = replace(picky, policy=replace(picky.policy, zones=("zone-x",)))
    house = House([picky, wanting(2), wanting(3)], most=1)
    assert house.tick() == [2]


def test_a_lower_limit_ends_nothing() -> None:
    house = House([wanting(1), wanting(2), wanting(3)], most=2)
    house.tick()
    house.most = 1
    assert house.tick() == []
    assert house.with_machine().total() == 2


def test_no_owner_starves_at_one_machine() -> None:
    """ann has submitted everything first. Broken variant: by age alone she has every machine."""
    house = House([wanting(key) for key in range(1, 20)] + [wanting(20 + key, "bob") for key in range(4)], most=1)
    served: Counter[str] = Counter()
    for _ in range(8):
        [key] = house.tick()
        served[house.runs[key].owner] += 1
        house.obtain(key)
        house.complete(key)
        house.gone(key)
    assert served == {"ann": 4, "bob": 4}


# --- the property -----------------------------------------------------------------------------------------------------

KEYS = st.integers(1, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.sampled_from(("ann", "bob", "cyd")), st.sampled_from((0, 0, 0, 5))),
        st.tuples(st.sampled_from(("obtain", "obtain", "preempt", "complete", "gone", "refuse")), KEYS),
        st.tuples(st.just("yield"), KEYS),
        st.tuples(st.just("limit"), st.integers(0, 3), st.integers(0, 2)),
        st.just(("tick",)),
    ),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=examples(40, 3000))
@example([("submit", "ann", 0), ("submit", "bob", 0), ("submit", "bob", 5), ("tick",), ("obtain", 1), ("preempt", 1)])
@example([("submit", "ann", 0), ("submit", "bob", 0), ("limit", 0, 0), ("tick",), ("refuse", 1), ("limit", 1, 1)])
@example([("submit", "ann", 0), ("submit", "ann", 0), ("limit", 0, 0), ("tick",), ("refuse", 1), ("limit", 0, 1)])
def test_the_queue_keeps_its_promises(steps: list[tuple[object, ...]]) -> None:
    play(steps)


def play(steps: Iterable[tuple[object, ...]]) -> None:
    house = House([], most=2, of_owner=1)
    for verb, *words in steps:
        match verb, words:
            case "tick", _:
                house.tick()
            case "submit", (str(owner), int(priority)):
                house.submit(owner, priority)
            case "limit", (int(most), int(of_owner)):
                house.most, house.of_owner = most, of_owner
            case "yield", (int(key),) if key in house.runs:
                house.preempt(key, Cause.YIELDED)
            case name, (int(key),) if key in house.runs:
                getattr(house, str(name))(key)
    house.tick()
    for _ in range(40):  # everything ends: each run gets its machine
        for key in list(house.runs):
            house.obtain(key)
            house.complete(key)
            house.gone(key)
        house.most = house.most or 1
        house.tick()
    waiting = [run.run_id for run in house.runs.values() if not run.terminal]
    assert not waiting, "it starved"


def by_age(runs: Iterable[Run], *_: object) -> Iterator[Run]:
    yield from sorted(runs, key=lambda run: run.key)


STORY = [
    ("submit", "ann", 0), ("submit", "ann", 0), ("submit", "bob", 0), ("submit", "bob", 5), ("submit", "cyd", 5),
    ("limit", 2, 2), ("tick",), ("submit", "cyd", 0), ("obtain", 4), ("complete", 4), ("gone", 4), ("tick",),
    ("obtain", 5), ("submit", "bob", 5), ("preempt", 5), ("tick",), ("gone", 5), ("tick",), ("obtain", 1),
    ("submit", "ann", 5), ("preempt", 1), ("tick",), ("gone", 1), ("tick",),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("Places.why_none", lambda places, owner: ""),
        ("Places.take", lambda places, owner: None),
        ("in_turn", by_age),
        ("_higher", lambda *_: ""),
        ("machines_of", lambda runs: Counter(run.owner for run in runs if run.live_attempt is not None)),
    ],
)
def test_a_broken_rule_breaks_a_promise(rule: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    play(STORY)
    monkeypatch.setattr(f"{turns.__name__}.{rule}", broken)
    with pytest.raises(AssertionError):
        play(STORY)


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
def test_ten_thousand_waiting_runs_cost_one_pass(full: bool) -> None:
    """Ten owners; a full limit looks at no offer and sorts nothing. In the campaign ten times as many."""
    count = examples(10_000, 100_000)
    waiting = replace(wanting(1), status=Status.WAITING, cause=Cause.MACHINE_LIMIT)
    runs = [replace(waiting, key=key, owner=f"owner-{key % 10}", generation_at=NOW + key) for key in range(count)]
    limit = 1 if full else 3
    world = World(Knobs("s", max_parallel_runs=limit), offers=OFFERS)
    if full:
        house = House([wanting(count + 1)], most=1)
        house.tick()
        runs.append(house.runs[count + 1])
    began = time.process_time()
    held = with_limits(world, runs, {}, NOW).no_turn
    took_s = time.process_time() - began
    assert len(held) == count - (0 if full else 3)
    assert took_s < 20e-6 * count, "it took 5 µs each where this was written"


def test_without_limits_nothing_is_looked_at() -> None:
    world = World(Knobs("s"), offers=OFFERS)
    assert with_limits(world, [wanting(1)], {}, NOW) is world
    assert Places(0, 0, Counter(ann=5)).why_none("ann") == ""
    assert Policy().priority == 0

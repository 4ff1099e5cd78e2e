"""Where our own machines fill the capacity: first come, first served, and no request without a chance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from supervisor.domain.actions import Launch
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, ZoneRecord, offer_key
from supervisor.domain.observation import NOT_READ, Absent, CreateFailed, Observation, Seen, World
from supervisor.domain.policies import Knobs, Limits, Policy
from supervisor.domain.run import Refusal, Run, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.offers.queueing import with_queue
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import NOW, attempt, run_in
from tests.lifecycle.worlds import ZONES, offers

READ = Observation(stop=Absent(), baton=Absent())
UNREAD = Observation()


def pending(key: int, **fields: object) -> Run:
    values = {"policy": Policy(), "generation_at": NOW - 1000 + key, **fields}
    return run_in(Status.PENDING, key=key, run_id=f"run-{key}", provider="local", **values)


def decided(runs: Sequence[Run], capacity: Capacity, obs: Observation = READ, **world: object) -> list[Decision]:
    known = World(Knobs("s"), offers={"local": offers(("small", "big"))}, **world)  # type: ignore[arg-type]
    known = with_queue(known, runs, {"local": capacity}, lambda _: False, NOW)
    return [decide(run, obs, known, NOW) for run in runs]


def launched(decisions: Sequence[Decision]) -> dict[int, str]:
    return {
        d.run.key: action.try_.placement.zone for d in decisions for action in d.actions if isinstance(action, Launch)
    }


def test_free_capacity_goes_to_the_runs_that_were_submitted_first() -> None:
    runs = [pending(key) for key in (5, 3, 1, 4, 2)]
    found = decided(runs, Capacity(zones={"zone-a": 1, "zone-b": 1, "zone-c": 0}))
    assert launched(found) == {1: "zone-a", 2: "zone-b"}
    held = {d.run.key: d.run for d in found if not d.actions}
    assert {(run.status, run.cause, run.next_at) for run in held.values()} == {(Status.WAITING, Cause.QUEUED, None)}


def test_a_queued_run_requests_nothing_and_is_not_written_again() -> None:
    """The store is not read for it either: ten thousand of them would read twenty thousand objects in each tick."""
    first = decided([pending(1)], Capacity(machines=0), UNREAD)[0]
    assert (first.wants, first.actions, first.lessons) == (frozenset(), (), ())
    assert [event.text for event in first.events] == [
        "Queued: our own machines use all capacity of this computer. Nothing is billed."
    ]
    again = decided([first.run], Capacity(machines=0), UNREAD)[0]
    assert again.run is first.run
    assert again.events == ()


def test_the_sentence_says_what_is_in_the_way_and_what_comes_next() -> None:
    run = decided([pending(1)], Capacity(machines=0))[0].run
    assert status_text(run, NOW) == (
        "Queued since 12:00 UTC: our own machines use all capacity of this computer. Nothing is billed. "
        "Next: it starts when it is first in the queue and one of our machines is gone."
    )
    assert next_action(run, NOW).what == "queued"


def test_open_calls_use_capacity_until_the_listing_shows_their_machine() -> None:
    asking = decided([pending(1)], Capacity(machines=2))[0].run
    capacity = Capacity(machines=2)
    assert launched(decided([asking, pending(2), pending(3)], capacity)) == {2: "zone-a"}


def test_a_run_that_allows_one_zone_waits_for_it_and_blocks_no_other() -> None:
    picky = pending(1, policy=Policy(zones=("zone-a",)))
    assert launched(decided([picky, pending(2)], Capacity(zones={"zone-a": 0, "zone-b": 1}))) == {2: "zone-b"}


def test_a_run_that_waits_for_its_zone_keeps_no_gpus_from_others() -> None:
    small = Policy(shapes=("small",))
    picky = pending(1, policy=replace(small, zones=("zone-a",)))
    capacity = Capacity(zones={"zone-a": 0}, cards=1, cards_of={"small": 1}, all_cards=2)
    assert launched(decided([picky, pending(2, policy=small)], capacity)) == {2: "zone-b"}


def test_an_offer_that_refused_a_run_is_left_to_others() -> None:
    refused = tuple(Refusal("zone-a", shape, True, NOW - 60, Cause.GPU_FAULT, "lost") for shape in ("small", "big"))
    found = decided([pending(1, refusals=refused), pending(2)], Capacity(zones={"zone-a": 1, "zone-b": 0, "zone-c": 0}))
    assert launched(found) == {2: "zone-a"}
    assert found[0].run.cause == Cause.QUEUED


def test_an_attempt_that_ends_on_a_full_computer_says_that_it_is_queued() -> None:
    policy = Policy(shapes=("small",))
    run = run_in(Status.RUNNING, policy=policy, provider="local", attempt=attempt())
    world = World(Knobs("s"), offers={"local": offers()}, capacities={"local": Capacity(machines=0)})
    text = end_attempt(run, End(Cause.PREEMPTED, "notice"), world, NOW).events[0].text
    assert "Our own machines use all capacity: the run continues when one of them is gone" in text


def test_a_run_that_needs_more_gpus_keeps_the_free_ones_for_itself() -> None:
    both, one = pending(1, policy=Policy(shapes=("big",))), pending(2, policy=Policy(shapes=("small",)))
    cards = {"small": 1, "big": 2}
    assert launched(decided([both, one], Capacity(cards=1, cards_of=cards, all_cards=2))) == {}
    assert launched(decided([both, one], Capacity(cards=2, cards_of=cards, all_cards=2))) == {1: "zone-a"}
    assert launched(decided([one, both], Capacity(cards=1, cards_of=cards, all_cards=1))) == {
        1: "zone-a",
        2: "zone-a",
    }, "what needs more than there is asks, and the provider says what is wrong"


def test_a_full_computer_teaches_nothing_of_its_zones() -> None:
    asking = decided([pending(1)], Capacity(machines=1))[0].run
    assert asking.try_ is not None
    failed = CreateFailed(asking.try_.launch_id, Cause.QUEUED, "all places are taken")
    known = World(Knobs("s"), offers={"local": offers()})
    found = decide(asking, replace(READ, create=Seen(failed)), known, NOW)
    assert (found.run.status, found.run.cause, found.lessons) == (Status.WAITING, Cause.QUEUED, ())
    assert found.run.next_at == NOW + 1.0


def test_a_queued_run_has_no_limit_and_a_stock_out_after_it_has_its_whole_limit() -> None:
    long_ago = {"cause": Cause.QUEUED, "waiting": Waiting(since=NOW - 90_000), "status": Status.WAITING}
    run = pending(1, policy=Policy(limits=Limits(wait_for_capacity_s=3600.0)))
    run = replace(run, **long_ago)  # type: ignore[arg-type]
    assert decided([run], Capacity(machines=0))[0].run.status == Status.WAITING
    none_left = {
        offer_key(o.placement): ZoneRecord(1, NOW + 100, "no_capacity", "none left") for o in offers(("small", "big"))
    }
    out = decided([run], Capacity(machines=1), zones=none_left)[0].run
    assert (out.cause, out.waiting.since, out.next_at) == (Cause.NO_CAPACITY, NOW, NOW + 100)


def test_queueing_between_stock_outs_does_not_restart_the_limit_of_the_wait() -> None:
    """Half an hour without capacity, half an hour queued, alternating: while queued the limit's clock stops."""
    limits = Limits(wait_for_capacity_s=3 * 1800.0)
    run = pending(1, policy=Policy(limits=limits), generation_at=NOW, created_at=NOW)
    waits = []
    for turn in range(6):
        now = NOW + turn * 1800.0
        full = turn % 2 == 1
        none_left = {
            offer_key(o.placement): ZoneRecord(1, now + 100, "no_capacity", "none left")
            for o in offers(("small", "big"))
        }
        world = World(Knobs("s"), offers={"local": offers(("small", "big"))}, zones={} if full else none_left)
        world = with_queue(world, [run], {"local": Capacity(machines=0 if full else 1)}, lambda _: False, now)
        run = decide(run, READ, world, now).run
        waits.append((run.status, run.cause))
        if run.terminal:
            break
    waiting = [(Status.WAITING, Cause.NO_CAPACITY), (Status.WAITING, Cause.QUEUED)]
    assert waits == [*waiting, *waiting, waiting[0], (Status.FAILED, Cause.NO_CAPACITY)]


def test_requests_after_queueing_count_to_the_limit_of_the_wait() -> None:
    queued = {"cause": Cause.QUEUED, "waiting": Waiting(since=NOW - 9000, before_s=50.0), "status": Status.WAITING}
    run = replace(pending(1), **queued)  # type: ignore[arg-type]
    asking = decided([run], Capacity(machines=1))[0].run
    assert (asking.status, asking.waiting.since, asking.cause) == (Status.LAUNCHING, NOW - 50.0, None)


def test_a_recovering_run_first_checks_whether_its_work_is_done() -> None:
    run = replace(pending(1), status=Status.RECOVERING)
    assert decided([run], Capacity(machines=0), UNREAD)[0].wants
    assert UNREAD.baton is NOT_READ
    assert decided([run], Capacity(machines=0))[0].run.cause == Cause.QUEUED


def test_one_pass_over_ten_thousand_queued_runs_is_short() -> None:
    runs = [pending(key) for key in range(10_000)]
    known = World(Knobs("s"), offers={"local": offers()})
    cards = {"small": 1}
    for capacity in (
        Capacity(machines=3),
        Capacity(zones=dict.fromkeys(ZONES, 0)),
        Capacity(cards=0, cards_of=cards, all_cards=8),
    ):
        began = time.process_time()
        turns = with_queue(known, runs, {"local": capacity}, lambda _: False, NOW).may_launch
        assert len(turns) == (3 if capacity.machines else 0)
        assert time.process_time() - began < 1.0, "it took 0.03 s where this was written"

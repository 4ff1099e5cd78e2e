"""Two replicas on one database: the leader decides on beats that reach the other replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from supervisor.contract.heartbeat import encode
from supervisor.domain.errors import Unavailable
from supervisor.domain.policies import Knobs
from supervisor.domain.status import Status
from supervisor.ports.store import Lease, PushedBeat, StoreDown
from supervisor.services.runs.handover import FORGET_S, USEFUL_S, Handover
from supervisor.services.runs.heartbeat import BeatInbox, BeatResponse, granted
from tests.fakes.clock import FakeClock
from tests.fakes.wake import FakeWake
from tests.services.bed import Bed, beat
from tests.waiting import wait_for

CELL = "local cell"


class Faulty:
    """The real store, with faults that a test injects."""

    def __init__(self, store: Any) -> None:
        self._store, self.down, self.calls = store, False, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_beats(self, beats: list[PushedBeat]) -> dict[str, str]:
        self.calls += 1
        if self.down:
            raise StoreDown("the database is away")
        assert all(not one.beat.nonce for one in beats), "the nonce stays where it was checked"
        told: dict[str, str] = self._store.put_beats(beats)
        return told


@dataclass
class Replica:
    bed: Bed
    store: Faulty
    clock: FakeClock
    wake: FakeWake
    inbox: BeatInbox
    lease: list[Lease] = field(default_factory=list)  # empty = it does not lead
    interval_s: float = 3600.0  # its thread would not write by itself within the length of a test

    def __post_init__(self) -> None:
        self.handover = Handover(
            self.store, self.inbox, self.clock, self.wake, lambda: next(iter(self.lease), None), self.interval_s
        )

    def lead(self) -> None:
        lease = self.bed.store.take_lease(CELL, f"replica {id(self)}", 3600.0, 0.0, alone=True)
        assert lease is not None
        self.lease[:] = [lease]

    def look(self) -> dict[str, tuple[int, float]]:
        """What the loop sees: run -> (sequence, age in seconds)."""
        found, now = self.handover.take(), self.clock.monotonic()
        self.handover.set_active(self.bed.store.active(CELL, {})[0])
        return {run_id: (one.sequence, now - received) for run_id, (one, received) in found.items()}

    def push(self, run_id: str, sequence: int = 1, **fields: object) -> BeatResponse:
        return self.inbox.receive(run_id, encode(beat(run_id, sequence, **fields)))


def replica(bed: Bed, clock: FakeClock, **fields: Any) -> Replica:
    wake, store = FakeWake(clock), Faulty(bed.store)
    return Replica(bed, store, clock, wake, BeatInbox(store, clock, wake, 10.0), **fields)


@pytest.fixture
def leader(any_bed: Bed) -> Replica:
    any_bed.submit("digits-7")
    any_bed.train("digits-7")
    one = replica(any_bed, any_bed.clock)
    one.lead()
    return one


@pytest.fixture
def follower(any_bed: Bed) -> Replica:
    clock = FakeClock()
    clock.advance(7777.0)  # its monotonic clock started on another day
    return replica(any_bed, clock)


def test_a_beat_reaches_the_leader_with_its_age(leader: Replica, follower: Replica) -> None:
    follower.push("digits-7", 7)
    follower.clock.advance(40.0)
    assert leader.look() == {}
    follower.handover.write()
    found = leader.look()
    assert found["digits-7"][0] == 7
    assert 40.0 <= found["digits-7"][1] < 60.0, "the age continues, whatever the clocks of the replicas show"
    leader.clock.advance(30.0)
    assert leader.look()["digits-7"][1] >= 70.0, "a beat that was read stays, and ages"


def test_only_new_beats_are_written_again(leader: Replica, follower: Replica) -> None:
    follower.push("digits-7", 3)
    for _ in range(3):
        follower.handover.write()
    assert follower.store.calls == 1
    follower.push("digits-7", 4)
    follower.handover.write()
    assert follower.store.calls == 2
    assert leader.look()["digits-7"][0] == 4


def test_the_newest_wins_wherever_it_arrived(leader: Replica, follower: Replica) -> None:
    leader.look()
    leader.push("digits-7", 5)
    follower.push("digits-7", 4)
    follower.handover.write()
    assert leader.look()["digits-7"][0] == 5
    follower.push("digits-7", 6)
    follower.handover.write()
    assert leader.look()["digits-7"][0] == 6


def test_a_leader_keeps_its_own_beats(leader: Replica) -> None:
    leader.look()
    leader.push("digits-7", 5)
    leader.handover.write()
    assert leader.store.calls == 0
    assert leader.look()["digits-7"][0] == 5


def test_a_leader_leaves_beats_of_another_cell(leader: Replica, follower: Replica) -> None:
    leader.bed.submit("theirs-1")
    leader.bed.train("theirs-1", number=1)
    run = leader.bed.run("theirs-1")
    leader.handover.set_active([leader.bed.run("digits-7")])
    leader.push("theirs-1", 2)
    leader.handover.write()
    assert leader.store.calls == 1
    assert run.run_id in leader.look()  # here both runs are in the same cell, so it is read back


def test_when_leadership_moves_the_beats_go_along(leader: Replica, follower: Replica) -> None:
    leader.look()
    leader.push("digits-7", 9)
    leader.lease.clear()
    follower.lead()
    assert follower.look() == {}
    leader.handover.write()
    assert follower.look()["digits-7"][0] == 9


def test_a_paused_leader_takes_nothing(leader: Replica, follower: Replica) -> None:
    follower.push("digits-7", 3)
    follower.handover.write()
    second = replica(leader.bed, leader.clock)
    second.lead()  # and the first does not know it yet
    assert leader.look() == {}
    assert second.look()["digits-7"][0] == 3


def test_the_response_includes_a_stop_at_any_replica(leader: Replica, follower: Replica) -> None:
    assert not follower.push("digits-7", 1).stop
    follower.handover.write()
    leader.bed.change("digits-7", status=Status.STOPPING)
    assert not follower.push("digits-7", 2).stop
    follower.handover.write()
    assert follower.push("digits-7", 3).stop
    leader.bed.change("digits-7", status=Status.RUNNING)
    follower.handover.write()
    assert not follower.push("digits-7", 4).stop


def test_the_pace_follows_the_beats_that_come_here(leader: Replica, follower: Replica) -> None:
    leader.look()
    assert leader.inbox.active == 1
    follower.push("digits-7", 1)
    follower.handover.write()
    assert follower.inbox.active == 1


def test_runs_that_are_over_are_forgotten(leader: Replica, follower: Replica) -> None:
    follower.push("digits-7", 1)
    leader.bed.change("digits-7", status=Status.COMPLETED, settled=True)
    follower.handover.write()
    assert follower.inbox.take() == {}
    assert leader.look() == {}


def test_runs_that_are_silent_here_are_forgotten(leader: Replica, follower: Replica) -> None:
    leader.look()
    leader.push("digits-7", 1)
    follower.push("digits-7", 2)
    for one in (leader, follower):
        one.handover.write()
        one.clock.advance(FORGET_S + 1.0)
        one.handover.write()
    assert follower.inbox.take() == {}
    assert list(leader.inbox.take()) == ["digits-7"], "the leader's knowledge of its own runs never shrinks"


def test_beats_are_refused_while_they_reach_no_leader(leader: Replica, follower: Replica) -> None:
    follower.push("digits-7", 1)
    follower.handover.write()
    follower.store.down = True
    follower.push("digits-7", 2)
    with pytest.raises(StoreDown):
        follower.handover.write()
    follower.clock.advance(USEFUL_S)
    with pytest.raises(Unavailable):
        follower.push("digits-7", 3)
    follower.store.down = False
    follower.handover.write()
    follower.push("digits-7", 4)
    assert leader.look()["digits-7"][0] == 2, "earlier beats are not lost"


def test_a_leader_accepts_as_long_as_it_leads(leader: Replica) -> None:
    leader.clock.advance(USEFUL_S + 1.0)
    leader.push("digits-7", 1)
    leader.lease.clear()
    with pytest.raises(Unavailable):
        leader.push("digits-7", 2)


@pytest.fixture
def urgent(follower: Replica) -> Iterator[Replica]:
    """The follower with its thread."""
    follower.handover.start()
    yield follower
    follower.handover.stop()


def test_an_urgent_beat_is_written_before_the_leader_is_woken(urgent: Replica, leader: Replica) -> None:
    seen: list[dict[str, tuple[int, float]]] = []
    urgent.wake.set = lambda: seen.append(leader.look())  # type: ignore[method-assign]
    urgent.push("digits-7", 1, notice_s=30.0)
    wait_for(lambda: seen, 30, "the leader to be woken")
    assert seen[0]["digits-7"][0] == 1


def test_a_failed_write_is_repeated(leader: Replica, any_bed: Bed) -> None:
    follower = replica(any_bed, FakeClock(), interval_s=0.01)
    follower.handover.start()
    follower.store.down = True
    follower.push("digits-7", 1, notice_s=30.0)
    wait_for(lambda: follower.store.calls > 3, 30, "some attempts")
    assert follower.wake.sets == 0
    follower.store.down = False
    wait_for(lambda: follower.wake.sets, 30, "the leader to be woken")
    follower.handover.stop()
    assert leader.look()["digits-7"][0] == 1


def test_a_beat_of_the_wrong_kind_of_age_is_fresh(leader: Replica, follower: Replica) -> None:
    """The database's clock was set back between the two: an age is never negative."""
    run = leader.bed.run("digits-7")
    kept = beat("digits-7", 3)._replace(nonce="")
    leader.bed.store.put_beats([PushedBeat(kept, -500.0)])
    assert leader.look()[run.run_id] == (3, 0.0)


def test_only_the_leader_grants_a_rest_and_only_while_its_ticks_go_on(leader: Replica, follower: Replica) -> None:
    """An agent that pushes to the other replica stores its beats as ever, and the leader reads them all the same."""
    launches = {"digits-7": "1.1.1"}
    leader.look()
    for one in (leader, follower):
        one.handover.grant(granted(launches, one.clock.monotonic(), Knobs("s")))
    assert leader.push("digits-7", 1).store_s == 3600.0
    assert follower.push("digits-7", 2).store_s is None
    at = leader.clock.monotonic()
    leader.clock.advance(61.0)
    leader.handover.grant(granted(launches, at, Knobs("s")))  # a tick that failed has granted nothing anew
    assert leader.push("digits-7", 3).store_s is None
    leader.handover.grant(granted(launches, leader.clock.monotonic(), Knobs("s")))
    assert leader.push("digits-7", 4).store_s == 3600.0
    assert leader.push("digits-7", 5, launch_id="1.1.1").store_s == 3600.0
    leader.lease.clear()
    leader.handover.write()
    assert leader.push("digits-7", 6).store_s is None

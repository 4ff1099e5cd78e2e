"""A request that was not sent because of the object store: no provider was called, so the zone learns nothing."""

from __future__ import annotations

import pytest

from supervisor.contract.baton import Baton, Next
from supervisor.contract.heartbeat import Beat
from supervisor.domain.actions import Launch
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine
from supervisor.domain.observation import NOT_READ, Absent, Observation, Part, Seen, Sent, Unknown, World
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from tests.lifecycle.sample_runs import NOW, open_try, run_in
from tests.lifecycle.worlds import offers

NO_BEAT = Absent()
LATE = NOW + 2000.0  # after the launch timeout and the time in which a create call may still settle


def raised(launch_id: str) -> Seen[Baton]:
    return Seen(Baton("s", 1, Next(3, 1, launch_id, "nonce")))


def ticked(run: Run, baton: Part[Baton], stop: Part[str], now: float, beat: Part[Beat] = NO_BEAT) -> Decision:
    obs = Observation(machine=Absent(), lookup=Absent(), beat=beat, stop=stop, baton=baton)
    return decide(run, obs, World(Knobs("s"), offers={"gce": offers()}), now)


def test_while_the_store_cannot_be_read_an_unsent_request_stays_open_and_names_the_store() -> None:
    run = run_in(Status.LAUNCHING, try_=open_try())
    away = Unknown("no route to host")
    out = ticked(run, away, away, LATE)
    assert (out.run.status, out.run.open_try, out.events, out.lessons) == (Status.LAUNCHING, run.try_, (), ())
    assert "the object store cannot be read" in out.run.hold
    assert out.actions == ()


@pytest.mark.parametrize("baton", [Absent(), Seen(Baton("s", 1)), raised("1.2.7")])
def test_once_the_store_is_back_it_is_sent_and_its_time_begins(baton: Part[Baton]) -> None:
    run = run_in(Status.LAUNCHING, try_=open_try(), hold="the object store cannot be read since 12:00 UTC")
    out = ticked(run, baton, Absent(), LATE)
    sent = out.run.open_try
    assert sent is not None
    assert (sent.launch_id, sent.requested_at, out.run.hold) == ("1.3.1", LATE, "")
    assert [type(action) for action in out.actions] == [Launch]
    assert (out.events, out.lessons) == ((), ())
    again = ticked(out.run, raised("1.3.1"), Absent(), LATE + 30)
    assert (again.run.open_try, [type(action) for action in again.actions]) == (sent, [Launch])


def test_a_request_whose_files_still_travel_keeps_its_host() -> None:
    run = run_in(Status.LAUNCHING, try_=open_try())
    world = World(Knobs("s"), offers={"gce": offers()})

    def at(now: float, sent_at: float, launch_id: str = "1.3.1") -> Decision:
        obs = Observation(Absent(), Absent(), raised("1.3.1"), Absent(), Absent(), sent=Seen(Sent(launch_id, sent_at)))
        return decide(run, obs, world, now)

    out = at(LATE, LATE - 100)
    sent = out.run.open_try
    assert sent is not None
    assert (sent.launch_id, sent.requested_at) == ("1.3.1", LATE)
    assert out.run.hold == "its files are on their way to us-east1-c"
    assert out.actions == (Launch(sent, holder_gone=True),)
    early = at(NOW + 100, NOW + 90).run.open_try
    assert early is not None
    assert early.requested_at == NOW - 4, "its time is not over"
    for sent_at, launch_id in ((LATE - 121, "1.3.1"), (LATE - 1, "1.2.9")):
        ended = at(LATE, sent_at, launch_id).run.try_
        assert ended is not None
        assert ended.outcome == Cause.NO_CAPACITY


def test_a_request_that_was_sent_and_brought_nothing_ends_for_want_of_room() -> None:
    out = ticked(run_in(Status.LAUNCHING, try_=open_try()), raised("1.3.1"), Absent(), LATE)
    assert out.run.try_ is not None
    assert (out.run.open_try, out.run.try_.outcome) == (None, Cause.NO_CAPACITY)


def test_a_request_is_not_repeated_while_its_beat_cannot_be_read() -> None:
    """The machine may have come up, reported why it left, and disappeared before the listing showed it once."""
    run = run_in(Status.LAUNCHING, try_=open_try())
    out = ticked(run, raised("1.3.1"), Absent(), NOW + 30, beat=Unknown("torn"))
    assert (out.run, out.actions) == (run, ())
    assert [type(action) for action in ticked(run, raised("1.3.1"), Absent(), NOW + 30).actions] == [Launch]


@pytest.mark.parametrize(
    ("machine", "after_s", "kinds"),
    [
        (Unknown("it may have appeared since the listing"), 100.0, ["obtained", "recovered"]),
        (Absent(0.0, "listing"), 0.0, ["obtained", "recovered"]),
        (Absent(60.0, "listing"), 100.0, ["obtained", "recovered"]),
        (Absent(0.0, "listing"), 100.0, ["readings_disagree", "recovered"]),
    ],
)
def test_a_first_beat_contradicts_only_a_listing_that_can_know_the_machine(
    machine: Part[Machine], after_s: float, kinds: list[str]
) -> None:
    """A listing may run beside the call that makes the machine."""
    beat = Beat("digits-7", 3, "1.3.1", "gce:77", "b-1", 1, "training", nonce="n", step=1)
    obs = Observation(machine=machine, lookup=NOT_READ, beat=Seen(beat), stop=Absent(), baton=raised("1.3.1"))
    world = World(Knobs("s"), offers={"gce": offers()})
    out = decide(run_in(Status.LAUNCHING, try_=open_try()), obs, world, NOW + after_s)
    assert out.run.status is Status.RUNNING
    assert [event.kind for event in out.events] == kinds

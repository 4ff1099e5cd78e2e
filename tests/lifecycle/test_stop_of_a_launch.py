"""A launch that a stop has canceled teaches nothing about its zone: the next run requests there at once. What a launch
waited for is over once it has its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.actions import Launch, Release
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Machine, MachineState, offer_key
from supervisor.domain.observation import NOT_READ, Absent, CreateFailed, Observation, Seen, Unknown
from supervisor.domain.run import Run, StopRequest, needing
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.living.overriding import GONE
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import NOW, WORLD, machine_of, open_try, run_in

TRY = open_try()
CANCELED = CreateFailed(TRY.launch_id, Cause.LAUNCH_REJECTED, "stopped before the machine was requested")
OBS = Observation(machine=Absent(), beat=Absent(), baton=Absent(), stop=Absent(), create=Seen(CANCELED))


@pytest.mark.parametrize("source", ["api", "marker"])
def test_it_ends_as_a_stop_and_cools_no_zone(source: str) -> None:
    run = run_in(Status.LAUNCHING, try_=TRY)
    obs = OBS
    if source == "api":
        run = replace(run, stop=StopRequest("ops", NOW))
    else:
        obs = replace(obs, stop=Seen("17"))
    lessons, kinds = [], []
    for _ in range(6):
        decision = decide(run, obs, WORLD, NOW)
        run, lessons = decision.run, [*lessons, *decision.lessons]
        kinds += [event.kind for event in decision.events]
        if not decision.again:
            break
    assert run.status == Status.STOPPED
    assert lessons == []
    assert "try_failed" not in kinds
    assert run.try_ is not None
    assert run.try_.outcome == Cause.STOP_REQUESTED


def test_without_a_stop_the_refusal_is_the_zones() -> None:
    decision = decide(run_in(Status.LAUNCHING, try_=TRY), OBS, WORLD, NOW)
    assert [key for key, _ in decision.lessons] == [offer_key(TRY.placement)]


def test_no_search_for_a_machine_that_was_obtained() -> None:
    pending = machine_of(TRY, machine_id="", state=MachineState.ASKED)
    now = TRY.requested_at + 120
    waits = decide(run_in(Status.LAUNCHING, try_=TRY), replace(OBS, create=NOT_READ, machine=Seen(pending)), WORLD, now)
    assert "looking for capacity" in status_text(waits.run, now)
    up = replace(pending, state=MachineState.UP, machine_id="17")
    obtained = decide(waits.run, replace(OBS, create=NOT_READ, machine=Seen(up)), WORLD, now)
    assert obtained.run.live_attempt is not None
    assert "looking for capacity" not in status_text(obtained.run, now)


class TestQueueOfThePlatform:
    """A machine that keeps its place in a queue, such as a job of a cluster."""

    RUN = run_in(Status.LAUNCHING, try_=TRY)
    ASKED = machine_of(TRY, machine_id="12.0", state=MachineState.ASKED)
    QUEUED = replace(ASKED, queued=True, detail="others are first")

    def decided(self, run: Run, now: float, machine: Machine = QUEUED) -> Decision:
        return decide(run, replace(OBS, create=NOT_READ, machine=Seen(machine)), WORLD, now)

    def test_the_wait_says_for_what(self) -> None:
        waits = self.decided(self.RUN, TRY.requested_at + 120).run
        place = f"{TRY.placement.provider}, {TRY.placement.zone}"
        assert f"it is in the queue of {place}, until" in status_text(waits, TRY.requested_at + 120)
        assert "others are first" in waits.hold

    def test_another_wait_says_for_what_where_the_platform_says_it(self) -> None:
        asked = replace(self.ASKED, detail="PENDING", waits_for="no node is free")
        waits = self.decided(self.RUN, TRY.requested_at + 120, asked).run
        assert waits.hold.startswith("the cloud is looking for capacity in ")
        assert waits.hold.endswith(" at most: no node is free")
        assert "PENDING" not in waits.hold

    def test_it_keeps_its_place_as_long_as_the_run_may_wait(self) -> None:
        limit_s = self.RUN.policy.limits.wait_for_capacity_s
        assert limit_s > WORLD.knobs.launch_timeout_s
        (again,) = self.decided(self.RUN, TRY.requested_at + limit_s - 1).actions
        assert isinstance(again, Launch)
        over = self.decided(self.RUN, TRY.requested_at + limit_s)
        assert [type(action) for action in over.actions] == [Release]
        assert over.run.waiting.since == TRY.requested_at, "the wait for capacity began with the queue"

    def test_without_a_queue_the_request_is_given_up_after_its_own_time(self) -> None:
        """The broken variant: a cloud that looks for capacity for a day would hold its run for a day."""
        over = self.decided(self.RUN, TRY.requested_at + WORLD.knobs.launch_timeout_s, self.ASKED)
        assert [type(action) for action in over.actions] == [Release]
        assert over.run.waiting.since is None

    def test_a_short_patience_is_not_shorter_than_a_request(self) -> None:
        limits = replace(self.RUN.policy.limits, wait_for_capacity_s=1.0)
        run = replace(self.RUN, policy=replace(self.RUN.policy, limits=limits))
        (again,) = self.decided(run, TRY.requested_at + 100).actions
        assert isinstance(again, Launch)


def test_a_request_is_canceled_only_when_the_baton_could_be_read() -> None:
    """It may say that the work is done; a stop does not win over that."""
    run = run_in(Status.STOPPING, try_=TRY, stop=StopRequest("ops", NOW))
    asked = replace(OBS, create=NOT_READ, machine=Seen(machine_of(TRY, machine_id="", state=MachineState.ASKED)))
    assert decide(run, replace(asked, baton=Unknown("the store is away")), WORLD, NOW).actions == ()
    (release,) = decide(run, asked, WORLD, NOW).actions
    assert isinstance(release, Release)


class TestMachineOfAPerson:
    """A machine that begins only when a person has done something, such as a notebook with a pasted cell."""

    RUN = run_in(Status.LAUNCHING, try_=TRY)
    NEEDS = "open a notebook and run cell 1"
    ASKED = machine_of(TRY, machine_id="", state=MachineState.ASKED, queued=True, needs=NEEDS)

    def decided(self, run: Run, now: float, machine: Machine = ASKED) -> Decision:
        return decide(run, replace(OBS, create=NOT_READ, machine=Seen(machine)), WORLD, now)

    def test_the_run_needs_that_person_at_once_and_says_so_once(self) -> None:
        first = self.decided(self.RUN, TRY.requested_at + 1)
        assert next_action(first.run, TRY.requested_at + 1).what == "needs you"
        assert f"Needs you: {self.NEEDS}" in status_text(first.run, TRY.requested_at + 1)
        assert [event.kind for event in first.events] == [EventKind.NEEDS_PERSON]
        again = self.decided(first.run, TRY.requested_at + 120)
        assert again.events == ()
        assert again.run == first.run, "no hold beside it: it waits for nothing that ends by itself"
        assert [type(action) for action in again.actions] == [Launch]

    def test_nobody_is_needed_once_it_has_begun_or_will_not(self) -> None:
        waits = self.decided(self.RUN, TRY.requested_at + 1).run
        begun = self.decided(waits, TRY.requested_at + 60, replace(self.ASKED, state=MachineState.UP, machine_id="n1"))
        assert begun.run.person.why == ""
        refused = CreateFailed(TRY.launch_id, Cause.LAUNCH_REJECTED, "the shape is not offered any more")
        ended = decide(waits, replace(OBS, create=Seen(refused)), WORLD, TRY.requested_at + 60)
        assert ended.run.person.why == ""

    def test_what_its_baton_needs_comes_first_and_stays(self) -> None:
        gone = needing(self.RUN, GONE, TRY.requested_at)
        waits = self.decided(gone, TRY.requested_at + 1)
        assert (waits.run.person.why, waits.events) == (GONE, ())
        begun = self.decided(waits.run, TRY.requested_at + 2, replace(self.ASKED, state=MachineState.UP))
        assert begun.run.person.why == GONE

"""Several runs on a host that is billed until somebody stops it: who asks, and when it is handed over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.actions import Release, StopMeter
from supervisor.domain.attempt import Retiring
from supervisor.domain.events import EventKind
from supervisor.domain.machines import How, MachineState
from supervisor.domain.observation import LISTING, Absent, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.phases.teardown import with_host_users
from tests.lifecycle.hosts_world import GOOD, HOST, MACHINE, NOW, PLACE, H, Rounds, approval, metered, saving, verified

GONE = Absent(0.25, LISTING)
AWAY = Unknown("gpu1 cannot be reached")


def other(status: Status = Status.RUNNING, key: int = 2) -> Run:
    return replace(saving(key, "second"), status=status)


def test_a_host_with_another_run_is_left_and_named() -> None:
    for other_run in (other(), other(Status.FINISHING)):
        tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, [other_run], check=Seen(GOOD))
        assert tick.run.status == Status.COMPLETED
        assert EventKind.NEEDS_PERSON not in tick.kinds(), "only the last run asks"
        assert "gpu1 is still used by second, so its bill goes on." in tick.events[-1].text
        assert tick.run.retiring[0].bill is None, "its own processes are released"


def leaving() -> Run:
    """Preempted on gpu1, and launched elsewhere; its old machine is still to be released."""
    elsewhere = replace(PLACE, zone="gpu2")
    old = Retiring(verified(metered()).retiring[0].ref, "1.1.1", NOW - 5, NOW - 5)
    moved = other()
    assert moved.attempt is not None
    return replace(moved, attempt=replace(moved.attempt, placement=elsewhere), try_=None, retiring=(old,))


def waiting_elsewhere() -> Run:
    """It asks about gpu2, and an older machine of it is still to be released on gpu1."""
    (item,) = verified(metered()).retiring
    asked = replace(item, ref=replace(item.ref, name="m-9", zone="gpu2"))
    return replace(leaving(), key=0, status=Status.AWAITING_TEARDOWN, retiring=(*leaving().retiring, asked))


@pytest.mark.parametrize("there", [leaving(), replace(other(), attempt=None), waiting_elsewhere()])
def test_a_host_is_not_handed_over_to_a_run_that_will_never_ask(there: Run) -> None:
    """Its bill would run for ever. It asks as soon as it is alone; a person who has stopped the host is believed."""
    blocked = Rounds(saving(), Seen(MACHINE), metered(), NOW, [there], check=Seen(GOOD))
    assert (blocked.run.status, blocked.did(Release)) == (Status.AWAITING_TEARDOWN, [])
    assert EventKind.NEEDS_PERSON not in blocked.kinds()
    alone = Rounds(blocked.run, Seen(MACHINE), metered(), NOW + 30)
    assert EventKind.NEEDS_PERSON in alone.kinds()
    early = replace(blocked.run, approval=approval(NOW + 10))
    for how in (How.COMMAND, How.ASK):
        tick = Rounds(early, GONE, metered(how), NOW + 30, [there])
        assert not tick.did(StopMeter)
        assert EventKind.NEEDS_PERSON not in tick.kinds()
    assert Rounds(early, GONE, metered(), NOW + 60).did(StopMeter)
    seen_by_a_person = replace(early, approval=approval(NOW + 10, meter_stopped=True))
    assert Rounds(seen_by_a_person, AWAY, metered(), NOW + 30, [there]).run.status == Status.COMPLETED


def test_machines_of_others_on_the_host_count_and_ended_ones_do_not() -> None:
    foreign = replace(MACHINE, name="m-9", supervisor_id="supervisor-9", run_id="theirs")
    tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, machines=[foreign], check=Seen(GOOD))
    assert "gpu1 is still used by m-9 of another supervisor" in tick.events[-1].text
    elsewhere = replace(MACHINE, name="m-8", run_id="of-another-cell")
    tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, machines=[elsewhere, MACHINE], check=Seen(GOOD))
    assert "used by of-another-cell, so" in tick.events[-1].text
    ending = replace(foreign, state=MachineState.ENDING)
    tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, machines=[ending, MACHINE], check=Seen(GOOD))
    assert (tick.run.status, tick.kinds().count(EventKind.NEEDS_PERSON)) == (Status.AWAITING_TEARDOWN, 0)
    over = replace(foreign, state=MachineState.ENDED)
    tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, machines=[over, MACHINE], check=Seen(GOOD))
    assert tick.run.status == Status.AWAITING_TEARDOWN


def test_a_machine_that_is_kept_for_a_person_keeps_its_host() -> None:
    kept = replace(other(Status.FAILED), kept_until=NOW + H, retiring=verified(metered()).retiring)
    kept = replace(kept, try_=None, attempt=None)
    released = replace(kept, kept_until=None)
    for there, asked in ((kept, 0), (released, 1)):
        tick = Rounds(saving(), Seen(MACHINE), metered(), NOW, [there], check=Seen(GOOD))
        assert tick.run.status == Status.AWAITING_TEARDOWN
        assert tick.kinds().count(EventKind.NEEDS_PERSON) == asked
        assert (
            len(
                Rounds(
                    replace(verified(metered()), approval=approval(NOW + 10)), GONE, metered(), NOW + 60, [there]
                ).did(StopMeter)
            )
            == asked
        )


@pytest.mark.parametrize("decided", [False, True])
def test_of_two_runs_that_end_together_exactly_one_asks_and_stops_the_host(decided: bool) -> None:
    first, second = verified(metered()), replace(verified(metered()), key=2, run_id="second")
    if decided:
        first, second = (replace(run, approval=approval(NOW + 1)) for run in (first, second))
    older = Rounds(first, GONE, metered(), NOW + 30, [second])
    newer = Rounds(second, GONE, metered(), NOW + 30, [first])
    assert (older.run.status, newer.run.status) == (Status.AWAITING_TEARDOWN, Status.COMPLETED)
    assert (len(older.did(StopMeter)), newer.did(StopMeter)) == (decided, [])


def test_nothing_is_started_on_a_host_whose_end_is_approved() -> None:
    run = verified(metered())
    assert with_host_users(metered(), [run], (), bool).unread == frozenset()
    closing = replace(run, approval=approval(NOW + 1))
    assert with_host_users(metered(), [closing], (), bool).unread == {"gpu1"}
    two = replace(metered(), sources={"lab": "machines of lab", "local": "machines of local"})
    assert with_host_users(two, [closing], (), bool).unread == {"gpu1 of lab"}
    assert with_host_users(two, [closing], (), bool).host_users[HOST][0].waits

"""The two create calls of a race: whether each may have been sent before, and which end belongs to which."""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.actions import Launch, RaiseNext
from supervisor.domain.attempt import Try
from supervisor.domain.causes import Cause
from supervisor.domain.observation import CreateFailed, Part, Seen
from supervisor.domain.status import Status
from supervisor.ports.store import Lease
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.outcomes import Outcomes
from tests.fakes.provider import offers_in
from tests.lifecycle.sample_runs import NOW, run_in
from tests.reconciler.test_stop_before_the_call import Stand

PLACES = [offer.placement for offer in offers_in(["a", "b"])]
FIRST = Try(1, 1, "1.1.1", "spot-0badcafe-a1-t1", PLACES[0], NOW)
RIVAL = Try(1, 2, "1.1.2", "spot-0badcafe-a1-t2", PLACES[1], NOW, beside="1.1.1")
RACING = run_in(Status.LAUNCHING, provider="local", try_=FIRST, rival=RIVAL)
LEASE = Lease("cell", "me", 1, 1e9)


def calls(stand: Stand, *tries: Try) -> list[tuple[str, bool]]:
    """(machine, whether its call may have been sent before), of these calls."""
    before = len(stand.provider.launches)
    for try_ in tries:
        stand.actor.submit(RACING, Launch(try_, holder_gone=True), LEASE)
    return [(request.name[-2:], request.repeated) for request in stand.provider.launches[before:]]


def test_each_call_counts_as_repeated_from_its_second_time_on() -> None:
    for one, other in ((FIRST, RIVAL), (RIVAL, FIRST)):  # threads keep no order between the two
        stand = Stand(RACING)
        assert [repeated for _, repeated in calls(stand, one, other)] == [False, False]
        assert [repeated for _, repeated in calls(stand, one, other)] == [True, True]


def test_after_a_crash_both_calls_count_as_repeated_and_carry_their_nonces_again() -> None:
    crashed, restarted = Stand(RACING), Stand(RACING)
    calls(crashed, FIRST, RIVAL)
    restarted.objects.put(runfiles.baton("digits-7"), crashed.objects.get(runfiles.baton("digits-7"))[0])
    assert calls(restarted, FIRST, RIVAL) == [("t1", True), ("t2", True)]
    before, after = ([request.job["nonce"] for request in stand.provider.launches] for stand in (crashed, restarted))
    assert before == after
    assert before[0] != before[1]


def test_the_baton_names_the_second_launch_with_the_nonce_of_its_machine_when_that_has_won() -> None:
    stand = Stand(RACING)
    calls(stand, FIRST, RIVAL)
    won = replace(RACING, try_=RIVAL, rival=replace(FIRST, ended_at=NOW, outcome=Cause.RACE_LOST))
    stand.actor.submit(won, RaiseNext(RIVAL, holder_gone=True), LEASE)
    next_ = batons.decode(stand.objects.get(runfiles.baton("digits-7"))[0]).next
    assert next_ is not None
    assert (next_.launch_id, next_.nonce) == ("1.1.2", stand.provider.launches[1].job["nonce"])
    assert next_.nonce == batonwork.rival_nonce(str(stand.provider.launches[0].job["nonce"]), "1.1.2")


def test_the_end_of_each_call_is_known_whichever_comes_last() -> None:
    for order in (("1.1.1", "1.1.2"), ("1.1.2", "1.1.1")):
        outcomes = Outcomes()
        for launch_id in (*order, order[0]):
            outcomes.create_failed(1, CreateFailed(launch_id, Cause.NO_CAPACITY, launch_id))
        outcomes.moved(1)
        ends: list[Part[CreateFailed]] = [outcomes.of(1).create_of(launch_id) for launch_id in order]
        assert [end.value.detail for end in ends if isinstance(end, Seen)] == list(order)

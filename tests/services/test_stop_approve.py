"""Stop and approve: written to the row at once, guarded, safe to repeat, refused where they have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from supervisor.domain.attempt import Bill
from supervisor.domain.callers import Caller
from supervisor.domain.errors import ApprovalMismatch, NotFound, NothingToApprove, VerbNotOffered
from supervisor.domain.events import Event
from supervisor.domain.machines import How
from supervisor.domain.run import Files, Outcome, Person
from supervisor.domain.status import Status
from supervisor.ports.store import Transaction
from supervisor.services.reading.teardown import TeardownShown, offered_verbs, teardown_json
from supervisor.services.runs.actions import ApproveRequest, Verbs, approve, stop
from supervisor.services.runs.changing import change
from tests.fakes.callers import OPS
from tests.fakes.meters import meters_of
from tests.services.bed import Bed

SEEN = "ab" * 32


def test_a_stop_is_on_record_at_once_and_wakes_the_loop(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.wake.sets = 0
    run = change(bed.parts, "digits-7", stop(OPS))
    assert run.stop is not None
    assert (run.stop.actor, run.stop.at, run.stop.source) == ("ops", bed.clock.now(), "api")
    assert bed.run("digits-7").status == Status.RUNNING, "the loop does the rest"
    assert bed.events("digits-7")[-1] == "stop_requested"
    assert bed.wake.sets == 1


def test_a_stop_twice_is_a_stop_once(bed: Bed) -> None:
    bed.submit("digits-7")
    first = change(bed.parts, "digits-7", stop(OPS))
    assert change(bed.parts, "digits-7", stop(Caller(actor="somebody else"))) == first
    assert bed.events("digits-7").count("stop_requested") == 1


def test_a_terminal_run_is_given_back_as_it_is(bed: Bed) -> None:
    bed.submit("digits-7")
    ended = bed.end("digits-7", Status.COMPLETED)
    assert change(bed.parts, "digits-7", stop(OPS)) == ended


def test_finished_and_verified_work_is_not_stopped(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.change("digits-7", status=Status.AWAITING_TEARDOWN)
    assert change(bed.parts, "digits-7", stop(OPS)).stop is None
    assert bed.events("digits-7")[-1] == "stop_ignored"


def test_a_stop_is_recorded_even_when_the_loop_writes_at_the_same_time(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken variant: without a second read after a missed update, this stop would be lost."""
    bed.submit("digits-7")
    begin, misses = bed.store.begin, []

    class Missing:
        def __init__(self, tx: Transaction) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> object:
            return getattr(self._tx, name)

        def apply(self, change: object, now: float) -> None:
            misses.append(change)

    @contextmanager
    def racing(now: float) -> Iterator[object]:
        with begin(now) as tx:
            yield Missing(tx) if len(misses) < 2 else tx

    monkeypatch.setattr(bed.store, "begin", racing)
    assert change(bed.parts, "digits-7", stop(OPS)).stop is not None
    assert len(misses) == 2
    assert bed.run("digits-7").stop is not None


def test_no_such_run(bed: Bed) -> None:
    with pytest.raises(NotFound):
        change(bed.parts, "digits-7", stop(OPS))
    with pytest.raises(NotFound):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1"), OPS))


# --- approve ----------------------------------------------------------------------------------------------------------


def verified(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.end("digits-7", Status.AWAITING_TEARDOWN, files=Files(outcome=Outcome(SEEN, 3, 412, bed.clock.now(), 1000)))


def test_an_approval_of_the_current_machine_and_results(bed: Bed) -> None:
    verified(bed)
    run = change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS))
    assert run.approval is not None
    assert (run.approval.actor, run.approval.machine_id, run.approval.results_sha256) == ("ops", "id-1", SEEN)
    assert bed.events("digits-7")[-1] == "approved"
    assert change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS)) == run, "twice is once"


@pytest.mark.parametrize(
    "request_", [ApproveRequest("id-2", SEEN), ApproveRequest("id-1", "cd" * 32), ApproveRequest("id-1")]
)
def test_an_approval_must_name_the_current_machine_and_results(bed: Bed, request_: ApproveRequest) -> None:
    verified(bed)
    with pytest.raises(ApprovalMismatch):
        change(bed.parts, "digits-7", approve(request_, OPS))
    assert bed.run("digits-7").approval is None


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FINISHING, Status.COMPLETED])
def test_nothing_awaits_an_approval(bed: Bed, status: Status) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.change("digits-7", status=status)
    with pytest.raises(NothingToApprove):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS))


def test_unverified_results_can_only_be_given_up_with_a_reason(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.change("digits-7", status=Status.FINISHING, person=Person(why="results differ from their manifest"))
    with pytest.raises(NothingToApprove, match="accept_loss"):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1"), OPS))
    with pytest.raises(ApprovalMismatch):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-2", "", "not needed"), OPS))
    run = change(bed.parts, "digits-7", approve(ApproveRequest("id-1", "", "not needed"), OPS))
    assert run.approval is not None
    assert run.approval.accept_loss == "not needed"
    assert bed.events("digits-7")[-1] == "loss_accepted"


# --- a host that is billed until somebody stops it --------------------------------------------------------------------


def last_event(bed: Bed) -> Event:
    return bed.store.events("digits-7", 0, 1000)[-1].event


def on_a_host(bed: Bed, how: How = How.COMMAND) -> Verbs:
    """Its results are verified, and it waits for an approval. The verbs that may be approved."""
    bed.provider.meters = meters_of("local-a", how=how)
    verified(bed)
    (item,) = bed.run("digits-7").retiring
    bed.change("digits-7", retiring=(replace(item, bill=Bill(how, "terminate", confirms=True, announced=True)),))
    return partial(offered_verbs, bed.parts)


def test_an_approval_without_a_verb_means_what_usually_stops_the_bill(bed: Bed) -> None:
    verbs = on_a_host(bed)
    run = change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS, verbs))
    assert run.approval is not None
    assert (run.approval.verb, run.approval.meter_stopped) == ("terminate", False)
    assert change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS, verbs)) == run, "twice is once"
    named = ApproveRequest("id-1", SEEN, verb="terminate")
    assert change(bed.parts, "digits-7", approve(named, OPS, verbs)) == run
    assert last_event(bed).text == "ops approved `terminate` of local-a."


def test_an_approval_names_one_verb_of_the_profile(bed: Bed) -> None:
    verbs = on_a_host(bed)
    with pytest.raises(VerbNotOffered, match="expected terminate or stop"):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, verb="explode"), OPS, verbs))
    run = change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, verb="stop"), OPS, verbs))
    assert run.approval is not None
    assert run.approval.verb == "stop"


def test_a_confirmation_is_an_approval_that_keeps_the_verb(bed: Bed) -> None:
    verbs = on_a_host(bed, How.ASK)
    change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, verb="stop"), OPS, verbs))
    with pytest.raises(ApprovalMismatch):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-2", SEEN, meter_stopped=True), OPS, verbs))
    run = change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, meter_stopped=True), OPS, verbs))
    assert run.approval is not None
    assert (run.approval.verb, run.approval.meter_stopped) == ("stop", True)
    event = last_event(bed)
    assert (event.kind, event.actor) == ("approved", "ops")
    assert event.text == "ops confirmed that local-a is billed no more (`stop`)."


def test_a_machine_whose_release_ends_its_bill_has_nothing_to_confirm(bed: Bed) -> None:
    verified(bed)
    with pytest.raises(NothingToApprove, match="no bill that a person confirms"):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, meter_stopped=True), OPS))
    with pytest.raises(VerbNotOffered):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, verb="stop"), OPS))
    run = change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN, verb="release"), OPS))
    assert run.approval is not None
    assert run.approval.verb == ""


def test_how_a_machine_is_given_back_is_shown_with_what_each_verb_leaves(bed: Bed) -> None:
    bed.submit("digits-7")
    bare = teardown_json(bed.parts, bed.run("digits-7"))
    assert (bare["machine_id"], bare["host"], bare["how"], bare["approved"]) == (None, None, "release", None)
    shown = teardown_of(bed)
    assert (shown["host"], shown["how"], shown["confirms"]) == ("local-a", "command", True)
    assert [(verb["verb"], verb["usual"]) for verb in shown["verbs"]] == [("terminate", True), ("stop", False)]
    assert shown["verbs"][0]["stops_meter"]["text"] == "unknown", "the profile of this provider has no such verb"


def teardown_of(bed: Bed) -> TeardownShown:
    bed.provider.meters = meters_of("local-a")
    bed.train("digits-7")
    return teardown_json(bed.parts, bed.run("digits-7"))

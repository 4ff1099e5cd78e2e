"""Resume: what a new generation starts with, what it keeps, and its race with a .stop marker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract import runfiles
from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.errors import Conflict, InvalidRequest, NotFound, RunActive, RunStopping, StopNewer, Unavailable
from supervisor.domain.machines import MachineRef
from supervisor.domain.run import Approval, Counters, Files, Image, Money, Outcome, Person, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing
from tests.services.bed import COMMAND, Bed

MARKER = runfiles.stop_marker("digits-7")


def stopped(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    stop, files = StopRequest("local", bed.clock.now()), Files(checkpoint_step=100)
    bed.end("digits-7", cause=Cause.STOP_REQUESTED, stop=stop, files=files)


def test_a_new_generation_resets_its_budgets_and_keeps_the_totals(bed: Bed) -> None:
    stopped(bed)
    bed.change(
        "digits-7",
        counters=Counters(4, 9, 2, 3, 1, 2, 2, (1.0,)),
        money=Money(cost_usd=2.5),
        training_s=99.0,
        detail="old",
        hold="old",
        person=Person(why="old"),
        avoid_zone="local-a",
        kept_until=bed.clock.now() + 500,
        approval=Approval("local", 1.0, "id-1", "ff"),
        files=Files(100, outcome=Outcome("ff", 1, 2, 3.0, 4)),
        settled=True,
    )
    before = bed.run("digits-7")
    resumed = bed.resume("digits-7")
    after = bed.run("digits-7")
    assert resumed.changed
    assert after == replace(
        before,
        generation=2,
        status=Status.PENDING,
        status_since=bed.clock.now(),
        generation_at=bed.clock.now(),
        cause=None,
        detail="",
        hold="",
        person=replace(before.person, why=""),
        avoid_zone="",
        kept_until=None,
        approval=None,
        files=Files(100),
        stop=None,
        settled=False,
        training_s=0.0,
        money=replace(before.money, budget_from_usd=2.5),
        counters=Counters(4, 9, 2),
        no_progress_base=100,
        retiring=tuple(replace(item, until=bed.clock.now()) for item in before.retiring),
        version=before.version + 1,
    )


@pytest.mark.parametrize(
    ("cause", "detail", "kept"),
    [
        (Cause.IMAGE_ERROR, "no Python 3.8 or newer in this image", ""),
        (Cause.IMAGE_ERROR, "the code bundle 0123 differs", "train@sha256:1"),
        (Cause.STOP_REQUESTED, "", "train@sha256:1"),
    ],
)
def test_only_a_broken_image_is_resolved_again(bed: Bed, cause: Cause, detail: str, kept: str) -> None:
    stopped(bed)
    bed.change("digits-7", cause=cause, detail=detail, image=Image(digest="train@sha256:1", pinned_for="train:1"))
    bed.resume("digits-7")
    after = bed.run("digits-7")
    assert (after.image.digest, after.image.pinned_for) == (kept, "train:1" if kept else "")


def test_the_machine_of_a_run_that_was_not_settled_stays_on_the_way_out(bed: Bed) -> None:
    stopped(bed)
    ref = MachineRef("local", "local-a", "m-a1", "id-1")
    now = bed.clock.now()
    bed.change("digits-7", retiring=(Retiring(ref, "1.1.1", now - 10, now + 3600, "kept"),))
    bed.resume("digits-7")
    (kept,) = bed.run("digits-7").retiring
    assert kept.ref == ref
    assert kept.until == now, "a machine that was kept for a person is released now"


def test_a_live_run_is_left_alone(bed: Bed) -> None:
    bed.submit("digits-7")
    before = bed.run("digits-7")
    assert not bed.resume("digits-7").changed
    assert bed.run("digits-7") == before
    with pytest.raises(RunActive):
        bed.resume("digits-7", {"command": "other"}, replace_spec=True)


@pytest.mark.parametrize("fields", [{"status": Status.STOPPING}, {"stop": StopRequest("local", 1.0)}])
def test_a_run_that_is_being_stopped_cannot_be_resumed(bed: Bed, fields: dict[str, object]) -> None:
    bed.submit("digits-7")
    bed.change("digits-7", **fields)
    with pytest.raises(RunStopping):
        bed.resume("digits-7")


def test_a_finished_run_that_awaits_its_teardown_cannot_be_resumed(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.change("digits-7", status=Status.AWAITING_TEARDOWN)
    with pytest.raises(Conflict):
        bed.resume("digits-7")


def test_no_such_run(bed: Bed) -> None:
    with pytest.raises(NotFound):
        bed.resume("digits-7")


def test_a_spec_whose_deadline_has_passed_is_refused_with_advice(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "limits": {"deadline": "2027-01-15T08:01:00Z"}})
    bed.end("digits-7", Status.FAILED)
    bed.clock.advance(3600)
    with pytest.raises(InvalidRequest, match="deadline"):
        bed.resume("digits-7")
    assert bed.resume("digits-7", COMMAND, replace_spec=True).changed


# --- the stop marker --------------------------------------------------------------------------------------------------


def test_the_marker_is_recorded_as_used_up_and_deleted(bed: Bed) -> None:
    stopped(bed)
    marker = bed.objects.put(MARKER, b"")
    bed.resume("digits-7")
    assert bed.run("digits-7").stop_consumed == marker.generation
    with pytest.raises(ObjectMissing):
        bed.objects.stat(MARKER)


def test_a_marker_that_cannot_be_read_prevents_the_resume(bed: Bed) -> None:
    stopped(bed)
    bed.objects.fail_reads = True
    with pytest.raises(Unavailable):
        bed.resume("digits-7")
    assert bed.run("digits-7").status == Status.STOPPED


def test_a_marker_that_cannot_be_deleted_is_recorded_all_the_same(bed: Bed) -> None:
    stopped(bed)
    marker = bed.objects.put(MARKER, b"")
    bed.objects.fail_writes = True
    assert bed.resume("digits-7").changed
    assert bed.run("digits-7").stop_consumed == marker.generation


def test_a_marker_written_while_we_resume_wins(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(bed)
    first = bed.objects.put(MARKER, b"")
    begin = bed.store.begin

    def meanwhile(now: float) -> object:
        bed.objects.put(MARKER, b"again")
        return begin(now)

    monkeypatch.setattr(bed.store, "begin", meanwhile)
    with pytest.raises(StopNewer):
        bed.resume("digits-7")
    assert bed.objects.stat(MARKER).generation != first.generation
    assert bed.run("digits-7").stop_consumed == first.generation, "the newer one is not consumed, so the loop stops"


def test_an_old_consumed_marker_is_remembered(bed: Bed) -> None:
    stopped(bed)
    bed.change("digits-7", stop_consumed="17")
    bed.resume("digits-7")
    assert bed.run("digits-7").stop_consumed == "17"


def test_a_run_that_ends_between_read_and_write_is_read_again(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marker must be read first: the first read saw a live run and no marker."""
    bed.submit("digits-7")
    marker = bed.objects.put(MARKER, b"")
    begin, ended = bed.store.begin, []

    def meanwhile(now: float) -> object:
        if not ended:
            ended.append(True)
            bed.end("digits-7")
        return begin(now)

    monkeypatch.setattr(bed.store, "begin", meanwhile)
    assert bed.resume("digits-7").changed
    assert bed.run("digits-7").stop_consumed == marker.generation


def test_a_run_of_another_supervisors_machines_is_resumed_in_its_own_cell(bed: Bed) -> None:
    bed.submit("digits-7")
    provider, _, bucket = bed.parts.cells["local"].partition(" ")
    theirs = f"{provider} their-machines {bucket}"
    bed.end("digits-7", cell=theirs)
    assert bed.resume("digits-7").changed
    assert bed.run("digits-7").cell == theirs

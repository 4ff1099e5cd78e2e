"""Purge: refusals, the order of its actions, the state after an interruption, and later writers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, BatonRefused, Done, FileEntry, Holder, Next, Pointer
from supervisor.domain.errors import FilesPurged, InvalidRequest, NotFound, PurgeRefused, PurgeRunning, Unavailable
from supervisor.domain.run import Files, Outcome
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing
from supervisor.services.logs.logs import Part
from supervisor.services.runs.purge import Purged, purge, refuse_purged
from tests.fakes.callers import OPS
from tests.services.bed import Bed

RUN = "digits-7"
AGENT = ("1.1.1", "id-1")
POINTER = Pointer(100, runfiles.checkpoint(RUN, 100, 1), (FileEntry("step-100.pt", 3, "ab"),))
FILES = {
    runfiles.checkpoint(RUN, 100, 1) + "step-100.pt": b"abc",
    runfiles.checkpoint(RUN, 90, 1, best=True) + "best.pt": b"abc",
    runfiles.results(RUN, 1) + "model.pt": b"abcd",
    runfiles.log_chunk(RUN, 1, 1): b"hello\n",
    runfiles.evidence(RUN, 1): b"{}",
    runfiles.manifest(RUN): b"{}",
    runfiles.beat(RUN): b"{}",
}
OTHERS = {runfiles.beat(RUN + "0"): b"{}", runfiles.manifest(RUN + "0"): b"{}", runfiles.code("ab"): b"tar"}


def over(bed: Bed, **fields: object) -> None:
    """A settled run with files of every kind, beside files of another run."""
    bed.submit(RUN)
    bed.train(RUN)
    run = bed.run(RUN)
    assert run.attempt is not None
    now = bed.clock.now()
    gone = replace(run.attempt, ended_at=now, gone_at=now)
    bed.end(RUN, attempt=gone, try_=None, retiring=(), settled=True, files=Files(checkpoint_step=100))
    if fields:
        bed.change(RUN, **fields)
    holder = Holder(1, *AGENT, left=True)
    done = Done(AGENT[0], runfiles.results(RUN, 1), (FileEntry("model.pt", 4, "cd"),))
    baton = Baton(
        "sup", 1, Next(1, 1, AGENT[0], "n"), holder, POINTER, (POINTER,), (POINTER,), (POINTER,), done, "stopped"
    )
    bed.objects.put(runfiles.baton(RUN), batons.encode(baton))
    for key, data in {**FILES, **OTHERS}.items():
        bed.objects.put(key, data)
    bed.clock.advance(60)


def purge_it(bed: Bed) -> Purged:
    return purge(bed.parts, RUN, RUN, OPS)


def keys(bed: Bed) -> set[str]:
    return {info.key for page in bed.objects.pages("") for info in page.objects}


def the_baton(bed: Bed) -> Baton:
    return batons.decode(bed.objects.get(runfiles.baton(RUN))[0])


def told(bed: Bed) -> list[tuple[str, str]]:
    stored = bed.store.events(RUN, 0, 1000)
    return [(one.event.text, one.event.actor) for one in stored if one.event.kind == "purged"]


def test_everything_is_deleted_except_the_baton_the_history_and_shared_objects(any_bed: Bed) -> None:
    over(any_bed)
    done = purge_it(any_bed)
    assert keys(any_bed) == {runfiles.baton(RUN), *OTHERS}
    assert (done.files, done.size_bytes) == (len(FILES), sum(map(len, FILES.values())))
    run = any_bed.run(RUN)
    assert (run.files.purging, run.files.purged_at, run.files.checkpoint_step) == (False, any_bed.clock.now(), None)
    assert told(any_bed) == [
        ("Purge requested by ops: all files of the run are deleted, its history stays.", "ops"),
        ("Purged by ops: 7 files, 22 B deleted. A resume starts from nothing.", "ops"),
    ]
    assert len(any_bed.store.attempts(run.key)) == 1


def test_no_old_agent_writes_afterwards(bed: Bed) -> None:
    over(bed)
    purge_it(bed)
    left = the_baton(bed)
    assert batons.pointers(left) == ()
    assert (left.done, left.closed) == (None, batons.PURGED)
    for write in (batons.move_checkpoint, batons.keep_best):
        with pytest.raises(BatonRefused):
            write(left._replace(holder=Holder(1, *AGENT)), *AGENT, POINTER)


def test_a_resume_starts_from_nothing_and_says_so(any_bed: Bed) -> None:
    over(any_bed)
    purge_it(any_bed)
    any_bed.clock.advance(5)
    any_bed.resume(RUN)
    run = any_bed.run(RUN)
    assert (run.generation, run.files.checkpoint_step, run.pulse, run.files_gone) == (2, None, None, False)
    resumed = [one.event for one in any_bed.store.events(RUN, 0, 1000) if one.event.kind == "resumed"]
    assert "starts from nothing, because its files were purged" in resumed[0].text
    opened = batons.open_generation(the_baton(any_bed), 2, False, None)
    assert (opened.checkpoint, opened.closed) == (None, None)


@pytest.mark.parametrize("typed", ["", "digits", "digits-70"])
def test_another_name_deletes_nothing(bed: Bed, typed: str) -> None:
    over(bed)
    before = keys(bed)
    with pytest.raises(InvalidRequest):
        purge(bed.parts, RUN, typed, OPS)
    assert keys(bed) == before
    assert told(bed) == []


def test_an_unknown_run_is_not_found(bed: Bed) -> None:
    with pytest.raises(NotFound):
        purge(bed.parts, "nobody-1", "nobody-1", OPS)


@pytest.mark.parametrize("status", [status for status in Status if status not in ("completed", "partial")])
def test_while_a_machine_may_write_a_purge_is_refused_with_its_reason(bed: Bed, status: Status) -> None:
    bed.submit(RUN)
    bed.train(RUN)
    terminal = status in (Status.STOPPED, Status.FAILED)
    if terminal:
        bed.end(RUN, status)
    else:
        bed.change(RUN, status=status)
    bed.objects.put(runfiles.manifest(RUN), b"{}")
    with pytest.raises(PurgeRefused) as refused:
        purge_it(bed)
    cures = {Status.AWAITING_TEARDOWN: "spot approve digits-7"}  # a stop changes nothing there
    assert ("m-a1" if terminal else cures.get(status, f"it is {status}: stop it")) in refused.value.detail
    assert keys(bed) == {runfiles.manifest(RUN)}
    assert not bed.run(RUN).files.purging


def test_a_kept_machine_refuses_it_and_is_named_with_its_time(bed: Bed) -> None:
    bed.submit(RUN)
    bed.train(RUN)
    bed.end(RUN, Status.COMPLETED, kept_until=bed.clock.now() + 500)
    with pytest.raises(PurgeRefused, match="m-a1 may still write, kept until 20"):
        purge_it(bed)


def test_an_earlier_machine_that_is_not_known_gone_refuses_it(bed: Bed) -> None:
    over(bed)
    run = bed.run(RUN)
    assert run.attempt is not None
    bed.change(RUN, attempt=replace(run.attempt, gone_at=None))
    with pytest.raises(PurgeRefused, match="m-a1 is not known to be gone"):
        purge_it(bed)


def test_records_that_are_still_written_refuse_it(bed: Bed) -> None:
    over(bed, settled=False)
    with pytest.raises(PurgeRefused, match="retry in a moment"):
        purge_it(bed)


def test_a_supervisor_that_ends_does_not_wait_for_it(bed: Bed) -> None:
    """Broken variant: a purge of 60,000 files delayed the end of the process for minutes."""
    over(bed)
    bed.parts.closing.set()
    with pytest.raises(Unavailable, match="being stopped: the purge of digits-7 was interrupted after 0 f"):
        purge_it(bed)
    assert bed.run(RUN).files.purging
    bed.parts.closing.clear()
    assert purge_it(bed).files == len(FILES)
    assert not bed.run(RUN).files.purging


def test_a_store_that_goes_away_leaves_it_visible_and_repeating_finishes_it(any_bed: Bed) -> None:
    over(any_bed)
    any_bed.objects.fail_prefixes.add(runfiles.logs(RUN, 1))
    with pytest.raises(Unavailable, match="interrupted after"):
        purge_it(any_bed)
    run = any_bed.run(RUN)
    assert (run.files.purging, run.files.purged_at) == (True, None)
    assert batons.pointers(the_baton(any_bed)) == ()  # emptied before anything is deleted
    shown = any_bed.services.queries.show(RUN)
    assert shown["purging"] is True
    assert "being purged" in shown["status_text"]
    with pytest.raises(PurgeRunning):
        any_bed.resume(RUN)
    with pytest.raises(PurgeRunning):
        any_bed.submit(RUN)
    any_bed.objects.fail_prefixes.clear()
    purge_it(any_bed)
    assert keys(any_bed) == {runfiles.baton(RUN), *OTHERS}
    assert "requested again by ops" in told(any_bed)[1][0]


def test_a_torn_baton_is_replaced_and_a_missing_one_is_not_made(bed: Bed) -> None:
    over(bed)
    bed.objects.put(runfiles.baton(RUN), b"{torn")
    purge_it(bed)
    assert the_baton(bed).closed == batons.PURGED
    bed.objects.delete(runfiles.baton(RUN))
    purge_it(bed)
    with pytest.raises(ObjectMissing):
        bed.objects.get(runfiles.baton(RUN))


def test_logs_of_a_purged_run_say_when_they_went(bed: Bed) -> None:
    over(bed)
    assert bed.services.logs.show(RUN, 1, Part(0, 1000))["text"] == "hello\n"
    purge_it(bed)
    with pytest.raises(FilesPurged, match="were purged at 20"):
        bed.services.logs.show(RUN, 1, Part(0, 1000))
    bed.clock.advance(100)
    bed.resume(RUN)
    bed.train(RUN, 2)
    with pytest.raises(FilesPurged):
        bed.services.logs.show(RUN, 1, Part(0, 1000))
    assert bed.services.logs.show(RUN, 2, Part(0, 1000))["text"] == ""
    refuse_purged(bed.run(RUN))


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.PARTIAL, Status.FAILED, Status.STOPPED])
def test_the_sentence_says_that_the_files_are_gone(bed: Bed, status: Status) -> None:
    over(bed, status=status, files=Files(outcome=Outcome("ff", 1, 2, 3.0, 4)))
    purge_it(bed)
    assert "files were purged at" in bed.services.queries.show(RUN)["status_text"]


def test_a_full_store_is_made_room_in(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baton must be written before the files are deleted, and users purge when the disk is full."""
    over(bed)
    delete = bed.objects.delete

    def makes_room(key: str, if_generation: str | None = None) -> bool:
        first = (runfiles.log_chunk(RUN, 1, 1), runfiles.evidence(RUN, 1))
        assert key in first or the_baton(bed).checkpoint is None
        found = delete(key, if_generation)
        bed.objects.full = False
        return found

    monkeypatch.setattr(bed.objects, "delete", makes_room)
    bed.objects.full = True
    assert purge_it(bed).files == len(FILES)
    assert keys(bed) == {*OTHERS, runfiles.baton(RUN)}
    assert the_baton(bed).checkpoint is None


def test_a_store_that_stays_full_is_said(bed: Bed) -> None:
    over(bed)
    bed.objects.full = True
    with pytest.raises(Unavailable, match="The object store is full: the purge of digits-7 was interrupted after 2 f"):
        purge_it(bed)
    bed.objects.full = False
    purge_it(bed)
    assert keys(bed) == {*OTHERS, runfiles.baton(RUN)}

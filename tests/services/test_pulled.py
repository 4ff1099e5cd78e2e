"""A pull is recorded once, only for the current results, and releases a machine that waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.errors import NotFound, PullMismatch, PullRequired
from supervisor.domain.run import Files, Outcome
from supervisor.domain.status import Status
from supervisor.services.runs.actions import ApproveRequest, approve, note_pull
from supervisor.services.runs.changing import change
from tests.fakes.callers import OPS
from tests.services.bed import Bed

SEEN = "ab" * 32


def verified(bed: Bed, require_pull: bool = True) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    policy = replace(run.policy, require_pull=require_pull, on_success="ask")
    outcome = Outcome(SEEN, 3, 412, bed.clock.now(), 1000)
    bed.end("digits-7", Status.AWAITING_TEARDOWN, files=Files(outcome=outcome), policy=policy)


def test_a_pull_is_recorded_once_with_its_actor(bed: Bed) -> None:
    verified(bed)
    shown = bed.services.queries.show("digits-7")["results"]
    assert (shown["pulled"], shown["pull_required"]) == (False, True)
    run = change(bed.parts, "digits-7", note_pull(SEEN, 3, OPS))
    assert run.files.pulled_sha256 == SEEN
    assert change(bed.parts, "digits-7", note_pull(SEEN, 3, OPS)) == run
    assert bed.events("digits-7").count("results_pulled") == 1
    [event] = [one.event for one in bed.store.events("digits-7", 0, 99) if one.event.kind == "results_pulled"]
    values = {"before": {"pulled": None}, "after": {"pulled": SEEN}}
    assert (event.actor, event.data) == ("ops", {"results_sha256": SEEN, "files": 3, **values})
    assert bed.services.queries.show("digits-7")["results"]["pulled"] is True


@pytest.mark.parametrize(("sha256", "files"), [("cd" * 32, 3), (SEEN, 2)])
def test_other_results_are_refused(bed: Bed, sha256: str, files: int) -> None:
    verified(bed)
    with pytest.raises(PullMismatch, match="Pull again"):
        change(bed.parts, "digits-7", note_pull(sha256, files, OPS))
    assert bed.run("digits-7").files.pulled_sha256 is None


def test_there_are_no_verified_results_yet(bed: Bed) -> None:
    bed.submit("digits-7")
    with pytest.raises(PullMismatch, match="no verified results"):
        change(bed.parts, "digits-7", note_pull(SEEN, 3, OPS))
    with pytest.raises(NotFound):
        change(bed.parts, "nobody", note_pull(SEEN, 3, OPS))


def test_an_approval_before_the_pull_is_refused(bed: Bed) -> None:
    verified(bed)
    for wish in (ApproveRequest("id-1", SEEN), ApproveRequest("id-1", "", "not needed")):
        with pytest.raises(PullRequired, match="spot pull digits-7"):
            change(bed.parts, "digits-7", approve(wish, OPS))
    change(bed.parts, "digits-7", note_pull(SEEN, 3, OPS))
    assert change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS)).approval is not None


def test_a_pull_of_earlier_results_frees_nothing(bed: Bed) -> None:
    """After a resume the run has other results; the row still contains the earlier pull."""
    verified(bed)
    bed.change("digits-7", files=replace(bed.run("digits-7").files, pulled_sha256="cd" * 32))
    assert bed.services.queries.show("digits-7")["results"]["pulled"] is False
    with pytest.raises(PullRequired):
        change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS))
    assert bed.run("digits-7").awaits_pull
    assert change(bed.parts, "digits-7", note_pull(SEEN, 3, OPS)).files.pulled_sha256 == SEEN
    assert not bed.run("digits-7").awaits_pull


def test_a_run_without_require_pull_may_be_pulled_too(bed: Bed) -> None:
    verified(bed, require_pull=False)
    assert change(bed.parts, "digits-7", approve(ApproveRequest("id-1", SEEN), OPS)).approval is not None
    assert change(bed.parts, "digits-7", note_pull(SEEN, 3, OPS)).files.pulled_sha256 == SEEN

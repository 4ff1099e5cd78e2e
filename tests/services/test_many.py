"""Stop and resume of many runs: which are read, which are skipped, and that repeats come to an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.callers import Caller
from supervisor.domain.errors import CountDiffers, CursorInvalid, InvalidRequest
from supervisor.domain.run import Files, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter
from supervisor.services.runs import many
from supervisor.services.runs.many import ManyRequest, resume_many, stop_many
from supervisor.services.views.formats import Json
from tests.services.bed import COMMAND, Bed

OPS = Caller(actor="ops", request_id="r-1")
TEAM = RunFilter(labels=(("team", "vision"),))


def submitted(bed: Bed, *names: str) -> None:
    for name in names:
        bed.submit(name, {**COMMAND, "labels": {"team": "vision"}})
    bed.submit("stranger")


def test_every_run_of_the_filter_and_no_other_is_stopped(any_bed: Bed) -> None:
    submitted(any_bed, "a-1", "a-2", "a-3", "a-4")
    any_bed.end("a-2", Status.COMPLETED)
    any_bed.change("a-3", stop=StopRequest("somebody", 1.0))
    told = stop_many(any_bed.parts, ManyRequest(TEAM, expect=4), OPS)
    assert told["runs"] == ["a-4", "a-1"]
    assert (told["matched"], told["changed"], told["unchanged"], told["refused"]) == (4, 2, 2, [])
    assert (told["more"], told["next_cursor"]) == (False, None)
    assert any_bed.run("a-1").stop == StopRequest("ops", any_bed.clock.now())
    assert any_bed.run("stranger").stop is None
    assert any_bed.store.events("a-1", 0, 9)[-1].event.data["request_id"] == "r-1"
    again = stop_many(any_bed.parts, ManyRequest(TEAM), OPS)
    assert (again["changed"], again["unchanged"]) == (0, 4)
    assert any_bed.events("a-1") == ["submitted", "stop_requested"]


def test_a_dry_run_does_nothing_and_reports_the_same(bed: Bed) -> None:
    submitted(bed, "a-1", "a-2")
    told = stop_many(bed.parts, ManyRequest(TEAM, dry_run=True), OPS)
    assert bed.events("a-1") == ["submitted"]
    assert {**stop_many(bed.parts, ManyRequest(TEAM), OPS), "dry_run": True} == told


def test_another_number_than_was_seen_changes_nothing(bed: Bed) -> None:
    submitted(bed, "a-1", "a-2")
    with pytest.raises(CountDiffers, match="2 runs match, and you have seen 3"):
        stop_many(bed.parts, ManyRequest(TEAM, expect=3), OPS)
    assert bed.run("a-1").stop is None


def walk(bed: Bed, where: RunFilter, limit: int) -> list[Json]:
    told = [stop_many(bed.parts, ManyRequest(where, limit), OPS)]
    while told[-1]["more"]:
        assert len(told) < 20, "it never ends"
        told.append(stop_many(bed.parts, ManyRequest(where, limit, told[-1]["next_cursor"]), OPS))
    return told


@pytest.mark.parametrize("where", [TEAM, replace(TEAM, oldest_first=True), replace(TEAM, statuses=("pending",))])
def test_many_requests_reach_every_run_once(bed: Bed, where: RunFilter) -> None:
    names = [f"a-{n}" for n in range(7)]
    submitted(bed, *names)
    told = walk(bed, where, 3)
    assert [len(part["runs"]) for part in told] == [3, 3, 1]
    assert sorted(name for part in told for name in part["runs"]) == names
    with pytest.raises(CursorInvalid):
        stop_many(bed.parts, ManyRequest(RunFilter(), 3, told[0]["next_cursor"]), OPS)
    with pytest.raises(InvalidRequest):
        stop_many(bed.parts, ManyRequest(where, 3, told[0]["next_cursor"], expect=7), OPS)


def test_a_long_request_ends_early_and_continues(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(bed, *(f"a-{n}" for n in range(5)))
    stop = many.stop

    def slow(*args: object) -> object:
        bed.clock.advance(3.0)
        return stop(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(many, "stop", slow)
    assert [part["runs"] for part in walk(bed, TEAM, 0)] == [["a-4", "a-3"], ["a-2", "a-1"], ["a-0"]]


def test_finished_runs_are_counted_and_not_read(bed: Bed) -> None:
    check_passed_over(bed)


def test_a_page_with_finished_runs_in_it_would_be_seen(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: every status is read, and the one live run comes after the ended ones."""
    page = many._page
    monkeypatch.setattr(many, "_page", lambda parts, asked, _, before: page(parts, asked, list(Status), before))
    with pytest.raises(AssertionError):
        check_passed_over(bed)


def check_passed_over(bed: Bed) -> None:
    submitted(bed, "a-1", *(f"b-{n}" for n in range(4)))
    for n in range(4):
        bed.end(f"b-{n}", Status.FAILED)
    told = stop_many(bed.parts, ManyRequest(TEAM, 1), OPS)
    assert (told["runs"], told["unchanged"], told["more"]) == (["a-1"], 4, False)
    only = stop_many(bed.parts, ManyRequest(replace(TEAM, statuses=("failed",))), OPS)
    assert (only["matched"], only["unchanged"], only["more"]) == (4, 4, False)


def test_resume_starts_ended_runs_and_names_refused_ones(any_bed: Bed) -> None:
    submitted(any_bed, "failed", "stopped", "completed", "stopping", "live", "purging")
    any_bed.end("failed", Status.FAILED)
    any_bed.end("stopped", Status.STOPPED, stop=StopRequest("ops", 1.0))
    any_bed.end("completed", Status.COMPLETED)
    any_bed.end("purging", Status.FAILED, files=Files(purging=True))
    any_bed.change("stopping", status=Status.STOPPING)
    for dry_run in (True, False):
        told = resume_many(any_bed.parts, ManyRequest(TEAM, dry_run=dry_run), OPS)
        assert told["runs"] == ["stopped", "failed"]
        assert [(one["run_id"], one["code"]) for one in told["refused"]] == [
            ("purging", "PURGE_RUNNING"),
            ("stopping", "RUN_STOPPING"),
        ]
        assert told["unchanged"] == 2
    assert any_bed.run("failed").generation == 2
    assert any_bed.run("completed").generation == 1
    assert resume_many(any_bed.parts, ManyRequest(TEAM), OPS)["runs"] == []

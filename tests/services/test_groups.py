"""Groups and runs after others: what a submit and a resume accept, and what they refuse with which code."""

from __future__ import annotations

import pytest

from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import AfterCycle, InvalidRequest, RunEnded, UnknownAfter
from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter
from supervisor.services.runs.altering import alter
from supervisor.services.runs.many import ManyRequest, resume_many, stop_many
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.services.bed import COMMAND, Bed, body

OPS = Caller(actor="ops")
EVE = Caller(actor="eve", owner="eve", scopes=frozenset({Scope.READ, Scope.WRITE}))
SWEEP = {**COMMAND, "group": "sweep", "max_parallel": 2}


def after(*names: str) -> dict[str, object]:
    return {**COMMAND, "after": list(names)}


def test_the_run_carries_its_group_limit_and_the_runs_before_it(bed: Bed) -> None:
    bed.submit("first")
    reply = bed.submit("second", {**SWEEP, "after": ["first"], "labels": {"lr": "0.1"}})
    assert (body(reply)["group"], body(reply)["labels"]) == ("sweep", {"lr": "0.1"})
    policy = bed.run("second").policy
    assert (policy.group, policy.max_parallel, policy.after) == ("sweep", 2, ("first",))
    assert body(bed.submit("first"))["group"] is None


def test_a_limit_without_a_group_is_refused(bed: Bed) -> None:
    with pytest.raises(InvalidRequest, match="names no group") as refused:
        bed.submit("digits", {**COMMAND, "max_parallel": 2})
    assert refused.value.errors == (("#/spec/max_parallel", "needs a group"),)


def test_an_unknown_run_before_is_refused_with_its_place(bed: Bed) -> None:
    bed.submit("first")
    with pytest.raises(UnknownAfter, match="after names frist, and there is no such run") as refused:
        bed.submit("second", after("first", "frist"))
    assert refused.value.errors == (("#/spec/after/1", "unknown run"),)
    assert bed.store.find("second") is None


def test_a_run_of_another_owner_is_unknown(bed: Bed) -> None:
    bed.submit("first")
    with pytest.raises(UnknownAfter):
        submit(bed.parts, SubmitRequest(after("first"), "second"), EVE)


def test_a_run_cannot_wait_for_itself(bed: Bed) -> None:
    with pytest.raises(AfterCycle, match="digits after digits"):
        bed.submit("digits", after("digits"))


def test_a_resume_with_another_spec_makes_no_cycle(bed: Bed) -> None:
    bed.submit("a1")
    bed.submit("b1", after("a1"))
    bed.submit("c1", after("b1"))
    bed.end("a1", Status.FAILED)
    with pytest.raises(AfterCycle, match="The run would wait for itself: a1 after c1 after b1 after a1") as refused:
        resume(bed.parts, "a1", ResumeRequest(OPS, after("c1"), replace_spec=True))
    assert refused.value.errors == (("#/spec/after", "makes a cycle"),)
    assert bed.run("a1").status == Status.FAILED
    resume(bed.parts, "a1", ResumeRequest(OPS))
    assert bed.run("a1").status == Status.PENDING


def test_a_whole_group_is_stopped_and_resumed(any_bed: Bed) -> None:
    for name in ("cell-1", "cell-2", "cell-3"):
        any_bed.submit(name, SWEEP)
    any_bed.submit("stranger")
    any_bed.end("cell-2", Status.COMPLETED)
    group = RunFilter(group="sweep")
    stopped = stop_many(any_bed.parts, ManyRequest(group, expect=3), OPS)
    assert stopped["runs"] == ["cell-3", "cell-1"]
    assert any_bed.run("stranger").stop is None
    for name in ("cell-1", "cell-3"):
        any_bed.end(name, Status.STOPPED)
    resumed = resume_many(any_bed.parts, ManyRequest(group), OPS)
    assert (resumed["runs"], resumed["unchanged"]) == (["cell-3", "cell-1"], 1)


def test_a_list_of_a_group_counts_its_runs(any_bed: Bed) -> None:
    any_bed.submit("cell-1", SWEEP)
    any_bed.submit("cell-2", SWEEP)
    any_bed.submit("stranger")
    page = any_bed.services.queries.page(RunFilter(group="sweep"), 0, None)
    assert [run["run_id"] for run in page["runs"]] == ["cell-2", "cell-1"]
    assert page["summary"]["counts"] == {"pending": 2}


def test_a_change_of_limit_and_order_counts_for_the_live_run(any_bed: Bed) -> None:
    any_bed.submit("first")
    any_bed.submit("cell-1", {**SWEEP, "after": ["first"], "labels": {"lr": "1"}})
    done = alter(any_bed.parts, "cell-1", {"max_parallel": 4, "after": None}, None, OPS)
    assert (done.before, done.after) == ({"after": ["first"], "max_parallel": 2}, {"after": [], "max_parallel": 4})
    policy = any_bed.run("cell-1").policy
    assert (policy.group, policy.max_parallel, policy.after) == ("sweep", 4, ())
    assert "after" not in any_bed.store.spec(any_bed.run("cell-1").key)
    page = any_bed.store.page(RunFilter(group="sweep"), None, 9)
    assert dict(page.labels) == {any_bed.run("cell-1").key: {"lr": "1"}}
    assert alter(any_bed.parts, "cell-1", {"max_parallel": None}, None, OPS).after == {"max_parallel": None}


def test_a_change_makes_no_cycle_and_names_no_unknown_run(bed: Bed) -> None:
    bed.submit("a1")
    bed.submit("b1", after("a1"))
    with pytest.raises(AfterCycle, match="a1 after b1 after a1"):
        alter(bed.parts, "a1", {"after": ["b1"]}, None, OPS)
    with pytest.raises(UnknownAfter):
        alter(bed.parts, "a1", {"after": ["c1"]}, None, OPS)
    with pytest.raises(InvalidRequest, match="names no group"):
        alter(bed.parts, "a1", {"max_parallel": 2}, None, OPS)
    bed.end("b1", Status.FAILED)
    with pytest.raises(RunEnded):
        alter(bed.parts, "b1", {"after": None}, None, OPS)

"""The demo's own claim is tested by taking one thing away at a time: each of them must make it fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from examples.demo_verdict import Facts, problems, summary

SHA, OTHER = "ab" * 32, "cd" * 32
LIVES = (("preempted", "a"), ("orphaned", "b"), ("stalled", "a"), ("preempted", "a"), ("finished", "c"))


def attempt(cause: str | None, zone: str, lost: int | None = 3, tries: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "cause": cause,
        "placement": {"zone": f"local-{zone}"},
        "steps_lost": lost,
        "tries": [{"cause": one} for one in tries],
    }


def lives(without: str = "", tries: tuple[str, ...] = ("no_capacity",)) -> tuple[dict[str, Any], ...]:
    """The attempts of a good demo; the last one met a zone without capacity first."""
    told = [(cause, zone) for cause, zone in LIVES if cause != without]
    last = len(told) - 1
    return tuple(
        attempt(cause, zone, 0 if cause == "finished" else 3, tries if number == last else ())
        for number, (cause, zone) in enumerate(told)
    )


RUN = {"status": "completed", "results_manifest_sha256": SHA, "results": {"files": 2, "size_bytes": 9, "missing": []}}
GOOD = Facts("digits-demo", RUN, lives(), SHA, SHA, survived=True, pulled=2)


def test_a_good_demo_has_no_problems():
    assert problems(GOOD) == []


def test_the_last_line_says_what_the_api_and_the_files_say():
    assert summary(GOOD) == {
        "run_id": "digits-demo",
        "status": "completed",
        "attempts": 5,
        "causes": ["preempted", "orphaned", "stalled", "preempted", "finished"],
        "zones": ["local-a", "local-b", "local-a", "local-a", "local-c"],
        "steps_lost": 12,
        "results_verified": True,
        "pulled": 2,
        "weights_sha256": SHA,
        "uninterrupted_sha256": SHA,
    }


@pytest.mark.parametrize("cause", ["preempted", "orphaned", "stalled"])
def test_each_disaster_must_have_ended_an_attempt(cause: str):
    assert problems(replace(GOOD, attempts=lives(without=cause))) == [f"expected an attempt that ended {cause}"]


@pytest.mark.parametrize("tries", [(), ("quota",)])
def test_a_zone_must_have_run_out_of_capacity(tries: tuple[str, ...]):
    assert problems(replace(GOOD, attempts=lives(tries=tries))) == ["expected a try that met no_capacity"]


@pytest.mark.parametrize("survived", [False, None])
def test_the_training_must_have_survived_the_supervisor(survived: bool | None):
    (problem,) = problems(replace(GOOD, survived=survived))
    assert problem.startswith("expected the training to survive the supervisor's kill -9")


@pytest.mark.parametrize(("ours", "twins"), [(SHA, OTHER), (None, SHA), (SHA, None), (None, None)])
def test_both_trainings_must_have_made_the_very_same_weights(ours: str | None, twins: str | None):
    (problem,) = problems(replace(GOOD, weights_sha256=ours, uninterrupted_sha256=twins))
    assert problem.startswith("expected equal weights")


@pytest.mark.parametrize("status", ["partial", "failed", "running"])
def test_only_completed_will_do(status: str):
    assert problems(replace(GOOD, run={**RUN, "status": status})) == [f"expected status completed, found {status}"]


def test_the_last_attempt_must_have_finished():
    attempts = (*lives()[:-1], attempt("killed", "c", tries=("no_capacity",)))
    assert problems(replace(GOOD, attempts=attempts)) == ["expected the last attempt to end finished, found killed"]


@pytest.mark.parametrize(
    "lacking",
    [
        {"results": None},
        {"results": {"files": 1, "size_bytes": 9, "missing": ["results weights.npz: 0 of 1 files"]}},
        {"results_manifest_sha256": None},
    ],
)
def test_results_that_are_not_verified_are_no_results(lacking: dict[str, Any]):
    facts = replace(GOOD, run={**RUN, **lacking})
    assert summary(facts)["results_verified"] is False
    assert problems(facts) == ["expected verified results with nothing missing"]


@pytest.mark.parametrize("pulled", [None, 0, 1, 3])
def test_every_result_must_have_been_pulled(pulled: int | None):
    assert problems(replace(GOOD, pulled=pulled)) == [f"expected every result to be pulled, found {pulled}"]


def test_a_process_left_behind_is_a_problem():
    assert problems(replace(GOOD, left_behind=1)) == ["expected no process left behind, found 1"]


def test_a_demo_that_did_not_begin_still_has_its_last_line_and_lacks_everything():
    nothing = Facts("digits-demo")
    assert summary(nothing)["attempts"] == 0
    assert summary(nothing)["results_verified"] is False
    assert len(problems(nothing)) == 10


def test_steps_that_nobody_knows_are_not_counted_as_lost():
    facts = replace(GOOD, attempts=(attempt("orphaned", "b", lost=None), *lives()))
    assert summary(facts)["steps_lost"] == 12

"""Stretches on the clock: they leave no gap, and their sums are those of the figures beside them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.machines import Placement
from supervisor.domain.status import Status
from supervisor.services.views.attempt_view import attempts_json
from supervisor.services.views.formats import Json
from tests.lifecycle.sample_runs import NOW, run_in

PLACE = Placement("gce", "us-east1", "us-east1-b", "g2", True)
T = NOW - 10_000
FIRST = Attempt(
    1, 1, "1.1.1", "m1", "i", PLACE, T + 50, T + 60, 0.5, 1.5, T + 70, T + 300, T + 330, T + 1330, step_last=100,
    pull_at=T + 100, pulled_at=T + 240,
)  # fmt: skip
SECOND = Attempt(
    2, 1, "1.2.1", "m2", "i", PLACE, T + 1340, T + 1350, running_at=T + 1400, training_at=T + 1500, step_from=80
)
RUN = run_in(Status.RUNNING, created_at=T, generation_at=T)


def told(spans: list[Json]) -> list[tuple[str, float, float]]:
    """(phase, from, to), seconds since T"""
    return [(one["phase"], _at(one["since"]) - T, _at(one["until"]) - T) for one in spans]


def _at(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def test_an_attempt_in_all_its_phases() -> None:
    one, two = attempts_json(RUN, [FIRST, SECOND], [], NOW)["attempts"]
    assert told(one["spans"]) == [
        ("waiting", 0, 50),
        ("provisioning", 50, 60),
        ("boot", 60, 100),
        ("pull", 100, 240),
        ("boot", 240, 300),
        ("restore", 300, 330),
        ("training", 330, 1130),
        ("lost", 1130, 1330),
    ]
    assert told(two["spans"])[:2] == [("waiting", 1330, 1340), ("provisioning", 1340, 1350)]
    assert told(two["spans"])[-1] == ("training", 1500, 10_000), "it goes on"


def test_a_pull_that_goes_on_lasts_until_now() -> None:
    pulling = replace(SECOND, running_at=None, training_at=None, pull_at=T + 1360)
    spans = told(attempts_json(RUN, [FIRST, pulling], [], T + 1400)["attempts"][1]["spans"])
    assert spans[-2:] == [("boot", 1350, 1360), ("pull", 1360, 1400)]


moments = st.integers(0, 500)


@given(st.lists(moments, min_size=8, max_size=8), st.integers(0, 120), st.booleans())
def test_the_stretches_follow_each_other_and_sum_up_to_the_figures(
    lengths: list[int], lost: int, goes_on: bool
) -> None:
    borders = [T]
    for length in lengths:
        borders.append(borders[-1] + length)
    _, asked, started, pull, pulled, running, training, end, now = borders
    first = Attempt(
        1, 1, "1.1.1", "m1", "i", PLACE, asked, started, running_at=running, training_at=training, ended_at=end,
        step_last=200, pull_at=pull, pulled_at=pulled,
    )  # fmt: skip
    second = Attempt(2, 1, "1.2.1", "m2", "i", PLACE, end, end, training_at=end, step_from=200 - lost)
    if goes_on:
        first = replace(first, ended_at=None)
    one = attempts_json(RUN, [first] if goes_on else [first, second], [], now)["attempts"][0]
    spans = one["spans"]
    sums = dict.fromkeys(one["phase_s"], 0.0)
    parts = {"provisioning": "waiting", "pull": "boot"}
    for span in spans:
        sums[parts.get(span["phase"], span["phase"])] += _at(span["until"]) - _at(span["since"])
    assert all(abs(sums[phase] - length) < 0.01 for phase, length in one["phase_s"].items())
    assert all(a["until"] == b["since"] for a, b in pairwise(spans))
    assert all(span["since"] < span["until"] for span in spans)


def test_a_clock_that_was_set_back_leaves_no_stretch_that_ends_before_it_begins() -> None:
    odd = replace(FIRST, started_at=T + 200, running_at=T + 100, training_at=T + 90)
    spans = attempts_json(RUN, [odd], [], NOW)["attempts"][0]["spans"]
    assert all(span["since"] < span["until"] for span in spans)


def test_what_is_being_placed_waits_and_then_asks() -> None:
    ended = replace(FIRST, gone_at=T + 1400)
    waiting = run_in(Status.RECOVERING, created_at=T, generation_at=T, attempt=ended)
    following = attempts_json(waiting, [ended], [], T + 1500)["next"]
    assert following is not None
    assert told(following["spans"]) == [("waiting", 1330, 1500)]
    call = Try(2, 1, "1.2.1", "m2", PLACE, T + 1450)
    asking = replace(waiting, status=Status.LAUNCHING, try_=call)
    following = attempts_json(asking, [ended], [call], T + 1500)["next"]
    assert following is not None
    assert told(following["spans"]) == [("waiting", 1330, 1450), ("provisioning", 1450, 1500)]
    assert attempts_json(RUN, [FIRST], [], NOW)["next"] is None


def test_a_run_that_has_only_just_been_submitted_waits_for_its_first() -> None:
    fresh = run_in(Status.PENDING, created_at=T, generation_at=T)
    following = attempts_json(fresh, [], [], T + 4)["next"]
    assert following is not None
    assert (following["number"], following["tries"], told(following["spans"])) == (1, [], [("waiting", 0, 4)])

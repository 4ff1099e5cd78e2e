"""The attempts as bars on one axis: correct positions, nothing beyond the axis, and legible for any length of run."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.dashboard.drawing.timeline import HAIR, NEWEST, timeline

T = datetime(2026, 11, 22, 8, 0, tzinfo=UTC).timestamp()
DAY = 86_400.0
Json = dict[str, Any]


def moment(after_s: float) -> str:
    return datetime.fromtimestamp(T + after_s, UTC).isoformat(timespec="milliseconds")


def span(phase: str, since: float, until: float) -> Json:
    return {"phase": phase, "since": moment(since), "until": moment(until)}


def attempt(number: int, *spans: Json, ended: bool = True, **more: Any) -> Json:
    return {
        "number": number, "placement": {"zone": "us-east1-b", "shape": "g2", "spot": True}, "spans": list(spans),
        "started_at": spans[0]["since"], "ended_at": spans[-1]["until"] if ended else None,
        "cause": "preempted" if ended else None, "cost_usd": 0.5, "step_from": None, "step_kept": None,
        "step_last": None, "tries": [], **more,
    }  # fmt: skip


def failed(after_s: float) -> Json:
    return {
        "number": 1, "placement": {"zone": "us-east1-c"}, "cause": "no_capacity", "detail": "none left",
        "requested_at": moment(after_s), "ended_at": moment(after_s + 2),
    }  # fmt: skip


def run(status: str = "running", since: float = 0.0) -> Json:
    return {"status": status, "created_at": moment(0), "status_since": moment(since), "placement": None}


def told(*attempts: Json, following: Json | None = None) -> Json:
    return {"attempts": list(attempts), "next": following}


ONE = attempt(1, span("waiting", 0, 10), span("boot", 10, 40), span("training", 40, 90), span("lost", 90, 100))


def test_each_phase_stands_where_its_time_is() -> None:
    drawn = timeline(run("stopped", 100), told(ONE), T + 9999)
    parts = {part.phase: (part.x, part.width, part.name) for part in drawn.bars[0].parts}
    assert parts == {
        "waiting": (0.0, 10.0, ""),
        "boot": (10.0, 30.0, "boot"),
        "training": (40.0, 50.0, "training"),
        "lost": (90.0, 10.0, ""),
    }
    assert drawn.now is None, "the axis ends where the run did"
    assert [(phase, round(share)) for phase, _, share in drawn.shares] == [
        ("waiting", 10), ("boot", 30), ("training", 50), ("lost", 10),
    ]  # fmt: skip
    assert drawn.effective == pytest.approx(50.0)
    assert drawn.bars[0].parts[0].title == "training 50 s, from 2026-11-22 08:00:40 UTC"


def test_a_live_one_reaches_to_now_and_what_is_placed_next_is_a_bar_too() -> None:
    live = attempt(1, span("waiting", 0, 10), span("training", 10, 200), ended=False)
    drawn = timeline(run(), told(live), T + 200)
    assert drawn.now == 100.0
    assert (drawn.bars[0].cause, drawn.bars[0].live, drawn.bars[0].took_s) == ("training", True, 200.0)
    following = {
        "number": 2,
        "spans": [span("waiting", 100, 150), span("provisioning", 150, 200)],
        "tries": [failed(120)],
    }
    drawn = timeline(run("launching"), told(ONE, following=following), T + 200)
    placed = drawn.bars[1]
    assert (placed.placed, placed.cause, placed.attempt["number"]) == (False, "provisioning", 2)
    assert [mark.x for mark in placed.failed] == [60.0]
    assert placed.failed[0].title.startswith("no machine in us-east1-c: no_capacity, 2026-11-22 08:02:00")
    assert drawn.bars[0].parts[-1].x + drawn.bars[0].parts[-1].width <= 50.0, "and a gap is a gap"


def test_without_an_attempt_there_is_nothing_to_draw() -> None:
    drawn = timeline(run("failed", 60), told(), T + 100)
    assert (drawn.bars, drawn.shares, drawn.effective, drawn.hidden) == ([], [], None, 0)


def test_of_two_hundred_the_newest_are_shown_and_all_count() -> None:
    many = [
        attempt(n + 1, span("waiting", n * 100, n * 100 + 50), span("training", n * 100 + 50, n * 100 + 100))
        for n in range(200)
    ]
    drawn = timeline(run("stopped", 20_000), told(*many), T + 99_999)
    assert [bar.attempt["number"] for bar in drawn.bars] == list(range(201 - NEWEST, 201))
    assert drawn.hidden == 200 - NEWEST
    assert drawn.effective == pytest.approx(50.0)
    assert drawn.bars[0].parts[0].width > 2, "the axis is that of the bars that are shown"
    assert len(timeline(run("stopped", 20_000), told(*many), T + 99_999, None).bars) == 200


@pytest.mark.parametrize("length_s", [0.0, 0.4, 40.0, 3600.0, 21 * DAY, 400 * DAY])
def test_marks_are_few_and_apart_whatever_the_length(length_s: float) -> None:
    one = attempt(1, span("training", 0, length_s)) if length_s else attempt(1, span("boot", 0, 0))
    drawn = timeline(run("stopped", length_s), told(one), T + length_s)
    assert len(drawn.marks) <= 5
    assert all(b[0] - a[0] >= 15 for a, b in pairwise(drawn.marks))
    assert len({text for _, text in drawn.marks}) == len(drawn.marks)


def test_a_boot_of_half_a_minute_in_three_weeks_can_be_seen() -> None:
    long = attempt(1, span("boot", 0, 30), span("training", 30, 21 * DAY))
    parts = timeline(run("stopped", 21 * DAY), told(long), T + 21 * DAY).bars[0].parts
    assert [(part.phase, part.width) for part in parts][-1] == ("boot", HAIR), "drawn last, over its neighbour"
    assert parts[-1].title.startswith("boot 30 s")
    assert parts[-1].name == ""


def test_a_phase_that_we_do_not_know_is_drawn_by_its_own_name() -> None:
    drawn = timeline(run("stopped", 10), told(attempt(1, span("defrosting", 0, 10))), T + 10)
    assert drawn.bars[0].parts[0].name == "defrosting"
    assert drawn.shares == [("defrosting", "defrosting", 100.0)]


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.floats(0, 3 * DAY), min_size=1, max_size=7), max_size=5),
    st.floats(-DAY, 40 * DAY),
    st.booleans(),
)
def test_nothing_leaves_the_axis(lengths: list[list[float]], now: float, over: bool) -> None:
    phases, at, attempts = ["waiting", "provisioning", "boot", "pull", "boot", "restore", "training"], 0.0, []
    for number, one in enumerate(lengths, 1):
        spans = []
        for phase, length in zip(phases, one, strict=False):
            spans.append(span(phase, at, at + length))
            at += length
        attempts.append(attempt(number, *spans, tries=[failed(at)]))
    drawn = timeline(run("stopped" if over else "running", at), told(*attempts), T + now)
    for bar in drawn.bars:
        for part in bar.parts:
            assert 0 <= part.x <= 100
            assert part.width > 0
            assert part.x + part.width <= 100.01
        assert all(0 <= mark.x <= 100 for mark in bar.failed)
    assert sum(share for _, _, share in drawn.shares) == pytest.approx(100.0) or not drawn.shares

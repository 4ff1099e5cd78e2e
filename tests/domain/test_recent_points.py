"""A beat's points of a young training: small for any training, and harmless for any input."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.agent.watch.beat_state import fit_metrics
from supervisor.contract import recent_points
from supervisor.contract.heartbeat import MAX_COUNT, MAX_RECENT_BYTES
from supervisor.contract.recent_points import (
    CARRIED_S,
    COLLECTED_S,
    EVERY_S,
    MAX_POINTS,
    RecentPoint,
    RecentPoints,
    decode,
    encode,
)
from tests.properties import examples, with_defaults

figures = st.floats(-1e17, 1e17) | st.integers(-(10**15), 10**15).map(float)
metrics = st.dictionaries(st.text(max_size=64), figures, max_size=20).map(fit_metrics)
points = st.builds(
    with_defaults(RecentPoint), st.floats(0, CARRIED_S - 1).map(lambda at: round(at, 1)), st.integers(0, MAX_COUNT),
    st.none() | figures, metrics | st.just(fit_metrics({"é" * 60 + str(n): -1.2345e-300 for n in range(16)})),
)  # fmt: skip


def noted(seconds: float, every_s: float = 0.5, **told: float) -> RecentPoints:
    points = RecentPoints()
    for n in range(int(seconds / every_s)):
        points.note(RecentPoint(n * every_s, n, 2.0, told))
    return points


def test_a_training_that_reports_often_has_a_point_every_five_seconds() -> None:
    found = decode(noted(60.0, loss=0.25).text(60.0))
    assert [point.up_s for point in found] == [n * EVERY_S for n in range(12)]
    assert found[-1] == RecentPoint(55.0, 110, 2.0, {"loss": 0.25})


def test_memory_and_messages_are_bounded_and_end() -> None:
    points = noted(COLLECTED_S + 300.0, loss=0.25, accuracy=0.5)
    found = decode(points.text(COLLECTED_S))
    assert len(found) == MAX_POINTS
    assert found[-1].up_s == COLLECTED_S - EVERY_S
    assert points.text(CARRIED_S) == ""
    assert points.text(0.0) == ""  # nothing is kept any more


@given(told=st.lists(points, max_size=2 * MAX_POINTS))
def test_any_points_fit_and_are_read_unchanged(told: list[RecentPoint]) -> None:
    text = encode(told)
    assert len(text.encode("ascii")) <= MAX_RECENT_BYTES
    kept = {point.up_s: point for point in reversed(told[-MAX_POINTS:])}
    for found in decode(text):
        point = kept[found.up_s]
        assert found.step == point.step
        assert (found.steps_per_s is None) == (point.steps_per_s is None)
        for name, figure in found.metrics.items():
            assert math.isclose(figure, point.metrics[name], rel_tol=1e-4)


def test_points_in_order_are_all_read() -> None:
    """Also where not a single metric fits."""
    long = {"é" * 64: 1.0, **{f"{'é' * 60}{n}": 1.0 for n in range(8)}}
    for told in ({}, {"loss": 0.5}, long):
        text = encode([RecentPoint(n * 5.0, MAX_COUNT - n, -1.2345e-300, told) for n in range(40)])
        assert len(text) <= MAX_RECENT_BYTES
        assert [point.up_s for point in decode(text)] == [n * 5.0 for n in range(16, 40)]
    assert decode(encode([RecentPoint(1.0, 1, None, {"a": 1.0, "b": 2.0})]))[0].metrics == {"a": 1.0, "b": 2.0}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
rows = st.lists(st.lists(JSON | st.floats(0, 700) | st.integers(0, 700), max_size=6) | JSON, max_size=40)
texts = (
    st.text(max_size=200)
    | JSON.map(json.dumps)
    | st.builds(
        lambda names, rows: json.dumps({"names": names, "points": rows}),
        st.lists(st.text(max_size=70) | JSON, max_size=4),
        rows,
    )
)


@settings(max_examples=examples(100, 500))
@given(text=texts)
def test_any_text_is_harmless(text: str) -> None:
    found = decode(text)
    assert len(found) <= MAX_POINTS
    assert [point.up_s for point in found] == sorted({point.up_s for point in found})
    for point in found:
        assert 0 <= point.up_s < CARRIED_S
        assert 0 <= point.step <= MAX_COUNT
        values = [*point.metrics.values(), point.steps_per_s or 0.0]
        assert all(isinstance(value, float) and math.isfinite(value) for value in values)
        assert all(name.isprintable() for name in point.metrics)


@pytest.mark.parametrize(
    ("text", "up_s"),
    [
        ("[" * 2000, []), ("{}", []), ('{"names":[],"points":{}}', []), ('{"names":[7],"points":[[1,1,1]]}', []),
        ('{"names":[],"points":[[1,1,1],[1,2,1],[0,3,1],[2,4,null]]}', [1.0, 2.0]),
        ('{"names":[],"points":[[true,1,1],[1,true,1],[1,1.5,1],[NaN,1,1],[-1,1,1],[9e9,1,1],[7,7,1]]}', [7.0]),
        ('{"names":[],"points":[[1,1],7,null,"x",[2,1,1]]}', [2.0]),
        ('{"names":[],"points":[[1,' + "9" * 1900 + ",1]]}", []),
    ],
)  # fmt: skip
def test_absurd_points_are_left_out(text: str, up_s: list[float]) -> None:
    assert [point.up_s for point in decode(text)] == up_s


def test_a_reader_or_a_writer_without_bounds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(value: Any) -> bool:
        return isinstance(value, int | float)

    monkeypatch.setattr(recent_points, "is_number", trusting)
    with pytest.raises(AssertionError):
        test_absurd_points_are_left_out('{"names":[],"points":[[true,1,1],[7,7,1]]}', [7.0])
    monkeypatch.undo()
    monkeypatch.setattr(recent_points, "MAX_RECENT_BYTES", 10**6)
    with pytest.raises(AssertionError):
        test_points_in_order_are_all_read()

"""The geometry of a chart for any values: nothing outside its box, no line across a gap, marks in order."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.dashboard.drawing import charts
from supervisor.dashboard.drawing.charts import WIDTH, Frame, Point, lines, path, value_range
from supervisor.services.views import formats

VALUES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(-100, 100).map(float))
STEPS_S = st.floats(0.001, 1e6)
BORN = 1_700_000_000.0


@st.composite
def told(draw: st.DrawFn) -> list[Point]:
    at, points = BORN, []
    for value, step, gap in draw(st.lists(st.tuples(VALUES, STEPS_S, st.booleans()), max_size=40)):
        at += step
        points.append(Point(at, value, gap))
    return points


def framed(points: list[Point]) -> Frame:
    values = [value for piece in lines(points) for *_, value in piece]
    low, high = value_range(values)
    return Frame(BORN, max([BORN + 1, *(point.at for point in points)]), low, high, 100.0)


def drawn(points: list[Point]) -> list[list[tuple[float, float]]]:
    """The pieces of the line: (time, value) of each corner."""
    return [[(at, value) for _, at, value in piece] for piece in lines(points)]


def corners(data: str) -> list[list[tuple[float, float]]]:
    """Path data, read back."""
    assert re.fullmatch(r"(M[-\d.]+ [-\d.]+(h0|(L[-\d.]+ [-\d.]+)+))*", data), data
    return [
        [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", piece)] for piece in data.split("M")[1:]
    ]


@settings(max_examples=60, deadline=None)
@given(told())
def test_every_corner_lies_in_the_box_and_time_never_goes_back(points: list[Point]) -> None:
    found = corners(path(framed(points), lines(points)))
    drawn = [point for point in points if point.value is not None and math.isfinite(point.value)]
    assert sum(map(len, found)) == len(drawn)
    for stretch in found:
        assert all(0 <= x <= WIDTH and 0 <= y <= 100 for x, y in stretch)
    xs = [x for stretch in found for x, _ in stretch]
    assert xs == sorted(xs)


def check_gaps(points: list[Point]) -> None:
    """Two neighbours of one stretch have no gap between them, the second's own included."""
    gaps = [point.at for point in points if point.gap]
    for stretch in lines(points):
        for (_, before, _), (_, after, _) in pairwise(stretch):
            assert not any(before < at <= after for at in gaps)


@settings(max_examples=60, deadline=None)
@given(told())
def test_no_line_leads_across_a_gap(points: list[Point]) -> None:
    check_gaps(points)


def test_a_figure_that_is_told_once_in_a_minute_is_one_line_through_points_that_lie_between() -> None:
    told = [Point(5.0 * n, 90.0 if n % 12 == 0 else None, False) for n in range(37)]
    assert drawn(told) == [[(0.0, 90.0), (60.0, 90.0), (120.0, 90.0), (180.0, 90.0)]]


def test_a_gap_at_a_point_without_a_value_would_be_missed_by_who_looks_at_values_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken variant: the points that tell nothing are dropped before gaps are looked for."""
    points = [Point(1.0, 5.0, False), Point(2.0, None, True), Point(3.0, 6.0, False)]
    check_gaps(points)
    assert drawn(points) == [[(1.0, 5.0)], [(3.0, 6.0)]]
    whole = charts.lines
    monkeypatch.setitem(globals(), "lines", lambda told: whole([one for one in told if one.value is not None]))
    with pytest.raises(AssertionError):
        check_gaps(points)


def test_a_figure_that_is_told_rarely_is_one_line() -> None:
    points = [Point(float(at), 1.0 if at % 10 == 0 else None, False) for at in range(31)]
    assert drawn(points) == [[(0.0, 1.0), (10.0, 1.0), (20.0, 1.0), (30.0, 1.0)]]


def test_a_single_point_is_a_dot() -> None:
    assert path(Frame(0, 10, 0, 10, 100), [[(0, 5.0, 5.0)]]) == "M500 50h0"


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_a_range_holds_its_values_and_has_marks_that_read_apart(values: list[float]) -> None:
    low, high = value_range(values)
    assert low < high
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert all(low <= charts.tamed(value) <= high for value in values)
    marks = charts.value_marks(low, high, 4)
    assert len(marks) <= 4
    assert all(low <= mark <= high for mark in marks)
    texts = [charts.mark_text(mark, marks[1] - marks[0], "") for mark in marks] if len(marks) > 1 else []
    if max(map(abs, [low, high])) < 1e8 and high - low > 1e-7:
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("values", "floor", "ceiling", "expected"),
    [
        ([], None, None, (-0.06, 1.06)),
        ([5.0], None, None, (4.5, 5.5)),
        ([0.0], None, None, (-1.0, 1.0)),
        ([0.0], 0.0, None, (0.0, 1.0)),
        ([30.0, 90.0], 0.0, 100.0, (0.0, 100.0)),
        ([1e9, 1e9 + 0.1], None, None, (0.9e9, 1.1e9 + 0.1)),
    ],
)
def test_ranges(values: list[float], floor: float | None, ceiling: float | None, expected: tuple[float, float]) -> None:
    assert value_range(values, floor, ceiling) == pytest.approx(expected)


def test_attempts_are_cut_to_what_is_shown() -> None:
    attempts = [
        {
            "number": number,
            "started_at": formats.time_text(BORN + begin),
            "ended_at": None if end is None else formats.time_text(BORN + end),
            "cause": None,
            "placement": {"zone": "a"},
        }
        for number, begin, end in ((1, 0, 50), (2, 60, 150), (3, 180, None), (4, 300, None))
    ]
    found = charts.stretches(attempts, BORN + 100, BORN + 200)
    assert [(stretch.number, stretch.left, stretch.width) for stretch in found] == [(2, 0.0, 50.0), (3, 80.0, 20.0)]
    assert [stretch.text for stretch in found] == ["Attempt 2, a: over", "Attempt 3, a: still on"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4 * 10**12), st.floats(1, 1e8), st.integers(2, 8))
def test_marks_of_time_are_round_few_and_in_order(begin_ms: int, length_s: float, most: int) -> None:
    begin = begin_ms / 1000
    marks = charts.time_marks(begin, begin + length_s, most)
    times = [at for at, _ in marks]
    assert len(times) <= most
    assert times == sorted(set(times))
    assert all(begin <= at <= begin + length_s for at in times)


def test_marks_of_time_name_the_day_at_midnight() -> None:
    nov_22 = 1_795_305_600.0
    texts = [text for _, text in charts.time_marks(nov_22 - 7200, nov_22 + 7200, 5)]
    assert texts == ["22:00", "23:00", "Nov 22", "01:00", "02:00"]
    assert [text for _, text in charts.time_marks(nov_22 + 1, nov_22 + 12, 3)] == ["00:00:05", "00:00:10"]


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (12_300.0, "steps", "12,300"),
        (3.14, "rate", "3.1 steps/s"),
        (0.025, "rate", "40 s per step"),
        (87.54, "percent", "87.5 %"),
        (100.0, "percent", "100 %"),
        (24.06e9, "bytes", "24.1 GB"),
        (0.0, "", "0"),
        (0.31123, "", "0.3112"),
        (-0.0012346, "", "-0.001235"),
        (1.5, "", "1.5"),
        (12_345.67, "", "12,346"),
        (1.25e-7, "", "1.25e-7"),
        (-1.7e308, "", "-1.7e308"),
    ],
)
def test_figures_in_words(value: float, unit: str, expected: str) -> None:
    assert charts.value_text(value, unit) == expected


@pytest.mark.parametrize(
    ("value", "step", "unit", "expected"),
    [
        (12_000.0, 2000.0, "steps", "12k"),
        (1.5e6, 5e5, "steps", "1.5M"),
        (50.0, 50.0, "percent", "50 %"),
        (5e9, 5e9, "bytes", "5 GB"),
        (0.0, 5e9, "bytes", "0 B"),
        (0.25, 0.05, "", "0.25"),
        (3e-4, 5e-5, "", "3.0e-4"),
        (123_456_800.0, 20.0, "", "123,456,800"),
        (1e300, 1e300, "", "1e300"),
    ],
)
def test_figures_beside_an_axis(value: float, step: float, unit: str, expected: str) -> None:
    assert charts.mark_text(value, step, unit) == expected

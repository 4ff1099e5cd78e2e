"""Metrics in bounded room: the extremes stay, sizes are bounded, and how often a curve was made smaller changes
nothing of its parts. The object is untrusted on the server: decode never raises."""

import json
import math
import random
import zlib

import pytest

from supervisor.contract import metric_series
from supervisor.contract.metric_series import MAX_NAMES, MAX_POINTS, NEWEST, Curve, Kept, Point, Series, reduced


def noisy(steps: int, seed: int = 1) -> list[Point]:
    chance = random.Random(seed)
    return [(step, step / 10, 3 / (step + 1) + chance.random()) for step in range(1, steps + 1)]


def curve_of(points: "list[Point]", most: int = MAX_POINTS) -> Curve:
    curve = Curve(most)
    for point in points:
        curve.add(*point)
    return curve


def test_few_values_are_all_kept() -> None:
    points = noisy(MAX_POINTS)
    assert curve_of(points).points == points


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [MAX_POINTS, 156])
def test_extremes_ends_and_the_newest_stay_and_the_room_is_bounded(seed: int, most: int) -> None:
    chance = random.Random(seed)
    points = noisy(chance.randrange(3_000, 12_000), seed)
    low, high = chance.randrange(len(points)), chance.randrange(len(points))
    points[low] = (*points[low][:2], -1e9)
    points[high] = (*points[high][:2], 1e9)
    curve, longest = Curve(most), 0
    for point in points:
        curve.add(*point)
        longest = max(longest, len(curve.points))
    assert longest <= most
    kept = curve.points
    assert {points[0], points[-1], points[low], points[high]} <= set(kept)
    newest = min(NEWEST, most // 4)
    assert kept[-newest:] == points[-newest:]
    assert len(kept) > most // 4, "far fewer points than there is room for"
    assert curve.reports == len(points)
    assert kept == sorted(kept)


def test_a_value_that_is_not_finite_is_kept_where_it_first_came() -> None:
    points = noisy(21_000)
    points[12_345] = (*points[12_345][:2], math.nan)
    points[20_000] = (*points[20_000][:2], math.inf)
    odd = [(step, value) for step, _, value in curve_of(points).points if not math.isfinite(value)]
    assert [step for step, _ in odd] == [12_346, 20_001]


def test_only_values_that_are_not_finite_are_bounded_too() -> None:
    curve = curve_of([(step, step / 10, math.nan) for step in range(6_000)])
    assert 1 < len(curve.points) <= MAX_POINTS


@pytest.mark.parametrize("seed", range(8))
def test_making_a_curve_smaller_in_between_changes_nothing(seed: int) -> None:
    """Reduced in any pieces, then together: the same points as all at once."""
    chance = random.Random(seed)
    points, most = noisy(10_000, seed), 400
    width_points = reduced(points, most)
    at, pieces = 0, []
    while at < len(points):
        to = at + chance.randrange(500, 3000)
        pieces += reduced(points[at:to], most)
        at = to
    assert reduced(pieces, most) == width_points


def test_what_is_done_again_replaces_what_was_reported() -> None:
    curve = curve_of([(step, float(step), 1.0) for step in range(1, 101)])
    for step in range(61, 81):
        curve.add(step, 200.0 + step, 2.0)
    assert [step for step, _, _ in curve.points] == list(range(1, 81))
    assert {value for step, _, value in curve.points if step > 60} == {2.0}


def test_going_back_all_the_time_costs_little() -> None:
    """Two ranks that report the same metric, one step apart."""
    curve = Curve()
    for step in range(1, 5_000):
        curve.add(step + 1, step / 10, 1.0)
        curve.add(step, step / 10, 2.0)
    assert len(curve.points) <= MAX_POINTS
    assert curve.points[-1][0] == 4_999


def test_an_agent_that_was_restarted_goes_on() -> None:
    earlier = curve_of([(step, float(step), 1.0) for step in range(1, 101)])
    curve = curve_of([(step, float(step - 80), 2.0) for step in range(81, 90)])
    curve.put_before(earlier.points, earlier.reports)
    assert [step for step, _, _ in curve.points] == list(range(1, 90))
    assert [up for _, up, _ in curve.points] == sorted(up for _, up, _ in curve.points)
    assert curve.reports == 109


def full() -> Series:
    curves = {f"metric {number}": curve_of(noisy(5_000, number)) for number in range(3)}
    return Series(120, 2, True, {name: Kept(curve.reports, tuple(curve.points)) for name, curve in curves.items()})


def test_what_is_written_is_read() -> None:
    series = full()
    back = metric_series.decode(metric_series.encode(series))
    assert back is not None
    assert (back.resumed_from, back.left_out, back.complete) == (120, 2, True)
    assert list(back.curves) == list(series.curves)
    for name, kept in series.curves.items():
        assert back.curves[name].reports == kept.reports
        for (step, up_s, value), (back_step, back_up_s, back_value) in zip(
            kept.points, back.curves[name].points, strict=True
        ):
            assert (step, round(up_s, 1)) == (back_step, back_up_s)
            assert back_value == pytest.approx(value, rel=1e-7)
    assert metric_series.encode(back) == metric_series.encode(series)


def test_values_that_json_does_not_have_are_kept() -> None:
    points: tuple[Point, ...] = ((1, 0.1, math.nan), (2, 0.2, math.inf), (3, 0.3, -math.inf), (4, 0.4, 1e300))
    back = metric_series.decode(metric_series.encode(Series(curves={"loss": Kept(4, points)})))
    assert back is not None
    assert [str(value) for _, _, value in back.curves["loss"].points] == ["nan", "inf", "-inf", "1e+300"]


def test_a_full_object_is_small() -> None:
    """A minute's bytes for five metrics with all their points."""
    curves = {f"m{number}": Kept(10**6, tuple(curve_of(noisy(9_000, number)).points)) for number in range(4)}
    assert len(metric_series.encode(Series(curves=curves))) <= 65_536


def packed(data: object) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(json.dumps(data).encode()) + packer.flush()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no gzip",
        packed([]),
        packed({"version": 2, "curves": []}),
        packed({"version": 1, "curves": {}}),
        metric_series.encode(full())[:-9],
        packed("x" * (metric_series.MAX_UNPACKED + 1)),
        packed({"version": 1, "curves": []})[:5],
    ],
)
def test_what_is_no_such_object_is_none(raw: bytes) -> None:
    assert metric_series.decode(raw) is None


def test_absurd_contents_are_no_points() -> None:
    def curve(name: object, steps: object, up: object, values: object, reports: object = 3) -> dict[str, object]:
        return {"name": name, "reports": reports, "steps": steps, "up": up, "values": values}

    rows: list[object] = [
        curve("loss", [1, 1, 1], [1, 1, 1], [1, "one", True]),
        curve("back", [5, -1, 1], [0, 1, 1], [1, 2, 3]),
        curve("late", [1, 1], [10**12, 0], [1, 2], reports=-1),
        curve("short", [1], "text", [1]),
        curve("between", [1, 1], [1, 0.5], [1, 2]),
        curve("x" * 65, [1], [1], [1]),
        curve("", [1], [1], [1]),
        curve("tab\t", [1], [1], [1]),
        curve(7, [1], [1], [1]),
        curve("huge", [1], [1], [10**400]),
        "text",
        None,
    ]
    series = metric_series.decode(packed({"version": 1, "resumed_from": -3, "left_out": "two", "curves": rows}))
    assert series is not None
    assert (series.resumed_from, series.left_out, series.complete) == (None, 0, False)
    assert {name: kept.points for name, kept in series.curves.items()} == {
        "loss": ((1, 0.1, 1.0),),
        "back": ((5, 0.0, 1.0),),
        "late": (),
        "short": (),
        "between": ((1, 0.1, 1.0),),
        "huge": (),
    }


def test_more_than_the_bounds_is_left_out() -> None:
    long = {"name": "loss", "reports": 1, "steps": [1] * 5000, "up": [0] * 5000, "values": [1] * 5000}
    names = [{**long, "name": f"m{number}"} for number in range(MAX_NAMES + 9)]
    series = metric_series.decode(packed({"version": 1, "curves": names}))
    assert series is not None
    assert len(series.curves) == MAX_NAMES
    assert {len(kept.points) for kept in series.curves.values()} == {MAX_POINTS}


@pytest.mark.parametrize("seed", range(12))
def test_torn_and_changed_bytes_never_raise(seed: int) -> None:
    chance = random.Random(seed)
    raw = bytearray(metric_series.encode(full()))
    for _ in range(chance.randrange(1, 5)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    metric_series.decode(bytes(raw[: chance.randrange(1, len(raw) + 1)]))

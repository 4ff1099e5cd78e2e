"""The line of steps as a picture: inside its frame for any numbers, broken where nothing ran."""

from __future__ import annotations

import re
from typing import Any

import pytest

from supervisor.dashboard.run_rows import HEIGHT, WIDTH, spark
from supervisor.services.views import formats


def points(*told: tuple[float, int, bool]) -> list[dict[str, Any]]:
    """(seconds, step, gap)."""
    return [{"at": formats.time_text(1_800_000_000 + at), "step": step, "gap": gap} for at, step, gap in told]


def numbers(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path)]


def test_it_goes_from_corner_to_corner() -> None:
    drawn = spark(points((0, 0, False), (60, 50, False), (120, 100, False)))
    assert drawn is not None
    assert drawn.line == "M2.0 22.0L48.0 12.0L94.0 2.0"
    assert (drawn.bands, drawn.text) == ("", "Steps 0 to 100 in 2 min")


def test_gaps_break_it_and_leave_bands_and_a_lone_point_is_a_dot() -> None:
    drawn = spark(points((0, 0, False), (60, 10, True), (120, 5, True), (180, 10, False)))
    assert drawn is not None
    assert re.findall(r"[MLh]", drawn.line) == ["M", "h", "M", "h", "M", "L"]
    assert drawn.bands.count("M") == 2
    assert drawn.text.endswith("2 interruptions")


@pytest.mark.parametrize(
    "told",
    [
        points((0, 7, False)),
        points((0, 7, False), (0, 7, False)),
        points((0, 0, False), (1e8, 10**15, False)),
        points((0, 10**15, False), (60, -5, False), (120, 3, True)),
    ],
)
def test_it_stays_in_its_frame(told: list[dict[str, Any]]) -> None:
    drawn = spark(told, 1_800_000_000 + 2e8)
    assert drawn is not None
    for x, y in numbers(drawn.line):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    for left, width in re.findall(r"M([\d.]+) 0h([\d.]+)", drawn.bands):
        assert float(left) + float(width) <= WIDTH


def test_what_does_not_run_now_has_a_band_at_its_end() -> None:
    told = points((0, 0, False), (60, 10, False))
    waiting, goes_on = spark(told, 1_800_000_000 + 120), spark(told)
    assert waiting is not None
    assert goes_on is not None
    assert (waiting.bands, goes_on.bands) == ("M48.0 0h46.0v24h-46.0z", "")
    assert spark([]) is None

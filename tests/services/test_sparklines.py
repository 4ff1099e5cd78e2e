"""The line of steps in a list: gaps where attempts end and where nothing was heard, few questions to the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter, Step
from supervisor.services.reading import series
from supervisor.services.reading.series import Sparklines, points_of
from tests.services.bed import Bed
from tests.services.test_series import kept


def seen(points: Sequence[dict[str, Any]]) -> list[tuple[int, bool]]:
    return [(point["step"], point["gap"]) for point in points]


def test_a_new_attempt_and_a_silence_break_the_line() -> None:
    line = [Step(1000.0 + 60 * n, 1, 10 * n) for n in range(5)]
    assert seen(points_of(line, 2000.0)) == [(0, False), (10, False), (20, False), (30, False), (40, False)]
    preempted = [*line, Step(1300.0, 2, 35), Step(1360.0, 2, 45)]
    assert seen(points_of(preempted, 2000.0))[-2:] == [(35, True), (45, False)]
    silent = [*line, Step(1240.0 + 600, 1, 50)]
    assert seen(points_of(silent, 2000.0))[-1] == (50, True)
    untold = [Step(900.0, 1, None), *line, Step(1300.0, 2, None), Step(1360.0, 3, 41)]
    assert seen(points_of(untold, 2000.0)) == [*seen(points_of(line, 2000.0)), (41, True)]
    assert points_of([], 2000.0) == []


def test_a_month_is_no_silence() -> None:
    """Its points lie a day apart because few are asked for, and those older than a day are one in ten minutes."""
    month = [Step(86_400.0 * n, 1, n) for n in range(24)]
    assert not any(gap for _, gap in seen(points_of(month, 86_400.0 * 24)))
    thinned = [Step(600.0 * n, 1, n) for n in range(3)]
    assert not any(gap for _, gap in seen(points_of(thinned, 200_000.0)))
    assert seen(points_of([Step(0.0, 1, 0), Step(60.0, 1, 1), Step(86_400.0, 1, 2)], 86_500.0))[-1] == (2, True)


def test_a_list_shows_them_where_they_are_asked_for(any_bed: Bed) -> None:
    for name in ("digits-7", "digits-8"):
        any_bed.submit(name)
    kept(any_bed, (60, 1, 10), (120, 1, 20), (180, 2, 15))
    any_bed.clock.advance(200)
    listed = any_bed.services.queries.page(RunFilter(), 50, None, sparklines=True)["runs"]
    assert [(run["run_id"], seen(run["sparkline"])) for run in listed] == [
        ("digits-8", []),
        ("digits-7", [(10, False), (20, False), (15, True)]),
    ]
    assert listed[1]["sparkline"][0]["at"] == "2027-01-15T08:01:00.000Z"
    assert "sparkline" not in any_bed.services.queries.page(RunFilter(), 50, None)["runs"][0]


def test_what_was_read_is_kept_for_a_minute(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    real = bed.store.lines
    monkeypatch.setattr(bed.store, "lines", lambda keys: (asked.append(list(keys)), real(keys))[1])
    bed.submit("digits-7")
    bed.submit("digits-8")
    lines, runs = Sparklines(bed.parts), [bed.train("digits-7"), bed.run("digits-8")]
    for _ in range(3):
        lines.of(runs)
        bed.clock.advance(10)
    assert asked == [[run.key for run in runs]]
    lines.of([replace(runs[0], version=runs[0].version + 1), runs[1]])
    assert asked[1:] == [[runs[0].key]]
    bed.clock.advance(series.KEPT_S)
    lines.of(runs)
    assert len(asked) == 3
    over = bed.end("digits-7", Status.COMPLETED)
    lines.of([over])
    bed.clock.advance(2 * series.KEPT_S)
    lines.of([over])
    assert len(asked) == 4
    monkeypatch.setattr(series, "LINES_KEPT", 3)
    lines.of([replace(over, key=1000 + n) for n in range(9)])
    assert len(lines._kept) == 3

"""Curves by every value: by step or time, logarithmic, smoothed; and the page that compares runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.dashboard.drawing import charts
from supervisor.dashboard.drawing.curves import Dot, Look, look_of, run_charts, smoothed, step_marks
from supervisor.services.views import formats
from supervisor.wording.figures import DASH
from tests.dashboard.dataset.house import NOW
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.dashboard.serve_dataset import filled
from tests.services.bed import Bed
from tests.services.curves_bed import line, stored, trained

BY_STEP = Look("step")
SINCE = 1_700_000_000.0


def metrics(values: list[Any], attempts: list[tuple[int, int]] | None = None, name: str = "loss") -> dict[str, Any]:
    """As the API has them: a step each second, attempts as (first step, last step)."""
    steps = list(range(1, len(values) + 1))
    rows = [{"name": name, "steps": steps, "seconds": [float(step) for step in steps], "values": values}]
    spans = attempts or [(1, len(values))]
    shown = [{"attempt": n, "first_step": first, "last_step": last} for n, (first, last) in enumerate(spans, 1)]
    return {"since": formats.time_text(SINCE), "metrics": rows, "attempts": shown}


def drawn(shown: dict[str, Any], look: Look = BY_STEP, span: tuple[float, float] | None = None) -> charts.Chart:
    (chart,) = run_charts(shown, look, span, 100.0, None).charts
    return chart


def corners(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_by_step_the_line_goes_on_through_the_attempts() -> None:
    shown = metrics([4.0, 3.0, 2.0, 1.0], [(1, 2), (3, 4)])
    assert drawn(shown).path.count("M") == 1
    whole = run_charts(shown, Look("step"), None, 100.0, None)
    assert [(each.number, each.left) for each in whole.stretches] == [(1, 0.0), (2, pytest.approx(66.67))]
    assert (whole.begin, whole.end) == (1.0, 4.0)


def test_by_time_each_attempt_is_a_piece() -> None:
    shown = metrics([4.0, 3.0, 2.0, 1.0], [(1, 2), (3, 4)])
    over = charts.draw([charts.STEPS[0]], [], [], (SINCE, SINCE + 10), 100.0)
    step, loss = run_charts(shown, Look(), None, 100.0, over).charts
    assert step.kind.field == "step"
    assert loss.path.count("M") == 2
    assert loss.moments is not None
    assert loss.moments[0] == (100.0, charts.moment_text(SINCE + 1), "1")


def test_the_extremes_are_in_the_chart_and_what_is_not_finite_is_counted() -> None:
    chart = drawn(metrics([1.0, "nan", 99.0, "inf", -5.0, 2.0]))
    assert chart.bounds == "lowest -5, highest 99; 2 values not shown"
    assert [text for *_, text in chart.readings] == ["1", "99", "-5", "2"]
    assert chart.last == "2"


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors() -> None:
    chart = drawn(metrics([1000.0, 100.0, 10.0, 0.0, -1.0]), Look("step", log=True))
    (_, high), (_, middle), (_, low) = corners(chart.path)
    assert middle - high == pytest.approx(low - middle, abs=0.2)
    assert [text for _, text in chart.up] == ["10", "100", "1,000"]
    assert "2 values not shown" in chart.bounds


@pytest.mark.parametrize("values", [[1e-300, 1e300], [5.0], [], ["nan"], [1e308, 1.7e308], [3.0, 3.1], [0.0]])
@pytest.mark.parametrize("look", [Look("step"), Look("step", log=True), Look("step", log=True, smooth=0.9)])
def test_any_values_make_a_chart(values: list[Any], look: Look) -> None:
    chart = drawn(metrics(values), look)
    assert "nan" not in chart.path + chart.faint + str(chart.up)
    assert all(0 <= y <= 100 for y, _ in chart.up)


def test_a_zoom_shows_those_steps_only() -> None:
    chart = drawn(metrics([float(n) for n in range(100)]), span=(11.0, 20.0))
    assert len(chart.readings) == 10
    assert chart.bounds == "lowest 10, highest 19"


def test_smoothing_follows_the_values_and_forgets_over_a_gap() -> None:
    noisy = [Dot(float(step), 1.0 + (-1) ** step, step) for step in range(1, 200)]
    smooth = smoothed(noisy, 0.9)
    assert all(abs(dot.value - 1.0) < 0.15 for dot in smooth[50:])
    assert smoothed(noisy, 0.9)[0].value == noisy[0].value
    jump = [Dot(float(step), 1.0, step) for step in range(1, 50)] + [Dot(5_000.0, 9.0, 5_000)]
    assert smoothed(jump, 0.9)[-1].value > 8.0
    chart = drawn(metrics([1.0, 2.0, 1.0, 2.0]), Look("step", smooth=0.9))
    assert chart.faint
    assert chart.faint != chart.path


def test_words_of_the_address() -> None:
    assert look_of({"x": "step", "y": "log", "smooth": "0.9"}) == Look("step", True, 0.9)
    assert look_of({"x": "moon", "y": "2", "smooth": "nan"}) == Look()


@pytest.mark.parametrize(("begin", "end"), [(0.0, 1.0), (1.0, 5.0), (10.0, 30_680.0), (1e14, 1e15), (100.0, 103.0)])
def test_step_marks_are_whole_steps_in_the_chart(begin: float, end: float) -> None:
    marks = step_marks(begin, end)
    assert marks
    assert all(0 <= place <= 100 for place, _ in marks)
    assert len({text for _, text in marks}) == len(marks)


# --- pages ------------------------------------------------------------------------------------------------------------


def titles(page: Element) -> list[str]:
    return [each.one("span", class_="chart-title").text for each in page.all("figure")]


def test_a_short_run_shows_every_point(bed: Bed) -> None:
    values = [(step, 1.0 / step) for step in range(1, 301)]
    values[150] = (151, 7.0)
    trained(bed, "digits-7", (None, stored({"loss": values})))
    looking = Looking(bed.services, now=bed.clock.now)
    for address in ("/ui/runs/digits-7/charts", "/ui/runs/digits-7/charts?x=step"):
        figure = next(
            each for each in looking.page(address).all("figure") if each.attributes["data-field"] == "metric loss"
        )
        readings = json.loads(figure.attributes["data-readings"])
        assert len(readings) == len(json.loads(figure.attributes["data-moments"])) == 300
        assert "7" in [text for *_, text in readings]


def test_what_could_not_be_read_is_said(bed: Bed) -> None:
    trained(bed, "digits-7", (None, b"damaged"))
    page = Looking(bed.services, now=bed.clock.now).page("/ui/runs/digits-7/charts?x=step")
    assert "Attempt 1: The stored metrics of this attempt are damaged." in page.text


def test_the_buttons_keep_the_other_choices(bed: Bed) -> None:
    trained(bed, "digits-7", (None, stored({"loss": line(1, 9)})))
    page = Looking(bed.services, now=bed.clock.now).page("/ui/runs/digits-7/charts?x=step&y=log&from=2&to=5")
    links = {each.text: each.attributes["href"] for each in page.one("nav", aria_label="Axes").all("a")}
    assert links["Smoothed"] == "/ui/runs/digits-7/charts?x=step&y=log&from=2&to=5&smooth=0.9"
    assert links["Logarithmic"] == "/ui/runs/digits-7/charts?x=step&from=2&to=5"
    assert links["By time"] == "/ui/runs/digits-7/charts?y=log"
    assert page.one(id="charts").attributes["data-axis"] == "step"
    assert page.one("input", id="from").attributes["value"] == "2"


@pytest.fixture(scope="module")
def sweep() -> Iterator[Looking]:
    with filled(NOW, sweep=True) as house:
        yield Looking(house.services, now=house.clock.now)


def rows(page: Element) -> list[list[str]]:
    return [[cell.text.strip() for cell in row.all("td")] for row in page.all("tbody")[0].all("tr")]


def test_a_group_is_compared_with_one_color_for_each_run(sweep: Looking) -> None:
    page = sweep.page("/ui/compare?group=resnet-lr&metric=loss&metric=accuracy")
    assert titles(page) == ["loss", "accuracy"]
    colors = [[path.attributes["data-color"] for path in figure.all("path")] for figure in page.all("figure")]
    assert colors == [["0", "2", "3"], ["0", "2", "3"]]
    assert "The lowest loss: resnet-lr-lr0-03-seed1" in page.text
    heads = [head.text for head in page.all("thead")[0].all("th")]
    assert heads[2:6] == ["loss last", "loss lowest", "accuracy last", "accuracy highest"]
    differing = [row.one("th").text for row in page.all("tbody")[1].all("tr")]
    assert differing[:2] == ["labels.lr", "labels.seed"]


def test_the_table_is_ordered_by_any_value(sweep: Looking) -> None:
    page = sweep.page("/ui/compare?group=resnet-lr&sort=best.loss")
    values = [row[2] for row in rows(page)]
    assert values[:3] == sorted(values[:3], key=float)
    assert values[3:] == [DASH] * 3
    turned = sweep.page("/ui/compare?group=resnet-lr&sort=-best.loss")
    assert [row[2] for row in rows(turned)][:3] == values[:3][::-1]
    assert sweep.page("/ui/compare?group=resnet-lr&sort=best.nothing").all("figure")


def test_a_metric_that_no_run_has_leaves_the_page_whole(sweep: Looking) -> None:
    page = sweep.page("/ui/compare?group=resnet-lr&metric=los&by=loss")
    assert not page.all("figure")
    assert [row[1] for row in rows(page)] == [DASH] * 6


def test_runs_are_named_in_one_field(sweep: Looking) -> None:
    page = sweep.page("/ui/compare?runs=resnet-lr-lr0-1-seed1,+resnet-lr-lr0-03-seed1&x=time")
    assert page.one("input", id="runs").attributes["value"] == "resnet-lr-lr0-1-seed1 resnet-lr-lr0-03-seed1"
    assert page.one(id="charts").attributes["data-axis"] == "since"
    moments = json.loads(page.all("figure")[0].attributes["data-moments"])
    assert moments == sorted(moments, key=lambda moment: moment[0])
    assert "Name at least one run" in sweep.page("/ui/compare").text
    assert sweep.get("/ui/compare?runs=no-such-run").status_code == 404
    assert sweep.get("/ui/compare?runs=No_Run").status_code == 422


def test_a_group_leads_to_its_comparison(sweep: Looking) -> None:
    links = [each.attributes["href"] for each in sweep.page("/ui/groups/resnet-lr").all("a") if each.text == "Compare"]
    assert links == ["/ui/compare?group=resnet-lr"]

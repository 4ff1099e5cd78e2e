"""The charts of a run as the server draws them: complete, cut where no beat arrived, for any values."""

from __future__ import annotations

import json
import math
import re

import pytest

from supervisor.dashboard.drawing import charts
from supervisor.domain.status import Status
from supervisor.services.views import formats
from tests.dashboard.document import Element, read
from tests.dashboard.looking import Looking
from tests.dashboard.series_bed import attempted, told
from tests.services.bed import Bed

HOSTILE = "<img src=x onerror=alert(1)>' \" data-x"


@pytest.fixture
def trained(bed: Bed) -> Looking:
    """Four hours, two attempts, a metric with a name that means harm."""
    bed.submit("digits-7")
    attempted(bed, "digits-7", (60, 7200, "preempted"), (9000, 12_600, "stalled"))
    spans = ((1, 120, 7200), (2, 9060, 12_600))
    told(
        bed,
        "digits-7",
        [
            (at, attempt, at * 3, {"loss": math.exp(-at / 5000), HOSTILE: 1e12 * at})
            for attempt, begin, end in spans
            for at in range(begin, end, 60)
        ],
        gpu_pct=88,
    )
    bed.clock.advance(4 * 3600)
    return Looking(bed.services, now=bed.clock.now)


def figure(page: Element, title: str) -> Element:
    (found,) = [one for one in page.all("figure") if one.one("span", class_="chart-title").text == title]
    return found


def test_every_figure_has_a_chart_that_says_in_words_what_it_shows(trained: Looking) -> None:
    page = trained.page("/ui/runs/digits-7/charts")
    titles = [one.one("span", class_="chart-title").text for one in page.all("figure")]
    assert titles == [
        "Step", "Steps per second", "loss", HOSTILE, "GPU", "GPU memory", "Memory of the machine", "Free disk",
    ]  # fmt: skip
    step = figure(page, "Step")
    picture = step.one("svg", role="img")
    named = picture.attributes["aria-labelledby"].split()
    words = [page.one(id=name).text for name in named]
    assert words[0] == "Step over time (UTC)"
    assert re.fullmatch(r"Last 37,620, lowest [\d,]+, highest 37,620; \d+ points, with 1 gap\.", words[1])
    assert step.one("strong").text == "37,620"
    assert [one.text for one in picture.all("text", class_="chart-number")] == ["1", "2"]
    assert [one.one("title").text for one in picture.all("rect", class_="chart-band")] == [
        "Attempt 1, local-a: preempted", "Attempt 2, local-a: stalled",
    ]  # fmt: skip
    assert figure(page, "Free disk").one("strong").text == "40 %"
    assert figure(page, "Memory of the machine").one("strong").text.endswith(" GB")
    assert len({one.attributes["id"] for one in page.all() if "id" in one.attributes}) == len(
        [one for one in page.all() if "id" in one.attributes]
    )


def test_a_line_is_cut_where_its_attempt_ended(trained: Looking) -> None:
    page = trained.page("/ui/runs/digits-7/charts")
    for one in page.all("figure"):
        assert one.one("path").attributes["d"].count("M") == 2


def test_a_hostile_name_stays_text(trained: Looking) -> None:
    page = trained.page("/ui/runs/digits-7/charts")
    assert not page.all("img")
    assert figure(page, HOSTILE).attributes["data-field"] == f"metric {HOSTILE}"
    assert not [one for one in page.all() if "style" in one.attributes or "onerror" in one.attributes]
    assert figure(page, HOSTILE).one("strong").text == "1.254e16"


def test_scripts_find_the_words_of_each_point(trained: Looking, bed: Bed) -> None:
    page = trained.page("/ui/runs/digits-7/charts")
    box = page.one(id="charts").attributes
    created = bed.run("digits-7").created_at
    assert float(box["data-begin"]) <= created + 60
    assert float(box["data-end"]) == pytest.approx(created + 4 * 3600, abs=60)
    moments = json.loads(box["data-moments"])
    assert all(0 <= x <= 1000 for x, _, _ in moments)
    assert moments[-1][1:] == [charts.moment_text(created + 12_540), "37,620"]
    loss = figure(page, "loss")
    readings = json.loads(loss.attributes["data-readings"])
    corners = re.findall(r"[ML]([\d.]+) ([\d.]+)", loss.one("path").attributes["d"])
    assert [(moments[point][0], y) for point, y, _ in readings] == [(float(x), float(y)) for x, y in corners]
    assert readings[-1][2] == loss.one("strong").text == charts.value_text(math.exp(-12_540 / 5000), "")


@pytest.mark.parametrize("name", ["constructor", "toString", "__proto__"])
def test_a_metric_may_have_any_name(bed: Bed, name: str) -> None:
    """Also the name of something that every object of a script has."""
    bed.submit("odd")
    told(bed, "odd", [(60 * n, 1, n, {name: 1.5} if n % 2 else {}) for n in range(1, 6)])
    bed.clock.advance(400)
    page = Looking(bed.services, now=bed.clock.now).page("/ui/runs/odd/charts")
    readings = json.loads(figure(page, name).attributes["data-readings"])
    assert [text for *_, text in readings] == ["1.5"] * 3


def test_the_address_chooses_the_time(trained: Looking, bed: Bed) -> None:
    created = bed.run("digits-7").created_at
    since, until = formats.time_text(created + 9000), formats.time_text(created + 9600)
    page = trained.page(f"/ui/runs/digits-7/charts?since={since}&until={until}")
    step = figure(page, "Step")
    assert "Last 28,800, lowest 27,180" in step.one("desc").text
    assert [one.attributes["width"] for one in step.all("rect", class_="chart-band")] == ["100.0%"]
    assert page.one("input", id="since").attributes["value"][:19] == since[:19]
    hour = trained.page("/ui/runs/digits-7/charts?last=hour")
    assert "lowest 32,400, highest 37,620" in figure(hour, "Step").one("desc").text
    assert hour.one("nav", aria_label="Time shown").one("a", aria_current="true").text == "Last hour"
    refused = trained.get("/ui/runs/digits-7/charts?since=yesterday")
    assert refused.status_code == 422
    assert "2026-01-31T12:00:00Z" in refused.text


def test_a_run_that_is_over_ends_its_axis_where_it_ended(trained: Looking, bed: Bed) -> None:
    created = bed.run("digits-7").created_at
    bed.change("digits-7", status=Status.STOPPED, status_since=created + 12_600)
    bed.clock.advance(30 * 86_400)
    box = trained.page("/ui/runs/digits-7/charts").one(id="charts").attributes
    assert float(box["data-end"]) == pytest.approx(created + 12_600)
    last = trained.page("/ui/runs/digits-7/charts?last=hour")
    assert last.all("path", class_="chart-line")


def test_nothing_one_point_and_absurd_values(bed: Bed) -> None:
    looking = Looking(bed.services, now=bed.clock.now)
    for name in ("none", "single", "absurd"):
        bed.submit(name)
    told(bed, "single", [(30, 1, 12, {"loss": 0.3112})])
    told(bed, "absurd", [(60 * n, 1, 10**15 - n, {"wild": (-1) ** n * 1.7e308}) for n in range(20)])
    bed.clock.advance(1300)
    page = looking.page("/ui/runs/none/charts")
    assert "No figures yet" in page.text
    assert not page.all("figure")
    single = figure(looking.page("/ui/runs/single/charts"), "loss")
    assert single.one("path").attributes["d"].endswith("h0")
    assert single.one("desc").text == "Last 0.3112, one point."
    wild = figure(looking.page("/ui/runs/absurd/charts"), "wild")
    assert "nan" not in wild.one("path").attributes["d"]
    assert wild.one("desc").text.startswith("Last -1.7e308, lowest -1.7e308, highest 1.7e308; 20 points")


def test_the_overview_has_a_few_of_them_or_none(trained: Looking, bed: Bed) -> None:
    page = trained.page("/ui/runs/digits-7")
    panel = page.one(id="charts")
    assert [one.one("span", class_="chart-title").text for one in panel.all("figure")] == [
        "Step", "loss", HOSTILE, "GPU",
    ]  # fmt: skip
    bed.submit("fresh")
    fresh = trained.page("/ui/runs/fresh").one(id="charts")
    assert "No figures yet" in fresh.text
    bed.change("fresh", status=Status.STOPPED)
    assert not trained.page("/ui/runs/fresh").all(id="charts")


def test_a_page_that_refreshes_has_its_charts_for_the_same_time(trained: Looking, bed: Bed) -> None:
    begin = bed.run("digits-7").created_at + 9000
    part = f"?since={formats.time_text(begin)}&until={formats.time_text(begin + 600)}"
    for path, figures in (("/ui/runs/digits-7/charts", 8), ("/ui/runs/digits-7", 4)):
        answer = trained.get(path + part, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        assert "run-sentence" in answer.text
        assert answer.text.count("<figure") == figures
        assert float(read(answer.text).one(id="charts").attributes["data-begin"]) == pytest.approx(begin, abs=1)

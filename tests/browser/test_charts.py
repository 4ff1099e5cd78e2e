"""Charts where scripts run: they are read by pointing and by keyboard, zoomed together, and keep their zoom."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from supervisor.dashboard.drawing import axis, charts
from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
CHARTS = "/ui/runs/llm-a/charts"
LOOK_AGAIN = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def page(browser: Browser, pictures: str) -> Iterator[Page]:
    visitor = Visitor(browser, pictures)
    visitor.page.goto(CHARTS)
    expect(visitor.page.locator(".u-over").first).to_be_visible()
    yield visitor.page
    assert visitor.close() == []


def drag(page: Page, begin: float, end: float) -> None:
    """Over the second chart, from one share of its width to another."""
    page.locator(".u-over").nth(1).scroll_into_view_if_needed()
    box = page.locator(".u-over").nth(1).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()


def test_pointing_at_one_reads_all(page: Page) -> None:
    readings = page.locator(".chart-reading")
    expect(readings.first).to_contain_text("lowest")
    page.locator(".u-over").first.hover(position={"x": 150, "y": 40})
    expect(readings.nth(2)).to_contain_text("UTC · step ")
    times = {text.partition(" UTC")[0] for text in readings.all_text_contents()}
    assert len(times) == 1


def test_a_zoom_stands_in_the_address_and_stays(page: Page) -> None:
    whole = page.locator("#since").input_value()
    drag(page, 0.4, 0.6)
    page.wait_for_url("**/charts?since=*&until=*")
    zoomed = page.url
    expect(page.locator("#since")).not_to_have_value(whole)
    with page.expect_response("**/beats?*") as asked:
        page.evaluate(LOOK_AGAIN)
    assert "since=" in asked.value.url
    assert page.url == zoomed
    page.reload()
    expect(page.locator(".u-over").first).to_be_visible()
    assert page.url == zoomed
    page.locator(".u-over").nth(1).dblclick(position={"x": 60, "y": 40})
    page.wait_for_url(f"**{CHARTS}")
    expect(page.locator("#since")).to_have_value(whole)


def test_a_change_of_the_run_brings_new_points(page: Page) -> None:
    with page.expect_response("**/beats?*", timeout=15_000):  # by itself it looks every 30 s
        page.evaluate(
            """() => {
              document.getElementById('run-chip').textContent = 'recovering';
              document.dispatchEvent(new CustomEvent('live:changed', { detail: document.body }));
            }"""
        )


def test_by_keyboard(page: Page) -> None:
    room = page.locator(".chart-room").nth(2)
    assert (room.get_attribute("aria-label") or "").startswith("loss: Last ")
    room.focus()
    reading = page.locator(".chart-reading").nth(2)
    seen = set()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
        seen.add(reading.text_content())
    assert len(seen) == 3
    assert reading.get_attribute("aria-live") == "polite"
    page.keyboard.press("+")
    page.wait_for_url("**/charts?since=*")
    page.keyboard.press("0")
    page.wait_for_url(f"**{CHARTS}")


def test_scripts_and_server_write_figures_alike(page: Page) -> None:
    made = random.Random(7)
    cases = [
        (kind, made.choice([0.0, 10 ** made.uniform(-1, 12)]), made.choice([1, 2, 5]) * 10.0 ** made.randint(-5, 9))
        for kind in ("steps", "rate", "percent", "bytes", "")
        for _ in range(60)
    ]
    cases += [("rate", 0.004, 1.0), ("", -1.7e308, 1e300), ("", 4.9e-11, 1e-11), ("", 1.23456e8, 20.0)]
    told = page.evaluate(
        """(cases) => cases.map(([unit, value, step]) => [
          window.spotChartWords.valueText(value, unit), window.spotChartWords.markText(3 * step, step, unit)])""",
        cases,
    )
    assert told == [[axis.value_text(value, kind), axis.mark_text(3 * step, step, kind)] for kind, value, step in cases]


def test_scripts_and_server_cut_lines_alike(page: Page) -> None:
    made = random.Random(8)
    values = [None if made.random() < 0.3 else made.random() for _ in range(200)]
    gaps = [made.random() < 0.2 for _ in values]
    points = [
        {
            "at": f"2026-01-01T{n // 60:02d}:{n % 60:02d}:00Z",
            "gap": gap,
            "step": n,
            "metrics": {} if value is None else {"m": value},
        }
        for n, (value, gap) in enumerate(zip(values, gaps, strict=True))
    ]
    drawn, dots = page.evaluate(
        """(points) => {
          const figure = document.querySelector("figure.chart");
          figure.dataset.field = "metric m";
          const nothing = () => {};
          const made = window.spotChartPlot.make(
            figure, points, { bands: () => [], times: () => [0, 1], told: nothing, picked: nothing, all: nothing });
          const alone = made.series[1].points.filter(made, 1, false, []);
          return [made.data[1], alone.map((at) => made.data[1][at])];
        }""",
        points,
    )
    stretches: list[list[float]] = [[]]
    for value in drawn:
        if value is None:
            stretches.append([])
        else:
            stretches[-1].append(value)
    told = [charts.Point(float(n), value, gap) for n, (value, gap) in enumerate(zip(values, gaps, strict=True))]
    assert stretches == [[value for _, value in stretch] for stretch in charts.lines(told)]
    assert dots == [stretch[0] for stretch in stretches if len(stretch) == 1], "a line of one point is a dot"


def test_a_metric_may_have_any_name(page: Page) -> None:
    """Also one that every object of a script has: where a point does not tell it, there is no value."""
    columns = """([name, value]) => {
      const metrics = JSON.parse(`{${JSON.stringify(name)}: ${value}}`);
      const points = [{ at: "2026-11-22T10:00:00Z", metrics }, { at: "2026-11-22T10:01:00Z", metrics: {} }];
      return spotChartPlot.columns(points.map((one) => ({ step: 1, gap: false, ...one })), "metric " + name).data[1];
    }"""
    for name in ("loss", "constructor", "toString", "__proto__"):
        assert page.evaluate(columns, [name, 1.5]) == [1.5], name

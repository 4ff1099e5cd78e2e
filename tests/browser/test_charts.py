"""Charts where scripts run: they are read by pointing and by keyboard, zoomed together, and keep their zoom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
CHARTS = "/ui/runs/llm-a/charts"
REFRESH = "htmx.trigger(document.querySelector('[hx-select-oob]'), 'sse:refresh')"
PICTURE = ".chart-picture[tabindex]"  # with scripts


@pytest.fixture
def page(browser: Browser, pictures: str) -> Iterator[Page]:
    visitor = Visitor(browser, pictures)
    visitor.page.goto(CHARTS)
    expect(visitor.page.locator(PICTURE).first).to_be_visible()
    yield visitor.page
    assert visitor.close() == []


def drag(page: Page, begin: float, end: float) -> None:
    """Over the second chart, from one share of its width to another."""
    area = page.locator(".chart-area").nth(1)
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()


def test_pointing_at_one_reads_all(page: Page) -> None:
    readings = page.locator(".chart-reading")
    expect(readings.first).to_contain_text("lowest")
    page.locator(PICTURE).first.hover(position={"x": 150, "y": 40})
    expect(readings.nth(2)).to_contain_text("UTC · step ")
    times = {text.partition(" UTC")[0] for text in readings.all_text_contents()}
    assert len(times) == 1


def test_a_zoom_stands_in_the_address_and_stays(page: Page) -> None:
    whole = page.locator("#since").input_value()
    drag(page, 0.4, 0.6)
    page.wait_for_url("**/charts?since=*&until=*")
    zoomed = page.url
    expect(page.locator("#since")).not_to_have_value(whole)
    with page.expect_response("**/charts?*") as asked:
        page.evaluate(REFRESH)
    assert "since=" in asked.value.url
    assert page.url == zoomed
    page.reload()
    expect(page.locator(PICTURE).first).to_be_visible()
    assert page.url == zoomed
    page.locator(PICTURE).nth(1).dblclick(position={"x": 60, "y": 40})
    page.wait_for_url(f"**{CHARTS}")
    expect(page.locator("#since")).to_have_value(whole)


def test_a_refresh_brings_new_points_and_keeps_what_is_read(page: Page) -> None:
    reading, line = page.locator(".chart-reading").nth(2), page.locator(".chart-line").nth(2)
    page.locator(PICTURE).first.hover(position={"x": 250, "y": 40})
    text, drawn = reading.text_content(), line.get_attribute("d")
    line.evaluate("(line) => line.setAttribute('d', 'M0 0h0')")  # as if it had been drawn before the newest points
    with page.expect_response("**/charts*", timeout=15_000):  # by itself it refreshes every 30 s
        page.evaluate(REFRESH)
    expect(line).to_have_attribute("d", drawn or "")
    assert reading.text_content() == text


def test_what_is_read_is_what_the_server_wrote(page: Page) -> None:
    moments = json.loads(page.locator("#charts").get_attribute("data-moments") or "")
    figure = page.locator("figure.chart").nth(2)
    point, _, value = json.loads(figure.get_attribute("data-readings") or "")[0]
    figure.locator(".chart-picture").focus()
    page.keyboard.press("ArrowRight")
    _, time, step = moments[point]
    expect(figure.locator(".chart-reading")).to_have_text(f"{time} · step {step} · {value}")


def test_by_keyboard(page: Page) -> None:
    picture = page.locator(PICTURE).nth(2)
    expect(picture).to_have_accessible_name(re.compile(r"^loss over time \(UTC\) Last "))
    picture.focus()
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

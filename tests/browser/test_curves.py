"""Curves where scripts run: each chart is read by points of its own, and a zoom is one of steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
CHARTS = "/ui/runs/resnet-lr-lr0-03-seed1/charts?x=step"
COMPARE = "/ui/compare?group=resnet-lr&metric=loss&metric=accuracy"
PICTURE = ".chart-picture[tabindex]"  # with scripts


@pytest.fixture
def page(browser: Browser, pictures: str) -> Iterator[Page]:
    visitor = Visitor(browser, pictures)
    yield visitor.page
    assert visitor.close() == []


def drag(page: Page, begin: float, end: float) -> None:
    box = page.locator(".chart-area").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()


def test_a_run_by_step_is_read_and_zoomed_by_steps(page: Page) -> None:
    page.goto(CHARTS)
    picture, readings = page.locator(PICTURE), page.locator(".chart-reading")
    picture.first.hover(position={"x": 200, "y": 40})
    expect(readings.nth(0)).to_contain_text("step ")
    loss, accuracy = (readings.nth(number).inner_text().partition(" · ")[0] for number in (0, 1))
    assert loss != accuracy, "accuracy is reported each thousandth step: it has points of its own"
    drag(page, 0.4, 0.6)
    page.wait_for_url("**/charts?x=step&from=*&to=*")
    expect(page.locator("#from")).not_to_have_value("10")  # the address changes first
    begin, end = (int(page.locator(f"#{name}").input_value()) for name in ("from", "to"))
    assert 10_000 < begin < 15_000 < end < 20_000
    page.get_by_role("link", name="Logarithmic").click()
    page.wait_for_url(f"**/charts?x=step&from={begin}&to={end}&y=log")
    picture.first.dblclick(position={"x": 200, "y": 40})
    page.wait_for_url("**/charts?x=step&y=log")


def test_compared_runs_are_read_by_name_and_ordered(page: Page) -> None:
    page.goto(COMPARE)
    expect(page.locator(PICTURE)).to_have_count(2)
    page.locator(PICTURE).first.hover(position={"x": 200, "y": 40})
    expect(page.locator(".chart-reading").first).to_contain_text("resnet-lr-lr0-")
    page.get_by_role("link", name="loss lowest").click()
    page.wait_for_url("**&sort=best.loss")
    expect(page.locator("tbody").first.locator("tr").first).to_contain_text("resnet-lr-lr0-03-seed1")

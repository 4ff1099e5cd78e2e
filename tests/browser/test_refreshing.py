"""A refresh changes a page without a reload, and does not disturb its reader."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.house import House

pytestmark = pytest.mark.xdist_group("browser")
MARK = """() => {
  window.isTheSame = true;
  document.activeElement.hasTheFocus = true;
}"""
IS_AS_IT_WAS = "() => window.isTheSame === true && document.activeElement.hasTheFocus === true"


def is_as_it_was(page: Page) -> bool:
    """The same document, and the same element has the focus."""
    return bool(page.evaluate(IS_AS_IT_WAS))


def test_rows_change_below_what_was_chosen_opened_and_typed(house: House, visit: Visit, quiet: str) -> None:
    page = visit().come_back(house.token)
    chosen = page.get_by_role("checkbox", name=f"Select {quiet}")
    chosen.check()
    page.get_by_text("More filters").click()
    search = page.get_by_role("searchbox")
    search.fill("half a na")
    page.evaluate(MARK)
    house.relabel(quiet, "seen-in-row")
    expect(page.locator(f"#run-{quiet}")).to_contain_text("seen-in-row=set")
    assert is_as_it_was(page)
    assert chosen.is_checked()
    assert page.get_by_label("Zone").is_visible()
    assert search.input_value() == "half a na"
    page.keyboard.type("me")
    assert search.input_value() == "half a name"


def test_a_run_page_keeps_its_focus(house: House, visit: Visit, quiet: str) -> None:
    page = visit().come_back(house.token, f"/ui/runs/{quiet}")
    link = page.get_by_role("link", name="log of attempt 1", exact=True)
    link.focus()
    page.evaluate(MARK)
    house.relabel(quiet, "seen-on-page")
    expect(page.locator("#run-history")).to_contain_text("labels.seen-on-page")
    expect(page.locator("#run-facts")).to_contain_text("seen-on-page=set")
    assert is_as_it_was(page)


def test_events_stay_open(house: House, visit: Visit, quiet: str) -> None:
    page = visit().come_back(house.token, f"/ui/runs/{quiet}/events")
    first = page.get_by_role("listitem").filter(has_text="Submitted by")
    first.locator("summary").click()
    page.evaluate(MARK)
    house.relabel(quiet, "seen-in-feed")
    expect(page.get_by_role("main")).to_contain_text("labels.seen-in-feed")
    assert is_as_it_was(page)
    assert first.locator("details").evaluate("(one) => one.open")

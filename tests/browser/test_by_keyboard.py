"""Keyboard only: everything can be reached in the order of the page, with a visible focus."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Visit
from tests.browser.house import House

pytestmark = pytest.mark.xdist_group("browser")
MOST_STEPS = 300
REACHABLE = """() => {
  const all = document.querySelectorAll(
    "a[href], button:not(:disabled), input:not([type=hidden], :disabled), select, textarea, summary, [tabindex='0']");
  const shown = [...all].filter((one) => one.checkVisibility({ visibilityProperty: true }));
  shown.forEach((one, at) => { one.numberByTest = at; });
  return shown.map((one) => one.outerHTML.slice(0, 120));
}"""
# Its number (-1: something that scrolls, which Chromium lets Tab reach by itself; -2: the page as a whole), and whether
# a ring is drawn around it within the window, in a colour that differs from what is around it.
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const drawn = style.outlineStyle !== "none" && style.outlineColor !== "rgba(0, 0, 0, 0)";
  const ring = drawn && parseFloat(style.outlineWidth) >= 2;
  const within = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  const room = one.offsetParent || document.body;
  const differs = style.outlineColor !== getComputedStyle(room).backgroundColor;
  const number = one.numberByTest ?? (one === document.body ? -2 : -1);
  return [number, ring && within && differs];
}"""


def tab_to(page: Page, wanted: Locator) -> None:
    expect(wanted).to_be_visible()
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        if wanted.evaluate("(one) => one === document.activeElement"):
            assert page.evaluate(FOCUSED)[1]
            return
    raise AssertionError(f"not reached by Tab: {wanted}")


def test_from_the_sign_in_to_the_end_of_a_run(house: House, visit: Visit) -> None:
    token = house.person("keys")
    house.talks("keys-a", token)
    page = visit().page
    page.goto("/ui/runs")
    expect(page.get_by_role("textbox", name="Token")).to_be_focused()  # a browser gives it after the page has loaded
    page.keyboard.type(token)
    page.keyboard.press("Enter")
    expect(page.locator("#run-keys-a .chip").first).to_contain_text("running")
    page.wait_for_load_state()  # the row is there before the scripts that listen to the keys
    page.keyboard.press("j")
    expect(page.locator("#run-keys-a")).to_be_focused()
    assert page.evaluate(FOCUSED)[1]
    page.keyboard.press("x")
    expect(page.get_by_role("checkbox", name="Select keys-a")).to_be_checked()
    page.keyboard.press("Enter")
    expect(page.locator("#run-chip")).to_contain_text("running")
    tab_to(page, page.get_by_role("link", name="Log", exact=True))
    page.keyboard.press("Enter")
    expect(page.locator("#log")).to_contain_text("step 1 of attempt 1")
    tab_to(page, page.get_by_role("link", name="Stop", exact=True))
    page.keyboard.press("Enter")
    tab_to(page, page.get_by_role("main").get_by_role("button", name="Stop"))
    page.keyboard.press("Enter")
    expect(page.locator("#run-chip")).to_contain_text("stopped")


def test_tab_goes_through_pages_in_their_order(house: House, visit: Visit, quiet: str) -> None:
    page = visit().come_back(house.token)
    for address in ("/ui/runs", f"/ui/runs/{quiet}", f"/ui/runs/{quiet}/log", "/ui/alerts", "/ui/system?doctor=1"):
        page.goto(address)
        walk_through(page)


def walk_through(page: Page) -> None:
    expected = page.evaluate(REACHABLE)
    assert len(expected) > 10
    page.locator(".skip").focus()
    reached = [0]
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        number, is_seen = page.evaluate(FOCUSED)
        if number == -2 or number in reached:  # round the corner
            break
        assert is_seen, f"no ring around {page.evaluate('document.activeElement.outerHTML.slice(0, 120)')}"
        if number >= 0:
            reached.append(number)
    missed = [expected[number] for number in range(len(expected)) if number not in reached]
    assert not missed, (page.url, missed)
    assert reached == sorted(reached), (page.url, [expected[number] for number in reached])


def test_the_skip_link_is_first_and_leads_to_the_content(house: House, visit: Visit, quiet: str) -> None:
    page = visit().come_back(house.token, f"/ui/runs/{quiet}")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_the_help_takes_the_focus_and_gives_it_back(house: House, visit: Visit, quiet: str) -> None:
    page = visit().come_back(house.token)
    search = page.get_by_role("searchbox")
    page.keyboard.press("/")
    expect(search).to_be_focused()
    page.keyboard.type("?")
    expect(search).to_have_value("?")  # a letter like any other while one types
    search.fill("")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keys")
    expect(help_).to_be_visible()
    for _ in range(4):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement.closest('dialog') !== null || document.activeElement === document.body"
        )
    page.keyboard.press("Escape")
    expect(help_).to_be_hidden()
    assert page.evaluate("document.activeElement.closest('tbody tr') !== null")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")

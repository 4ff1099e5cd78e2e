"""Rows from the stream: pushed alone, also for runs that are new on the page, and never replaced by older ones."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from supervisor.wording.figures import age_text
from tests.browser.conftest import Visit
from tests.browser.house import FULL_ZONE, House
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("browser")
LOOK = "htmx.trigger(document.querySelector('[hx-select-oob]'), 'sse:refresh')"
# What the row has said, each text once, in order.
WATCH = """(id) => {
  window.said = [];
  const row = () => document.getElementById(id).textContent;
  new MutationObserver(() => window.said.push(row().includes("pushed=set")))
    .observe(document.getElementById("rows"), { subtree: true, childList: true, characterData: true });
}"""
COUNT = """(id) => {
  window.told = window.puts = 0;
  [...spot.sources][0].addEventListener(id, () => { window.told += 1; });
  document.addEventListener("live:changed", (event) => { window.puts += event.detail.id === id; });
}"""
FORBID = "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')); }"
AGES = [0, 59, 60, 61, 599, 600, 3599, 3600, 3661, 86_399, 172_799, 172_800, 180_000, 1e8 + 5]


def streams(page: Page) -> str:
    return str(page.evaluate("[...spot.sources].map((one) => one.address.href).join()"))


def test_an_answer_that_is_older_than_a_pushed_row_does_not_take_it_back(house: House, visit: Visit) -> None:
    house.daemon.submit("pushed", command=["true"], zones=[FULL_ZONE])
    page = visit().come_back(house.token, "/ui/runs?q=pushed")
    row = page.locator("#run-pushed")
    expect(row).to_contain_text("waiting")
    held: list[bool] = []

    def slow(route: Route) -> None:
        """The response is made before an event, and arrives after the row of that event."""
        answer = route.fetch()
        if not held:
            house.relabel("pushed", "pushed")
            expect(row).to_contain_text("pushed=set")
        held.append(True)
        route.fulfill(response=answer)

    page.evaluate(WATCH, "run-pushed")
    page.route("**/ui/runs?q=pushed", slow)
    page.evaluate(LOOK)
    wait_for(lambda: len(held) > 1 or page.wait_for_timeout(50), 30, "the page to look again by itself")
    said = page.evaluate("window.said")
    assert said[-1]
    assert False not in said[said.index(True) :], said


def test_a_run_that_is_new_on_the_page_joins_its_stream(house: House, visit: Visit) -> None:
    page = visit().come_back(house.token, "/ui/runs?q=joining")
    assert "joining" not in streams(page)
    house.daemon.submit("joining", command=["true"], zones=[FULL_ZONE])
    expect(page.locator("#run-joining")).to_contain_text("waiting")
    wait_for(lambda: "runs=joining" in streams(page) or page.wait_for_timeout(50), 30)
    page.route("**/ui/runs?q=joining", lambda route: None)  # answers that come never: what is new was pushed
    house.relabel("joining", "by-push")
    expect(page.locator("#run-joining")).to_contain_text("by-push=set")
    page.keyboard.press("j")  # the row has other attributes now
    page.evaluate(COUNT, "run-joining")
    for number in range(3):
        house.relabel("joining", f"push-{number}")
    wait_for(lambda: page.evaluate("window.told") >= 3 or page.wait_for_timeout(20), 30)
    told, puts = page.evaluate("[window.told, window.puts]")
    assert told == puts, "each row is put in once"


def test_times_are_told_in_the_words_of_the_server(house: House, visit: Visit) -> None:
    page = visit().come_back(house.token)
    assert page.evaluate("(ages) => ages.map(spot.age)", AGES) == [age_text(age) for age in AGES]


def test_copying_works_with_and_without_a_clipboard(house: House, visit: Visit, quiet: str) -> None:
    visitor = visit(permissions=["clipboard-read", "clipboard-write"])
    page = visitor.come_back(house.token, f"/ui/runs/{quiet}/spec")
    button = page.locator("button[data-copy]:visible").first
    before = button.inner_html()
    for broken in (False, True):
        page.evaluate("navigator.clipboard.writeText('nothing')")
        if broken:
            page.evaluate(FORBID)
        button.click()
        expect(button).to_have_text("Copied")
        assert "spot submit" in page.evaluate("navigator.clipboard.readText()")
        expect(button).not_to_have_text("Copied")
        assert button.inner_html() == before

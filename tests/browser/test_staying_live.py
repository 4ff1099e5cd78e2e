"""A page that stays open: its stream is closed while the page is hidden, and the page says when no news can arrive."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import Visit
from tests.browser.house import House
from tests.browser.road import Road, road
from tests.browser.visiting import Visitor
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("browser")
# A tab in the background, for a browser that has no windows.
HIDE = """(hidden) => {
  const tell = (name, value) => Object.defineProperty(document, name, { configurable: true, get: () => value });
  tell("hidden", hidden);
  tell("visibilityState", hidden ? "hidden" : "visible");
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SILENCE_S = 45


@pytest.fixture
def way(house: House) -> Iterator[Road]:
    with road(house.daemon.url) as found:
        yield found


@pytest.fixture
def far(browser: Browser, house: House, way: Road, quiet: str) -> Iterator[Visitor]:
    """Somebody at the end of a road, in front of a run's page."""
    wait_for(lambda: streams(house) == 0, 30, "the streams of pages before to close")
    somebody = Visitor(browser, way.url)
    somebody.come_back(house.token, f"/ui/runs/{quiet}")
    yield somebody
    assert somebody.close() == []


def streams(house: House) -> int:
    """That are open, as the supervisor counts them."""
    text = house.daemon.http.get(house.daemon.url + "/metrics").text
    found = re.search(r"^spot_event_streams (\d+)", text, re.MULTILINE)
    assert found, text
    return int(found[1])


def banner(page: Page) -> Locator:
    return page.locator("#silent")


def test_a_hidden_page_hears_nothing_and_catches_up(house: House, far: Visitor, quiet: str) -> None:
    wait_for(lambda: streams(house) == 1, 30, "the stream to open")
    far.page.evaluate(HIDE, True)
    wait_for(lambda: streams(house) == 0, 30, "the stream to close")
    asked: list[str] = []
    far.page.on("request", lambda request: asked.append(request.url))
    house.relabel(quiet, "while-hidden")
    far.page.wait_for_timeout(50)
    assert asked == []
    far.page.evaluate(HIDE, False)
    wait_for(lambda: streams(house) == 1, 30, "the stream to open again")
    expect(far.page.get_by_role("main")).to_contain_text("labels.while-hidden")


def test_a_page_that_hears_nothing_says_so_until_it_does(house: House, far: Visitor, quiet: str) -> None:
    page = far.page
    page.add_init_script("document.addEventListener('live:up', () => { window.wasUp = true; });")
    page.clock.install()
    page.reload()
    wait_for(lambda: page.evaluate("window.wasUp"), 30, "the stream to open")
    page.clock.fast_forward((SILENCE_S - 5) * 1000)
    page.clock.run_for(1000)
    expect(banner(page)).to_be_hidden()

    for _ in range(6):  # one would do, if no ping came in between
        if not banner(page).is_visible():
            page.clock.run_for(10_000)
    expect(banner(page)).to_contain_text("may be old")
    house.relabel(quiet, "heard-again")
    expect(banner(page)).to_be_hidden()


def test_a_page_whose_connection_is_cut_says_so_and_comes_back_by_itself(house: House, far: Visitor, way: Road) -> None:
    page = far.page
    far.watch.expect("ERR_")
    way.cut()
    expect(banner(page)).to_contain_text("connection is down")
    way.mend()
    expect(banner(page)).to_be_hidden()


def test_a_page_whose_token_ends_goes_to_the_sign_in_and_back(house: House, visit: Visit) -> None:
    daemon, token = house.daemon, house.person("leaving")
    visitor = visit()
    page = visitor.come_back(token, "/ui/runs?q=nothing")
    visitor.watch.expect("401")
    tokens = daemon.call("GET", "/v1/tokens")["tokens"]
    (mine,) = [one["token_id"] for one in tokens if one["name"] == "leaving"]
    daemon.call("DELETE", f"/v1/tokens/{mine}")
    page.wait_for_url("**/ui/sign-in?**")
    page.get_by_label("Token").fill(house.token)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/runs?q=nothing")

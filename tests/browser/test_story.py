"""One run as one person sees it, from the empty page to its end, in one tab without a reload."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.house import House
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("browser")
ZONE = "local-c"  # of this run alone: without room for a while


def chip_of(page: Page, run_id: str) -> str:
    """Selector of the chip in its row."""
    return f"#run-{run_id} .chip >> nth=0"


def stays(page: Page) -> None:
    """From now on this document must not be replaced."""
    page.evaluate("window.isTheSame = true")


def stayed(page: Page) -> bool:
    return bool(page.evaluate("window.isTheSame === true"))


def test_a_run_from_its_submit_to_its_stop(house: House, visit: Visit) -> None:
    token = house.person("ops-laptop")
    page = visit().sign_in(token)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()

    # It appears, and comes up.
    stays(page)
    house.talks("story", token, zones=[ZONE])
    expect(page.locator(chip_of(page, "story"))).to_contain_text("running")
    expect(page.get_by_role("heading", name="No runs yet")).to_have_count(0)

    # It loses its machine, and there is no other one at first.
    house.stories.trains("story", beyond=5)
    house.daemon.call("POST", "/v1/dev/stockout", {"zones": [ZONE]})
    house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "story", "notice_s": 1})
    expect(page.locator(chip_of(page, "story"))).to_contain_text("waiting")
    expect(page.locator("#run-story")).to_contain_text("no capacity")
    assert stayed(page)

    # The run's own page says why, and sees the recovery.
    page.get_by_role("link", name="story", exact=True).click()
    expect(page.locator("#run-chip")).to_contain_text("waiting")
    expect(page.locator("#run-sentence")).to_contain_text(f"No cpu spot in {ZONE}")
    stays(page)
    house.daemon.call("POST", "/v1/dev/stockout", {"zones": [ZONE], "for_s": 0})
    expect(page.locator("#run-chip")).to_contain_text("running")
    attempts = page.locator("table.attempts tbody tr")
    expect(attempts).to_have_count(2)
    expect(attempts.filter(has_text="preempted")).to_have_count(1)
    expect(page.locator(".timeline .tl-row").filter(has_text="preempted")).to_have_count(1)
    assert stayed(page)

    # Its log follows.
    page.get_by_role("link", name="Log", exact=True).click()
    lines = page.locator("#log .log-row")
    expect(lines.filter(has_text="of attempt 2").first).to_be_visible()
    stays(page)
    before = lines.count()
    wait_for(lambda: lines.count() > before, 60, "new lines")
    expect(lines.last).to_contain_text("of attempt 2")
    expect(lines.last).to_be_in_viewport()
    assert stayed(page)

    # A person stops it.
    page.get_by_role("link", name="Stop").click()
    page.get_by_role("main").get_by_role("button", name="Stop").click()
    expect(page.locator("#run-chip")).to_contain_text("stopped")
    page.get_by_role("link", name="Events", exact=True).click()
    asked = page.get_by_role("listitem").filter(has_text=re.compile(r"Stop requested by ops-laptop\."))
    expect(asked).to_have_count(1)
    expect(asked).to_contain_text("by ops-laptop")

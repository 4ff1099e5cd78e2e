"""The page of a group keeps itself current, and leads to the question before a stop of the whole group."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.house import House

pytestmark = pytest.mark.xdist_group("browser")


def test_a_slot_passes_on_under_the_eyes_of_the_reader(house: House, visit: Visit) -> None:
    for number in (1, 2):
        labels = {"lr": f"0.{number}"}
        house.talks(f"cell-{number}", house.token, group="sweep", max_parallel=1, labels=labels)
    house.daemon.wait_status("cell-1", "running")
    page = visit().come_back(house.token, "/ui/groups/sweep")
    first, second = page.locator("#cell-cell-1"), page.locator("#cell-cell-2")
    expect(first).to_contain_text("running")
    expect(second).to_contain_text("1 run of group sweep may have a machine at once")
    page.get_by_role("columnheader", name="lr").get_by_role("link").click()
    page.wait_for_url("**/ui/groups/sweep?sort=label.lr")  # the second click must not meet the page of before
    page.get_by_role("columnheader", name="lr").get_by_role("link").click()
    page.wait_for_url("**/ui/groups/sweep?sort=-label.lr")
    assert page.locator("tbody tr").first.get_attribute("id") == "cell-cell-2"
    page.evaluate("() => { window.isTheSame = true; }")
    house.daemon.call("POST", "/v1/runs/cell-1/stop", {})
    expect(second).to_contain_text("running")
    expect(first).to_contain_text("stopped")
    assert page.evaluate("() => window.isTheSame === true"), "without a reload"
    page.get_by_role("button", name="Stop the one live").click()
    page.get_by_role("button", name="Stop 1 run").click()
    page.get_by_role("link", name="Back to the list").click()
    page.wait_for_url("**/ui/groups/sweep?sort=-label.lr")
    expect(second).to_contain_text("stopped")

"""Signing in and out in a browser, and that the watch over a page finds faults."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.house import House

pytestmark = pytest.mark.xdist_group("browser")


def test_signing_in_leads_back_and_signing_out_ends_it(house: House, visit: Visit) -> None:
    somebody = visit()
    page = somebody.sign_in(house.token, "/ui/runs?status=running")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    [kept] = [one for one in somebody.context.cookies() if one["value"] == house.token]
    assert (kept["httpOnly"], kept["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.goto("/ui/runs")
    assert page.url.startswith(somebody.root + "/ui/sign-in")


def test_a_token_that_is_not_valid_is_told_beside_the_form(house: House, visit: Visit) -> None:
    somebody = visit()
    somebody.watch.expect("401")
    somebody.page.goto("/ui/runs")
    somebody.page.get_by_label("Token").fill("sup_nonsense")
    somebody.page.get_by_label("Token").press("Enter")
    expect(somebody.page.get_by_role("alert")).to_contain_text("not a complete token")


def test_the_theme_that_was_chosen_stays(house: House, visit: Visit) -> None:
    somebody = visit(color_scheme="light")
    page = somebody.sign_in(house.token)
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/ui/runs")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    page.get_by_role("button", name="Light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")

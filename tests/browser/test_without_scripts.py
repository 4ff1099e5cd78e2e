"""A browser without scripts can do everything, by links and forms, and sees changes after a reload."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.house import FULL_ZONE, House
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("browser")
WAITING = ("plain-a", "plain-b", "plain-c")


@pytest.fixture(scope="module")
def token(house: House) -> str:
    """For a user with a finished run and three waiting runs."""
    token = house.person("plain")
    house.submit("plain-done", token, command=["echo", "all is <b>done</b>"], labels={"team": "blue"})
    for run_id in WAITING:
        house.submit(run_id, token, command=["true"], zones=[FULL_ZONE], labels={"team": "red & blue"})
        house.daemon.wait_status(run_id, "waiting")
    house.daemon.wait_status("plain-done", "completed")
    return token


def rows(page: Page) -> list[str]:
    """Names of the runs that are shown."""
    return page.locator("tbody th[scope=row] > a").all_inner_texts()


def arrives(page: Page, part: str) -> None:
    """Wait until a click has led to a page with that part in its address: a click does not wait for what it loads."""
    page.wait_for_url(lambda address: part in address)


def reloads_until(page: Page, selector: str, text: str) -> None:
    def told() -> bool:
        page.reload()
        return text in page.locator(selector).first.inner_text()

    wait_for(told, 60, f"{text} in {selector}")


def test_the_list_is_sifted_and_paged(visit: Visit, token: str) -> None:
    page = visit(java_script_enabled=False).sign_in(token)
    assert sorted(rows(page)) == [*WAITING, "plain-done"]
    for scripted in page.locator(".scripted").all():
        expect(scripted).to_be_hidden()
    page.get_by_role("searchbox").fill("plain-b")
    page.get_by_role("button", name="Search").click()
    arrives(page, "q=plain-b")
    assert rows(page) == ["plain-b"]
    page.get_by_role("link", name="Clear all filters").click()
    expect(page.get_by_role("searchbox")).to_have_value("")
    page.get_by_label("By status").get_by_role("link", name="Live").click()
    arrives(page, "status=")
    assert sorted(rows(page)) == list(WAITING)
    page.locator("#run-plain-a").get_by_role("link", name="team=red & blue").click()
    arrives(page, "?label=team%3Dred%20%26%20blue")
    page.goto("/ui/runs?page_size=3")
    first = rows(page)
    page.get_by_role("link", name="Next page").click()
    arrives(page, "cursor=")
    assert sorted([*first, *rows(page)]) == [*WAITING, "plain-done"]


def test_a_run_is_read_and_stopped(visit: Visit, token: str) -> None:
    page = visit(java_script_enabled=False).come_back(token)
    page.get_by_role("link", name="plain-done", exact=True).click()
    expect(page.locator("#run-chip")).to_contain_text("completed")
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator("#log")).to_contain_text("all is <b>done</b>")
    page.goto("/ui/runs/plain-a")
    page.get_by_role("link", name="Stop", exact=True).click()
    page.get_by_role("main").get_by_role("button", name="Stop").click()
    page.wait_for_url("**/ui/runs/plain-a?did=stop")  # a reload would break off what is on its way
    reloads_until(page, "#run-chip", "stopped")
    expect(page.locator("#run-history")).to_contain_text("Stop requested by plain.")


def test_many_runs_are_stopped_after_a_question(house: House, visit: Visit, token: str) -> None:
    page = visit(java_script_enabled=False).come_back(token, "/ui/runs?q=plain")
    page.get_by_role("checkbox", name="Select plain-b").check()
    page.get_by_role("checkbox", name="Select plain-c").check()
    page.get_by_role("button", name="Stop selected").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Stop 2 runs?")
    assert house.daemon.run("plain-b")["stop"] is None
    page.get_by_role("button", name="Stop 2 runs").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 runs")
    page.get_by_role("link", name="Back to the list").click()
    page.wait_for_url("**/ui/runs*")
    page.goto("/ui/runs")
    reloads_until(page, "#run-plain-b .chip", "stopped")
    reloads_until(page, "#run-plain-c .chip", "stopped")


def test_dark_and_light(visit: Visit, token: str) -> None:
    page = visit(java_script_enabled=False, color_scheme="dark").come_back(token, "/ui/runs?status=completed")
    page.get_by_role("button", name="Light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    arrives(page, "/ui/runs?status=completed")
    expect(page.locator("body")).to_have_css("background-color", "rgb(246, 247, 249)")


def test_a_failed_run_begins_with_why_it_ended(visit: Visit, house: House, token: str) -> None:
    """The verdict of the rules on a real end, with what proves it and what helps."""
    house.submit("plain-bug", token, command=["python3", "-c", "import no_such_module"])
    house.daemon.wait_status("plain-bug", "failed")
    page = visit(java_script_enabled=False).sign_in(token)
    page.goto("/ui/runs/plain-bug")
    reloads_until(page, "#evidence", "Restarted?")
    panel = page.locator("#why")
    expect(panel).to_contain_text("plain-bug, attempt 1, ended: user_error (certain). Restarted? No: the same code")
    expect(panel.locator("table td").first).to_contain_text("ModuleNotFoundError: No module named 'no_such_module'")
    expect(panel).to_contain_text("docs/causes/user_error.md")
    headings = page.locator("h2").all_inner_texts()
    assert headings.index("Why attempt 1 ended") < headings.index("Attempts")

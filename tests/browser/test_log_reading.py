"""Reading a growing log: links to lines, a pause by scrolling, continuing, the end."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.house import House
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("browser")
RUN = "long-log"
WRITES = """
import time
for number in range(1, 1201):
    print("line", number)
while True:
    number += 1
    print("line", number, flush=True)
    time.sleep(0.5)
"""
WAITS = """
import os, sys, time
print("first")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print("bye")
"""
CENTRED = """(row) => {
  const log = document.getElementById("log").getBoundingClientRect(), box = row.getBoundingClientRect();
  return Math.abs((box.top + box.bottom - log.top - log.bottom) / 2) < log.height / 4;
}"""


@pytest.fixture(scope="module")
def written(house: House) -> Iterator[None]:
    house.submit(RUN, house.token, command=[sys.executable, "-S", "-c", WRITES])
    house.daemon.wait_status(RUN, "running")
    wait_for(lambda: house.daemon.call("GET", f"/v1/runs/{RUN}/logs?tail=1")["size"] > 10_000, 60, "its log")
    yield
    house.daemon.call("POST", f"/v1/runs/{RUN}/stop")


def test_the_number_of_a_line_alone_leads_to_it(house: House, visit: Visit, written: None) -> None:
    page = visit().come_back(house.token, f"/ui/runs/{RUN}/log#L300")
    page.wait_for_url("**/log?attempt=1&line=300#L300")
    row = page.locator("#L300")
    expect(row).to_contain_text("line 300")
    assert page.evaluate("document.querySelector(':target').id") == "L300"
    assert row.evaluate(CENTRED)
    expect(page.locator("#L599")).to_have_count(1)
    expect(page.locator("#L600")).to_have_count(0)


def test_scrolling_up_pauses_and_follow_goes_on(house: House, visit: Visit, written: None) -> None:
    page = visit().come_back(house.token, f"/ui/runs/{RUN}/log")
    rows, follow = page.locator("#log .log-row"), page.locator("#log-follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    before = rows.count()
    wait_for(lambda: rows.count() > before, 60, "new lines")
    expect(rows.last).to_be_in_viewport()
    page.locator("#log").evaluate("(log) => { log.scrollTop = 0; }")
    expect(follow).to_have_attribute("aria-pressed", "false")
    numbers = [
        int(row.removeprefix("L"))
        for row in page.eval_on_selector_all("#log .log-row", "(all) => all.map((one) => one.id)")
    ]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "none twice, none left out"
    follow.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    last = f"#L{numbers[-1] + 2}"
    expect(page.locator(last)).to_have_count(1)
    expect(rows.last).to_be_in_viewport()


def test_a_log_that_is_complete_says_so(house: House, visit: Visit) -> None:
    gate = house.stories.gate("short-log")
    house.submit("short-log", house.token, command=[sys.executable, "-S", "-u", "-c", WAITS, str(gate)])
    wait_for(lambda: house.daemon.call("GET", "/v1/runs/short-log/logs")["size"], 60, "its log")
    page = visit().come_back(house.token, "/ui/runs/short-log/log")
    expect(page.locator("#log .log-row")).to_have_text([re.compile("first")])
    house.stories.open_gate("short-log")
    expect(page.locator("#log .log-row").last).to_contain_text("bye")
    expect(page.locator("#log-follow")).to_have_text("Complete")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/log/lines" in request.url else None)
    page.wait_for_timeout(2000)  # longer than the pace of asking
    assert asked == []

"""Text from outside is text on every page: it does not run, it does not become an element, and all of it is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

from supervisor.domain.texts import HIDDEN
from tests.browser.hostile import IMAGE, PAYLOADS
from tests.browser.house import House
from tests.browser.visiting import Visitor
from tests.cloud.web import Response, WebServer
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("browser")
SCRIPT = Path(__file__).with_name("hostile.py")
# Hidden characters are refused at the submit; logs, names of files and exits may hold them all the same.
LABELS = {name: text for name, text in PAYLOADS.items() if not HIDDEN.search(text)}
SPEC = {
    "labels": LABELS,
    "env": {f"NOTE_{name.upper()}": text for name, text in PAYLOADS.items()},
    "tracker_url": "https://tracker.example/\"'><img/src=x/onerror=struck(5)>",
    "retry": {"exit_codes": [75]},
}
# Elements that no page of ours has, and text that turns the order of what comes after it.
ALIEN = """() => {
  const faults = [...document.querySelectorAll(
    "[onerror], [onload], [onmouseover], [onfocus], [hx-on\\\\:load], [hx-get$='?struck'], script:not([src]), " +
    "iframe, base, img, object, embed, style, meta[http-equiv=refresh], [href^='javascript:'], [action^='java']")];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const turned = [];
  while (walker.nextNode()) {
    if (!/[\\u202a-\\u202e\\u2066-\\u2069]/.test(walker.currentNode.data)) continue;
    const box = walker.currentNode.parentElement, style = getComputedStyle(box);
    if (box.localName === "title") continue;
    const alone = style.display !== "inline" && box.childNodes.length === 1;
    if (!alone && style.unicodeBidi === "normal") turned.push(box);
  }
  return [...faults, ...turned].map((one) => one.outerHTML.slice(0, 200));
}"""
# Pages, and what of the hostile they show; the empty text: nothing.
PAGES = {
    "/ui/runs": "address=javascript:struck",
    "/ui/runs/hostile": IMAGE,
    "/ui/runs/hostile/events": IMAGE,
    "/ui/runs/hostile/spec": IMAGE,
    "/ui/runs/hostile/charts": IMAGE,
    "/ui/runs/hostile/log": IMAGE,
    "/ui/runs/hostile/log?attempt=1": IMAGE,
    "/ui/runs/hostile/log?q=onerror": IMAGE,
    "/ui/runs/hostile/console": "",
    "/ui/runs/hostile/evidence/1": IMAGE,
    "/ui/runs/hostile-done/files": IMAGE,
    "/ui/runs/hostile/stop": "",
    "/ui/many/stop?run_id=hostile": "",
    "/ui/machines": "",
    "/ui/zones": "",
    "/ui/cost?by=run&days=": "",
    "/ui/providers": "",
    "/ui/alerts": IMAGE,
    "/ui/alerts/{webhook}": IMAGE,
}
# What comes with the address is of strangers, too.
ASKED = (
    *(f"/ui/runs?{name}={{}}" for name in ("q", "label", "zone", "cursor", "created_after", "sort")),
    "/ui/runs?{}=1",
    "/ui/runs/{}",
    "/ui/runs/hostile/log?q={}",
    "/ui/runs/hostile/{}",
    "/ui/alerts/{}",
    "/ui/sign-in?next={}",
    "/ui/{}",
)


@pytest.fixture(scope="module")
def webhook(house: House) -> Iterator[str]:
    """It says hostile things, and so does whom it leads to."""
    server = WebServer(lambda request: Response(400, IMAGE.encode(), {"Content-Type": "text/html"}))
    wish = {"url": f"{server.url}/hook", "everything": True, "note": PAYLOADS["script"] + IMAGE}
    made = str(house.daemon.call("POST", "/v1/webhooks", wish)["webhook_id"])
    yield made
    house.daemon.http.delete(f"{house.daemon.url}/v1/webhooks/{made}")
    server.close()


@pytest.fixture(scope="module")
def written(house: House, webhook: str) -> Iterator[None]:
    """Everything hostile has come to where it is shown."""
    command = [sys.executable, "-S", "-u", str(SCRIPT)]
    house.submit("hostile", house.token, command=[*command, *PAYLOADS.values()], **SPEC)
    house.submit("hostile-done", house.token, command=[*command, "results"], labels=LABELS)
    done = house.daemon.wait_status("hostile-done", "completed", "failed", "partial")
    assert done["status"] == "completed", (done, house.stories.told("hostile-done"))
    house.stories.trains("hostile")
    wait_for(lambda: house.daemon.run("hostile")["attempt"] == 2, 60, "the second attempt")
    house.stories.trains("hostile")
    deliveries = f"/v1/webhooks/{webhook}/deliveries"
    wait_for(lambda: "onerror" in str(house.daemon.call("GET", deliveries)), 60, "a delivery that was answered")
    yield
    house.daemon.call("POST", "/v1/runs/hostile/stop")


@pytest.fixture(scope="module")
def reader(browser: Browser, house: House, written: None) -> Iterator[Visitor]:
    """One for all tests of this file."""
    somebody = Visitor(browser, house.daemon.url)
    somebody.come_back(house.token)
    yield somebody
    assert somebody.close() == []


def test_hostile_text_is_text_on_every_page(reader: Visitor, webhook: str) -> None:
    page = reader.page
    for address, shown in PAGES.items():
        page.goto(address.format(webhook=webhook))
        page.wait_for_load_state()
        assert page.evaluate(ALIEN) == [], address
        assert shown in page.inner_text("main"), address
        assert page.url.endswith(address.format(webhook=webhook))
    assert reader.watch.faults == []


def test_hostile_text_that_comes_later_is_text(house: House, reader: Visitor) -> None:
    page = reader.page
    page.goto("/ui/runs/hostile/log")
    lines = page.locator("#log .log-row").filter(has_text=IMAGE)
    before = lines.count()
    wait_for(lambda: lines.count() > before, 60, "new lines")
    assert page.evaluate(ALIEN) == []
    page.goto("/ui/runs")
    house.relabel("hostile", "a-new-one")
    house.daemon.submit("hostile-new", command=["true"], labels=LABELS)
    page.locator("#run-hostile-new").wait_for()
    assert page.evaluate(ALIEN) == []
    assert reader.watch.faults == []


def test_hostile_addresses_do_nothing(reader: Visitor) -> None:
    page = reader.page
    for pattern in ASKED:
        for text in ("javascript:struck(6)", "\"'></script><img src=x onerror=struck(7)>"):
            page.goto(pattern.format(quote(text, safe="")))
            assert page.evaluate(ALIEN) == [], (pattern, text)
            assert page.url.startswith(reader.root + "/ui/")
    refused = [
        fault for fault in reader.watch.faults if not fault.startswith(("answer 4", "console error: Failed to load"))
    ]
    assert refused == []
    reader.watch.faults.clear()

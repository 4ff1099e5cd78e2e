"""The watch over a page finds faults: it reports a faulty page, and nothing about a correct one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.strangers import pages
from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
HEAD = "<!doctype html><html lang=en><title>a page</title>"
POLICY = f"{HEAD}<meta http-equiv=Content-Security-Policy content=\"script-src 'self'; style-src 'self'\">"
WRONG = {
    "inline": (f"{POLICY}<script>1</script>", "script-src-elem refused inline"),
    "attribute": (f'{POLICY}<p style="color: red">', "style-src-attr refused inline"),
    "handler": (f"{POLICY}<img src=/x onerror=struck(1)>", "script-src-attr refused inline"),
    "struck": (f"{HEAD}<script>struck('it')</script>", "hostile content ran: it"),
    "thrown": (f"{HEAD}<script>throw new Error('oh')</script>", "exception: oh"),
    "told": (f"{HEAD}<script>console.warn('careful')</script>", "console warning: careful"),
    "missing": (f"{HEAD}<link rel=stylesheet href=/nothing.css>", "answer 404: GET"),
    "unreachable": (f"{HEAD}<script src=http://127.0.0.1:1/x.js></script>", "failed: GET http://127.0.0.1:1/x.js"),
    "elsewhere": (f"{HEAD}<img src=http://spot.example/x.png>", "failed: GET http://spot.example/x.png"),
}  # fmt: skip


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    with pages(good=f"{HEAD}<p>nothing wrong", **{name: text for name, (text, _) in WRONG.items()}) as port:
        yield f"http://127.0.0.1:{port}"


def test_every_wrong_is_seen_and_what_was_expected_is_no_fault(browser: Browser, stranger: str) -> None:
    somebody = Visitor(browser, stranger)
    for name, (_, fault) in WRONG.items():
        somebody.page.goto(f"/{name}")
        somebody.page.wait_for_load_state()
        somebody.page.title()
        assert [one for one in somebody.watch.faults if fault in one], (name, somebody.watch.faults)
        somebody.watch.faults.clear()
    somebody.page.goto("/good")
    assert somebody.close() == []


def test_an_expectation_is_met_or_a_fault_itself(browser: Browser, stranger: str) -> None:
    somebody = Visitor(browser, stranger)
    somebody.watch.expect("console warning: careful")
    somebody.watch.expect("hostile content")
    somebody.page.goto("/told")
    assert somebody.close() == ["never came: hostile content"]

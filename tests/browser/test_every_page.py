"""Every page, with thirty runs in all conditions: said to screen readers, legible in light and dark, whole on a phone.

One load of a page serves all of it: the browser is made dark and narrow while the page stands.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from supervisor.dashboard.app import PAGES
from tests.browser.conftest import Visit
from tests.browser.gallery import gallery
from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
ACCESSIBILITY, LOOKS = (
    Path(__file__).with_name(f"{name}.js").read_text() for name in ("accessibility", "looks")
)
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
# name of a page in PAGES -> its addresses. Among the runs: one that has lived much, one that failed, one whose labels
# are hostile, one with the longest name.
ADDRESSES: dict[str, tuple[str, ...]] = {
    "ui_runs": ("/ui/runs", "/ui/runs?q=nothing-is-called-so", "/ui/runs?status=failed"),
    "ui_run": ("/ui/runs/llm-a", "/ui/runs/xss-probe"),
    "ui_charts": ("/ui/runs/llm-a/charts", "/ui/runs/xss-probe/charts?last=day"),
    "ui_zones": ("/ui/zones", "/ui/zones?state=cooling"),
    "ui_machines": ("/ui/machines?all=true",),
    "ui_release": ("/ui/machines/release",),
}
SETTLES_S = 2.0
# What is asked for by scripts, or is a file; and the form, which the gallery does not show.
NO_PAGES = {"ui_sign_in", "ui_static", "ui_relay", "ui_live"}


@pytest.fixture(scope="module")
def looker(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    with gallery(tmp_path_factory.mktemp("gallery")) as root:
        yield Visitor(browser, root, color_scheme="light")


def test_no_page_is_forgotten_here() -> None:
    shown = {name for _, methods, _, name in PAGES if "GET" in methods}
    assert shown - NO_PAGES == set(ADDRESSES)


def faults_of(visitor: Visitor, address: str, settles_s: float = SETTLES_S) -> list[str]:
    """One sentence each. `settles_s`: scripts that draw need a moment after a window has changed its size."""
    page, watch = visitor.page, visitor.watch
    watch.faults.clear()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    page.goto(address)
    page.wait_for_load_state()
    found = page.evaluate(ACCESSIBILITY)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {fault}" for fault in page.evaluate(LOOKS, "contrast")]
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        found += [f"{size['width']} px: {fault}" for fault in settled_places(page, settles_s)]
    return [*found, *watch.faults]


def settled_places(page: Page, settles_s: float) -> list[str]:
    end = time.monotonic() + settles_s
    while (found := page.evaluate(LOOKS, "places")) and time.monotonic() < end:
        page.wait_for_timeout(20)
    return list(found)


@pytest.mark.parametrize("address", [address for found in ADDRESSES.values() for address in found])
def test_a_page_is_sound(looker: Visitor, address: str) -> None:
    found = faults_of(looker, address)
    assert not found, "\n".join(found)


def test_the_form_and_a_refusal_are_sound(visit: Visit) -> None:
    somebody = visit()
    assert faults_of(somebody, "/ui/sign-in") == []
    found = faults_of(somebody, "/ui/there-is-no-such-page")
    assert [one for one in found if "404" not in one] == []
    somebody.watch.faults.clear()

"""Every page, with thirty runs in all conditions: usable by a screen reader, legible in light and dark, complete on a
phone.

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
from tests.browser.house import House
from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
ACCESSIBILITY, LOOKS = (Path(__file__).with_name(f"{name}.js").read_text() for name in ("accessibility", "looks"))
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
# name of a page in PAGES -> its addresses. Among the runs: one with a long history, one that failed, one whose labels
# are hostile, one with the longest name.
ADDRESSES: dict[str, tuple[str, ...]] = {
    "ui_runs": ("/ui/runs", "/ui/runs?q=nothing-is-called-so", "/ui/runs?status=failed&sort=created"),
    "ui_many": ("/ui/many/stop?status=running", "/ui/many/resume?all=true", "/ui/many/stop"),
    "ui_run": (
        "/ui/runs/llm-a",
        "/ui/runs/xss-probe",
        "/ui/runs/vit-l-finetune",
        "/ui/runs/probe-2",
        "/ui/runs/gpu-box-eval",
    ),
    "ui_run_events": ("/ui/runs/llm-a/events",),
    "ui_run_spec": ("/ui/runs/xss-probe/spec",),
    "ui_charts": ("/ui/runs/llm-a/charts", "/ui/runs/resnet-lr-lr0-03-seed1/charts?x=step&y=log&smooth=0.9"),
    "ui_log": ("/ui/runs/llm-a/log", "/ui/runs/llm-a/log?q=loss", "/ui/runs/probe-2/log"),
    "ui_console": ("/ui/runs/vit-l-finetune/console",),
    "ui_evidence": ("/ui/runs/vit-l-finetune/evidence/1",),
    "ui_files": ("/ui/runs/llm-a/files", "/ui/runs/probe-2/files"),
    "ui_run_change": (
        "/ui/runs/llm-a/stop",
        "/ui/runs/vit-l-finetune/resume",
        "/ui/runs/vit-l-finetune/purge",
        "/ui/runs/gpu-box-eval/approve",
        "/ui/runs/llm-a/change",
    ),
    "ui_group": ("/ui/groups/resnet-lr", "/ui/groups/resnet-lr?sort=-metric.accuracy"),
    "ui_compare": ("/ui/compare?group=resnet-lr", "/ui/compare"),
    "ui_cost": ("/ui/cost", "/ui/cost?by=run&days="),
    "ui_zones": ("/ui/zones",),
    "ui_providers": ("/ui/providers",),
    "ui_machines": ("/ui/machines",),
    "ui_release": ("/ui/machines/release",),
    "ui_alerts": ("/ui/alerts",),
    "ui_alert": ("/ui/alerts/{webhook}",),
    "ui_docs": ("/ui/docs",),
    "ui_docs_operation": ("/ui/docs/submit_run", "/ui/docs/live"),
    "ui_system": ("/ui/system", "/ui/system?doctor=1"),
}
SETTLES_S = 2.0
# Addresses for scripts, files, and the form, which the gallery does not show.
NO_PAGES = {"ui_sign_in", "ui_static", "ui_relay", "ui_live", "ui_log_lines", "ui_console_lines", "ui_document"}


@pytest.fixture(scope="module")
def looker(browser: Browser, pictures: str) -> Iterator[Visitor]:
    found = Visitor(browser, pictures, color_scheme="light")
    yield found
    found.context.close()


def test_no_page_is_forgotten_here() -> None:
    shown = {name for _, methods, _, name in PAGES if "GET" in methods}
    assert shown - NO_PAGES == set(ADDRESSES)


def faults_of(visitor: Visitor, address: str, settles_s: float = SETTLES_S) -> list[str]:
    """One sentence each. `settles_s`: scripts that draw need a moment after a window has changed its size."""
    page, watch = visitor.page, visitor.watch
    watch.faults.clear()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    page.goto(address.format(webhook=webhook_of(visitor) if "{" in address else ""))
    page.wait_for_load_state()
    found = page.evaluate(ACCESSIBILITY)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {fault}" for fault in page.evaluate(LOOKS, "contrast")]
    for size in (WIDE, NARROW):
        page.set_viewport_size(size)
        found += [f"{size['width']} px: {fault}" for fault in settled_places(page, settles_s)]
    return [*found, *watch.faults]


def webhook_of(visitor: Visitor) -> str:
    return str(visitor.context.request.get("/v1/webhooks").json()["webhooks"][0]["webhook_id"])


def settled_places(page: Page, settles_s: float) -> list[str]:
    end = time.monotonic() + settles_s
    while (found := page.evaluate(LOOKS, "places")) and time.monotonic() < end:
        page.wait_for_timeout(20)
    return list(found)


@pytest.mark.parametrize("address", [address for found in ADDRESSES.values() for address in found])
def test_a_page_is_sound(looker: Visitor, address: str) -> None:
    found = faults_of(looker, address)
    assert not found, "\n".join(found)


def test_the_form_and_refusals_are_sound(house: House, visit: Visit) -> None:
    somebody = visit()
    assert faults_of(somebody, "/ui/sign-in") == []
    somebody.come_back(house.token)
    for address, status in (("/ui/there-is-no-such-page", "404"), ("/ui/runs?nonsense=1", "422")):
        found = faults_of(somebody, address)
        assert [one for one in found if status not in one] == []
    somebody.watch.faults.clear()

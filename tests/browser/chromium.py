"""The system's own Chromium without a window, which reaches this computer and nothing else.

Playwright drives it; the browsers that playwright would download are never asked for. The sync interface of playwright
keeps an event loop marked as running between two calls: nothing else of this worker may use asyncio while it is open,
so it ends with the tests of this folder and not with the worker.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.acceptance.daemon import OF_WHO_TESTS
from tests.components import require_component

PROGRAMS = ("chromium-headless-shell", "chromium")
HOW_TO_INSTALL = (
    "apt-get install --no-install-recommends chromium-headless-shell; where it has another name or place, "
    "put a link named chromium on the PATH (`playwright install` is not needed)"
)
# No updates, no safe browsing, no name that is not this computer's. The sandbox cannot be had as root and in many
# containers; all that is shown are pages of our own.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


def program() -> str | None:
    """Where it is on the PATH; None = it is not installed."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser. Skips the test where there is none to run; fails it with CI=true."""
    path = program()
    require_component("Chromium", path is not None, HOW_TO_INSTALL)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_WHO_TESTS)}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS], env={**kept})
        try:
            yield browser
        finally:
            browser.close()

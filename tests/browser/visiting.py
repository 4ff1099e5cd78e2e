"""A user with a browser: a context of its own, watched all the time."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.watching import Watch

SLOWEST_MS = 30_000  # for what takes a tenth of a second on a computer that has nothing else to do


class Visitor:
    """`page`: the tab in use. `root`: where the supervisor answers."""

    def __init__(self, browser: Browser, root: str, **options: Any) -> None:
        self.root = root
        self.context: BrowserContext = browser.new_context(base_url=root, **options)
        self.context.set_default_timeout(SLOWEST_MS)
        self.watch = Watch(self.context)
        self.page: Page = self.context.new_page()

    def sign_in(self, token: str, to: str = "/ui/runs") -> Page:
        """Asks for the page, is sent to the form, comes back to the page."""
        self.page.goto(to)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("main").get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(lambda address: address == self.root + to)
        return self.page

    def come_back(self, token: str, to: str = "/ui/runs") -> Page:
        """Signed in before, in this browser: the cookie still exists."""
        name = f"spot-{urlsplit(self.root).port}"
        self.context.add_cookies(
            [{"name": name, "value": token, "url": self.root, "httpOnly": True, "sameSite": "Strict"}]
        )
        self.page.goto(to)
        return self.page

    def close(self) -> list[str]:
        """The complaints of the browser."""
        for page in self.context.pages:
            page.title()  # a round trip: what was on its way has arrived
        self.context.close()
        return self.watch.settle()

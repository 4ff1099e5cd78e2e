"""A page under watch: whatever a browser complains about while a test uses a page is a fault of that test.

Collected are errors and warnings of the console, exceptions of scripts, requests that failed, answers from 400 on,
violations of the Content-Security-Policy, and calls of `struck`, the function that hostile content tries to call.
"""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response

# Laid into every document before anything of the page runs. The policy binds it as little as it binds the tests.
_LISTENER = """
document.addEventListener("securitypolicyviolation", (event) => {
  const where = `${event.sourceFile}:${event.lineNumber}`;
  window.toldByTests(`${event.effectiveDirective} refused ${event.blockedURI} at ${where}`);
});
window.struck = (what) => window.toldByTests(`hostile content ran: ${what}`);
"""
# The browser's own word for a request that it gave up itself. A connection that breaks has other words.
_GIVEN_UP = "net::ERR_ABORTED"


class Watch:
    """`faults`: one sentence each, in the order in which they were seen."""

    def __init__(self, context: BrowserContext) -> None:
        self.faults: list[str] = []
        self._expected: list[str] = []
        context.expose_binding("toldByTests", lambda source, what: self.faults.append(str(what)))
        context.add_init_script(_LISTENER)
        context.on("page", self._open)

    def expect(self, pattern: str) -> None:
        """A fault that the test is about: it must come, and is none then."""
        self._expected.append(pattern)

    def settle(self) -> list[str]:
        """Unexpected faults, and expectations that were not met."""
        met = {one for one in self._expected if any(re.search(one, fault) for fault in self.faults)}
        return [
            *(fault for fault in self.faults if not any(re.search(one, fault) for one in met)),
            *(f"never came: {one}" for one in self._expected if one not in met),
        ]

    def _open(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            where: Any = message.location
            self.faults.append(f"console {message.type}: {message.text} ({where.get('url', '')})")

    def _failed(self, request: Request) -> None:
        """Leaving a page ends what it is still asking for, its scripts too; that is no failure of theirs."""
        left = request.failure == _GIVEN_UP and request.resource_type != "document"
        if not left:
            self.faults.append(f"failed: {request.method} {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"answer {response.status}: {response.request.method} {response.url}")

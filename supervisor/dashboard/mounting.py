"""Adds the dashboard to the API's application, so that the API's middleware serves its pages too.

The pages, their templates and the libraries that they use are imported at the first request for one of them: they are
a tenth of a start and of the memory of a server without runs, and many servers never show a page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

ADDRESSES = ("/", "/docs", "/ui")  # and everything below /ui

Clock = Callable[[], float]


def mount(app: Starlette, now: Clock = time.time) -> None:
    """`now`: the wall clock, from which the pages compute ages. Nothing of them is imported yet."""
    app.state.now = now
    app.add_middleware(_Dashboard, api=app)


class _Dashboard:
    """The outermost middleware. `app`: the next one. `api`: the whole application, which gets the routes of the pages.

    A request that is not for the dashboard passes through unchanged. Requests that arrive while the pages are being
    imported wait for them; an import that fails is repeated by the next request.
    """

    def __init__(self, app: ASGIApp, api: Starlette) -> None:
        self._app, self._api = app, api
        self._pages: ASGIApp | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] == "http" and (path in ADDRESSES or path.startswith("/ui/")):
            await (await self._loaded())(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _loaded(self) -> ASGIApp:
        """The import takes a quarter of a second of CPU, in a thread: other requests are served meanwhile."""
        async with self._loading:
            if self._pages is None:
                self._pages = await run_in_threadpool(self._load)
        return self._pages

    def _load(self) -> ASGIApp:
        from supervisor.dashboard import app as dashboard

        dashboard.add_pages(self._api)
        return dashboard.Outside(self._app)

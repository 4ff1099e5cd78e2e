"""A browser without JavaScript and without a socket: cookies and forms; it reports redirects and does not follow
them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

import httpx

from supervisor.api.server import create_app
from supervisor.api.wire.deps import Services
from supervisor.api.wire.middleware import LOOPBACK
from supervisor.dashboard.mounting import mount
from tests.dashboard.document import Element, read

ORIGIN = "http://127.0.0.1:8787"


class Looking:
    """Pages of these services. `get` and `post` give the answer as it is; `page` the document of a 200."""

    def __init__(
        self,
        services: Services,
        origin: str = ORIGIN,
        now: Callable[[], float] = time.time,
        hosts: Collection[str] = LOOPBACK,
    ) -> None:
        app = create_app(services, hosts)
        mount(app, now)
        self.origin, self.cookies = origin, httpx.Cookies()
        self.app = app
        self._transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url=self.origin, cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **more)
                self.cookies = client.cookies
                return answer

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        """As a browser sends a form of our own page."""
        return self.request("POST", path, data=form or {}, headers={"Origin": self.origin, **headers})

    def page(self, path: str) -> Element:
        answer = self.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return read(answer.text)

    def sign_in(self, token: str) -> None:
        assert self.post("/ui/sign-in", {"token": token}).status_code == 303

"""A request as it is written, byte for byte: what a client library would tidy up, or refuse to send."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode

from tests.dashboard.looking import Looking

HOST = "127.0.0.1:8787"
FORM = "application/x-www-form-urlencoded"
OURS = {"origin": f"http://{HOST}", "sec_fetch_site": "same-origin"}  # what a browser says of our own pages


@dataclass
class Told:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cookies: list[str] = field(default_factory=list)
    body: bytes = b""


def raw(
    looking: Looking, target: str, method: str = "GET", body: bytes = b"", peer: str = "127.0.0.1", **headers: str
) -> Told:
    """`headers`: `_` means `-`."""
    path, _, query = target.partition("?")
    told, given = Told(), {"host": HOST, "content-length": str(len(body)), **headers}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": (peer, 1), "server": ("127.0.0.1", 8787),
    }  # fmt: skip

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            assert not told.status, "one answer"
            told.status = int(str(message["status"]))
            pairs = [(k.decode(), v.decode()) for k, v in message["headers"]]  # type: ignore[attr-defined]
            told.headers = dict(pairs)
            told.cookies = [value for name, value in pairs if name == "set-cookie"]
            once = [name for name, _ in pairs if name != "set-cookie"]
            assert len({*once}) == len(once), f"a header twice: {once}"
        else:
            told.body += bytes(message.get("body", b""))  # type: ignore[call-overload]

    asyncio.run(looking.app(scope, receive, send))  # type: ignore[arg-type]
    return told


def sign_in(looking: Looking, token: str, following: str = "/ui/runs", **headers: str) -> Told:
    """The form as it is sent, with no more headers than these."""
    body = urlencode({"token": token, "next": following}).encode()
    return raw(looking, "/ui/sign-in", "POST", body, content_type=FORM, **headers)

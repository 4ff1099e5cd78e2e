"""Pages of another site: served on this computer, with another origin than the supervisor's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cloud.web import Request, Response, WebServer


@contextmanager
def pages(**texts: str) -> Iterator[int]:
    """Each text is a document below its name; the port, which answers to 127.0.0.1 and to localhost."""

    def show(request: Request) -> Response:
        name = request.path.partition("?")[0].strip("/")
        if name == "favicon.ico":
            return Response(204)
        headers = {"Content-Type": "text/html; charset=utf-8"}
        return Response(200, texts[name].encode(), headers) if name in texts else Response(404)

    server = WebServer(show)
    try:
        yield int(server.url.rpartition(":")[2])
    finally:
        server.close()

"""A web server of files for tests, on loopback: it can cut transfers, ignore ranges, and refuse."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FileServer:
    """`files`: path -> content. `cut_after`: bytes of one response before the connection ends; None = it is whole.
    `ranges` False: every response has the whole file. `answers`: statuses of the next requests. `asked`: the Range of
    each request, "" = none."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None
        self.ranges = True
        self.answers: list[int] = []
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._respond(self)

            def log_message(self, *_: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="files")
        self._thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/{path}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        ranged = handler.headers.get("Range", "")
        self.asked.append(ranged)
        content = self.files.get(handler.path[1:])
        status = self.answers.pop(0) if self.answers else 200 if content is not None else 404
        start = int(ranged.removeprefix("bytes=").rstrip("-")) if ranged and self.ranges else 0
        if status == 200 and content is not None and start >= len(content) > 0:
            status = 416
        if status != 200 or content is None:
            handler.send_error(status)
            return
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(content) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        handler.wfile.write(content[start : None if self.cut_after is None else start + self.cut_after])
        handler.close_connection = True

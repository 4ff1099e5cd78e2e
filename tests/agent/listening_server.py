"""A supervisor that only receives pushed beats on loopback and returns prepared responses."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat


class ListeningServer:
    """`beats` in order of arrival; `answer` and `status` may be changed at any time. Close it."""

    def __init__(self, server_file: Path) -> None:
        self.beats: list[Beat] = []
        self.paths: list[str] = []
        self.answer: dict[str, object] = {"next_s": 0.1, "stop": False, "follow_logs": False}
        self.status = 200
        self.answers = threading.Event()  # cleared: it receives a beat and does not respond
        self.answers.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.paths.append(self.path)
                outer.beats.append(heartbeat.parse(body))
                if not outer.answers.is_set():
                    outer.answers.wait(60)
                    return
                text = json.dumps(outer.answer).encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        server_file.write_text(json.dumps({"url": self.url, "pid": 1}))

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

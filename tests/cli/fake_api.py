"""A small HTTP server with prepared responses, which records its requests; and runs as the API shows them."""

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Json | None


@dataclass
class FakeApi:
    """`responses[(method, path)]`: (status, body), a list of them (the last one stays), or a function of the request.
    A body of None drops the connection without a response."""

    url: str = ""
    responses: dict[tuple[str, str], Any] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def respond(self, method: str, path: str, body: Any, status: int = 200) -> None:
        self.responses[(method, path)] = (status, body)

    def respond_in_turn(self, method: str, path: str, *bodies: Any) -> None:
        self.responses[(method, path)] = [(200, body) for body in bodies]

    def refuse(self, method: str, path: str, status: int, code: str, detail: str, **more: Any) -> None:
        document = {"type": f"urn:{code}", "title": code, "status": status, "detail": detail, "code": code, **more}
        self.respond(method, path, document, status)

    def response_to(self, request: Request) -> tuple[int, Any]:
        response = self.responses.get((request.method, request.path))
        if response is None:
            return 404, {"title": "Not Found", "detail": f"nothing at {request.path}", "code": "NOT_FOUND"}
        if isinstance(response, Callable):
            return response(request)
        if isinstance(response, list):
            return response.pop(0) if len(response) > 1 else response[0]
        return response

    def bodies(self, path: str) -> list[Json | None]:
        return [request.body for request in self.requests if request.path == path]


@contextmanager
def serving() -> Iterator[FakeApi]:
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def do_PATCH(self) -> None:
            self._do()

        def do_DELETE(self) -> None:
            self._do()

        def _do(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(
                self.command, parts.path, parse_qs(parts.query), headers, json.loads(raw) if raw else None
            )
            api.requests.append(request)
            status, body = api.response_to(request)
            if body is None:
                return
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PLACEMENT = {"provider": "local", "region": "local", "zone": "local-b", "shape": "cpu", "gpu": None, "spot": True}
RUN: Json = {
    "run_id": "digits-7", "generation": 1, "owner": "local", "status": "running", "cause": None,
    "status_text": "Training at step 12,300 of 50,000 (24 %), 3.1 steps/s, ETA 3 h 23 min.", "detail": "", "hold": "",
    "needs_person": "", "attempt": 2, "placement": PLACEMENT, "machine_id": "local:12345678:42:99",
    "beat": {"age_s": 8.2, "phase": "training"}, "stall": {"polls": 0, "limit": 10},
    "progress": {"step": 12300, "total": 50000, "steps_per_s": 3.1, "eta_s": 12161.0, "metrics": {"loss": 0.5},
        "guessed": False},
    "checkpoint_step": 12000, "price_usd_per_h": 0.3, "cost": {"usd": 2.1, "on_demand_usd": 6.3, "budget_usd": 20.0,
    "known": True}, "counters": {"attempts": 2, "tries": 2, "counted": 0, "user_failures": 0, "preemptions": 1,
    "no_progress": 0}, "next_action": {"what": "ETA 3 h 23 min", "at": None}, "results_manifest_sha256": None,
    "results": None, "purging": False, "purged_at": None, "kept_until": None, "stop": None, "labels": {},
    "created_at": "2026-01-01T00:00:00.000Z", "generation_at": "2026-01-01T00:00:00.000Z",
    "status_since": "2026-01-01T00:00:00.000Z", "version": 9,
}  # fmt: skip
FIRST_ATTEMPT: Json = {
    "number": 1, "generation": 1, "placement": {**PLACEMENT, "zone": "local-a"}, "machine": "spot-ab-a1-t1",
    "machine_id": "local:12345678:41:98", "requested_at": "2026-01-01T00:00:00.000Z",
    "started_at": "2026-01-01T00:00:01.000Z", "ended_at": "2026-01-01T02:14:01.000Z",
    "gone_at": "2026-01-01T02:14:02.000Z", "cause": "preempted", "evidence": "notice of 30 s",
    "phase_s": {"waiting": 60.0, "boot": 120.0, "restore": 20.0, "training": 1760.0, "lost": 40.0}, "step_from": None,
    "step_last": 8160, "step_kept": 8120, "steps_lost": 40, "cost_usd": 0.61, "price_usd_per_h": 0.3, "exit": None,
    "tries": [],
}  # fmt: skip
SECOND_ATTEMPT: Json = {
    **FIRST_ATTEMPT, "number": 2, "placement": PLACEMENT, "started_at": "2026-01-01T02:14:05.000Z", "ended_at": None,
    "gone_at": None, "cause": None, "evidence": "", "step_from": 8120, "step_last": 12300, "step_kept": 12000,
    "steps_lost": None, "cost_usd": 1.49, "phase_s": {},
}  # fmt: skip
SUMMARY: Json = {"counts": {"running": 2, "waiting": 1}, "usd_per_h": 3.41, "last_tick_age_s": 6.2}


COST: Json = {
    "run_id": "digits-7", "status": "running", "attempts": 2, "cost_usd": 2.1, "lower_bound": False,
    "on_demand_usd": 6.3, "usd_per_h": 0.3, "files": 31, "stored_bytes": {"results": 12_000_000,
    "checkpoints": 410_000_000, "logs": 1_000_000, "evidence": 0, "other": 2000}, "stored_usd_per_month": 0.01,
}  # fmt: skip


def a_cost(run_id: str = "digits-7", **changes: Any) -> Json:
    return {**copy.deepcopy(COST), "run_id": run_id, **changes}


def a_run(**changes: Any) -> Json:
    return {**copy.deepcopy(RUN), **changes}


def an_event(number: int, kind: str, text: str, attempt: int = 1) -> Json:
    at = f"2026-01-01T00:00:{number:02d}.000Z"
    return {
        "id": number, "run_id": "digits-7", "at": at, "generation": 1, "attempt": attempt, "kind": kind, "text": text,
        "actor": "supervisor", "data": {},
    }  # fmt: skip


def accept_submits(api: FakeApi) -> None:
    run = a_run(status="pending", status_text="Accepted.")
    api.respond("POST", "/v1/runs", {**run, "warnings": [], "differs": []}, 201)


def submitted(api: FakeApi) -> Json:
    """The body of the last submit."""
    body = api.bodies("/v1/runs")[-1]
    assert body is not None
    return body


def squeezed(line: str) -> str:
    """A line of a table with one space between its words."""
    return " ".join(line.split())


def a_page(*runs: Json, cursor: str | None = None) -> Json:
    return {"runs": list(runs), "summary": SUMMARY, "next_cursor": cursor}


def serve_run(api: FakeApi, run: Json, *events: Json) -> None:
    """All that `show` and `watch` request of one run."""
    path = f"/v1/runs/{run['run_id']}"
    api.respond("GET", path, run)
    api.respond("GET", f"{path}/cost", a_cost(run["run_id"]))
    api.respond(
        "GET", f"{path}/attempts", {"run_id": run["run_id"], "attempts": [FIRST_ATTEMPT, SECOND_ATTEMPT], "next": None}
    )

    def fresh(request: Request) -> tuple[int, Json]:
        after = int(request.query.get("after", ["0"])[0])
        return 200, {"events": [event for event in events if event["id"] > after], "complete": True}

    api.responses[("GET", f"{path}/events")] = fresh

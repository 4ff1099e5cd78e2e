"""Every log line of a request has its id and its caller, also from the threads that work for it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from supervisor.api.server import create_app
from supervisor.api.wire.deps import Services
from supervisor.domain.callers import Caller, Scope
from supervisor.telemetry import logs as telemetry
from tests.services.bed import Bed, check_problem

LOG = logging.getLogger("supervisor.test.requests")
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What our handler writes, beside those of the tests."""
    stream, root = io.StringIO(), logging.getLogger()
    handler = telemetry.handler("json", stream)
    root.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)


def told(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def ask(services: Services, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
    """All at once."""

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(services), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            sent = (client.request(method, path, **more) for method, path, more in requests)
            return list(await asyncio.gather(*sent))

    return asyncio.run(send())


def named(request_id: str) -> dict[str, Any]:
    return {"headers": {"X-Request-ID": request_id}}


def chatty(bed: Bed) -> Services:
    """Services whose readiness writes a line in a thread, and whose requests come by tokens."""

    def loop() -> Any:
        LOG.info("asked for the loop")
        return bed.loop

    def identify(header: str, request_id: str) -> Caller:
        return Caller("o", f"actor-{request_id}", frozenset({Scope.ADMIN}), f"tok-{request_id}", request_id)

    return replace(bed.services, loop=loop, identify=identify)


def test_lines_of_threads_carry_the_id_of_their_request_and_no_other(bed: Bed, lines: io.StringIO) -> None:
    ids = [f"request-{number}" for number in range(12)]
    ask(chatty(bed), *(("GET", "/readyz", named(one)) for one in ids))
    said = [line["request_id"] for line in told(lines) if line["message"] == "asked for the loop"]
    assert sorted(set(said)) == sorted(ids)
    lines.truncate(0)
    LOG.info("of nobody")
    assert "request_id" not in lines.getvalue()


def test_the_caller_is_beside_the_id(bed: Bed, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(bed.store), "page", lambda *given, **more: 1 / 0)
    (answer,) = ask(chatty(bed), ("GET", "/v1/runs", named("r-1")))
    assert answer.status_code == 500
    (line,) = [line for line in told(lines) if line.get("action") == "request_failed"]
    assert (line["request_id"], line["actor"], line["token_id"]) == ("r-1", "actor-r-1", "tok-r-1")
    assert "ZeroDivisionError" in line["exception"]


def test_a_line_that_names_its_own_request_keeps_it(lines: io.StringIO) -> None:
    begun = telemetry.begin_request("r-1")
    LOG.info("x", extra={telemetry.REQUEST_ID: "r-2"})
    telemetry.end_request(begun)
    assert told(lines)[0]["request_id"] == "r-2"


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/v1/nowhere", {}, 404),
        ("PATCH", "/livez", {}, 405),
        ("POST", "/v1/runs", {"content": b"{}", "headers": {"Content-Length": "2000000"}}, 413),
        ("POST", "/v1/runs", {"content": b"x" * 1_000_001, "headers": JSON}, 413),
        ("GET", "/livez", {"headers": {"Host": "rebound.example.org"}}, 400),
        ("POST", "/v1/runs", {"headers": {"Origin": "https://example.org"}}, 403),
        ("POST", "/v1/runs", {"content": b"{", "headers": JSON}, 400),
        ("POST", "/v1/runs", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
    ],
)
def test_whatever_is_refused_has_the_id_that_was_sent(
    bed: Bed, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    headers = {**more.get("headers", {}), "X-Request-ID": "mine-1"}
    (answer,) = ask(bed.services, (method, path, {**more, "headers": headers}))
    assert answer.status_code == status
    check_problem(answer)
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.json()["request_id"] == "mine-1"


@pytest.mark.parametrize("bad", ["", "a b", "x" * 65, "<script>", 'a"b', "ä"])
def test_an_invalid_id_is_replaced(bed: Bed, bad: str) -> None:
    (answer,) = ask(bed.services, ("GET", "/livez", {"headers": {"X-Request-ID": bad.encode()}}))
    given = answer.headers["x-request-id"]
    assert given != bad
    assert len(given) == 16


def test_what_a_request_changes_has_its_id_in_the_history(bed: Bed) -> None:
    body = {"run_id": "digits-7", "spec": {"command": ["python", "train.py"]}}
    (answer,) = ask(bed.services, ("POST", "/v1/runs", {"json": body, **named("r-9")}))
    assert answer.status_code == 201
    (event,) = bed.store.events("digits-7", 0, 9)
    assert event.event.data["request_id"] == "r-9"


def test_every_request_is_a_line_only_where_debug_is_asked_for(bed: Bed, lines: io.StringIO) -> None:
    door = logging.getLogger("supervisor.api.wire.middleware")
    ask(bed.services, ("GET", "/v1/runs?q=private", named("r-1")))
    assert [line for line in told(lines) if line["message"] == "answered"] == []
    before = door.level
    door.setLevel(logging.DEBUG)
    try:
        ask(bed.services, ("GET", "/v1/runs?q=private", named("r-2")))
    finally:
        door.setLevel(before)
    (line,) = [line for line in told(lines) if line["message"] == "answered"]
    assert (line["operation"], line["status"], line["method"], line["request_id"]) == ("list_runs", 200, "GET", "r-2")
    assert "private" not in lines.getvalue()

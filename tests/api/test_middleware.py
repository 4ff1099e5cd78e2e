"""The middleware: host names, origins, sizes, request ids, and unexpected errors."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from supervisor.api.server import create_app
from supervisor.contract.heartbeat import encode
from supervisor.ports.objectstore import StoreFull
from supervisor.ports.store import StoreDown
from tests.services.bed import Bed, Client, beat

SPEC = {"spec": {"command": "x"}}


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost", "LOCALHOST:1", "[::1]:8787", "[::1]", "127.0.0.2:80"])
def test_the_names_of_this_computer(client: Client, host: str) -> None:
    assert client.get("/livez", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil", "", "[::2]:1", ":8787"])
def test_any_other_host_name_is_refused(client: Client, host: str) -> None:
    told = client.get("/livez", headers={"host": host})
    assert (told.status_code, told.json()["code"]) == (400, "HOST_REFUSED")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
def test_a_page_of_another_site_cannot_stop_a_run(client: Client, bed: Bed, headers: dict[str, str]) -> None:
    bed.submit("digits-7")
    told = client.post("/v1/runs/digits-7/stop", headers=headers)
    assert (told.status_code, told.json()["code"]) == (403, "ORIGIN_REFUSED")
    assert bed.run("digits-7").stop is None
    assert client.get("/v1/runs/digits-7", headers=headers).status_code == 200


def test_our_own_page_can_stop_a_run(client: Client, bed: Bed) -> None:
    bed.submit("digits-7")
    headers = {"origin": "http://127.0.0.1:8787", "sec-fetch-site": "same-origin"}
    assert client.post("/v1/runs/digits-7/stop", headers=headers).status_code == 202


def test_a_request_id_is_generated_or_taken_over(client: Client) -> None:
    assert client.get("/livez", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    made = client.get("/livez", headers={"x-request-id": "bad id\twith blanks"}).headers["x-request-id"]
    assert len(made) == 16
    assert client.get("/livez").headers["x-request-id"] != made


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/runs", "GET, HEAD, POST"),
        ("DELETE", "/v1/runs/digits-7", "GET, HEAD, PATCH"),
        ("GET", "/v1/runs/digits-7/stop", "POST"),
        ("PATCH", "/readyz", "GET, HEAD"),
        ("GET", "/v1/dev/kill", "POST"),
    ],
)
def test_a_method_that_an_address_does_not_know(client: Client, method: str, path: str, allowed: str) -> None:
    told = client.request(method, path)
    assert (told.status_code, told.json()["code"], told.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", allowed)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/runs/", "/v1/runs/a/b", "/docs", "/v1//runs", "/%00"])
def test_an_unknown_address(client: Client, path: str) -> None:
    told = client.get(path)
    assert (told.status_code, told.json()["code"]) == (404, "NOT_FOUND")


def test_no_disasters_where_no_provider_can_inject_them(bed: Bed) -> None:
    from dataclasses import replace

    client = Client(replace(bed.services, dev=None))
    refused = client.post("/v1/dev/kill", json={"run_id": "digits-7"})
    assert (refused.status_code, refused.json()["code"]) == (403, "DEV_REFUSED")


def test_under_the_public_name_only_beats_are_admitted(bed: Bed) -> None:
    from dataclasses import replace

    services = replace(bed.services, beat_host="spot.example.org")
    outside = Client(services, "https://spot.example.org")
    bed.submit("digits-7")
    bed.train("digits-7")
    told = outside.request("POST", "/v1/runs/digits-7/heartbeat", content=encode(beat("digits-7")))
    assert told.status_code == 200
    for method, path in (
        ("GET", "/v1/runs"),
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs/digits-7/heartbeat"),
        ("POST", "/v1/runs/digits-7/stop"),
        ("POST", "/v1/runs/digits-7/heartbeat/../stop"),
        ("POST", "/v1/runs/a/b/heartbeat"),
    ):
        assert outside.request(method, path).json()["code"] == "HOST_REFUSED", path
    other = Client(services, "https://other.example.org")
    sent = other.request("POST", "/v1/runs/digits-7/heartbeat", content=encode(beat("digits-7", 2)))
    assert sent.json()["code"] == "HOST_REFUSED"


def send(bed: Bed, chunks: list[bytes], headers: list[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
    """A request below the level of an HTTP client, which would correct its headers."""
    scope = {
        "type": "http", "method": "POST", "path": "/v1/runs", "raw_path": b"/v1/runs", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), *headers],
        "http_version": "1.1", "scheme": "http", "client": None, "server": ("127.0.0.1", 8787), "root_path": "",
    }  # fmt: skip
    sent: list[dict[str, Any]] = []
    waiting = list(chunks)

    async def receive() -> dict[str, Any]:
        if not waiting:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def keep(message: Any) -> None:
        sent.append(message)

    asyncio.run(create_app(bed.services)(scope, receive, keep))
    return sent


def test_a_body_without_a_length_is_cut_at_the_limit(bed: Bed) -> None:
    sent = send(bed, [b"x" * 600_000, b"x" * 600_000, b"x" * 600_000], [])
    assert sent[0]["status"] == 413


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"9" * 30, b"2000000", b""])
def test_a_length_that_is_no_length_or_too_long(bed: Bed, length: bytes) -> None:
    assert send(bed, [b"{}"], [(b"content-length", length)])[0]["status"] == 413


def test_a_client_that_disconnects_is_no_error(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    assert send(bed, [], []) == []
    assert not caplog.records


def test_an_unexpected_error_is_a_500_with_an_id_and_no_detail(
    client: Client, bed: Bed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("planted-secret")

    monkeypatch.setattr(bed.store, "find", broken)
    with caplog.at_level(logging.ERROR):
        told = client.get("/v1/runs/digits-7")
    assert (told.status_code, told.json()["code"]) == (500, "INTERNAL")
    assert "planted-secret" not in told.text
    assert told.json()["request_id"] == getattr(caplog.records[0], "request_id", None)


@pytest.mark.parametrize("error", [StoreDown("/secret/path"), StoreFull("/secret/path")])
def test_an_unavailable_part_is_a_503_that_may_be_repeated(
    client: Client, bed: Bed, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def away(*_: object) -> None:
        raise error

    monkeypatch.setattr(bed.store, "begin", away)
    told = client.post("/v1/runs", json=SPEC)
    assert (told.status_code, told.json()["code"], told.headers["retry-after"]) == (503, "UNAVAILABLE", "2")
    assert "secret" not in told.text

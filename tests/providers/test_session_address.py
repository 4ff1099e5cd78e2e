"""The doctor's line about the address at which sessions of notebook services fetch their job."""

from __future__ import annotations

import pytest

from supervisor.domain.findings import FAIL, OK, WARN
from supervisor.remote import address
from supervisor.remote.address import address_finding, why_not
from tests.cloud.web import Request, Response, WebServer

URL = "https://spot.example.com"


@pytest.mark.parametrize(
    ("url", "problem", "result"),
    [
        ("", "", FAIL),
        ("http://127.0.0.1:8787", "", FAIL),
        ("http://spot.example.com", "", WARN),
        (URL, "the tunnel is down", WARN),
        (URL, "", OK),
    ],
)
def test_an_address_that_sessions_reach(monkeypatch: pytest.MonkeyPatch, url: str, problem: str, result: str) -> None:
    monkeypatch.setattr(address, "why_not", lambda url: problem)
    finding = address_finding(url, "kaggle")
    assert (finding.name, finding.result, finding.group) == ("address", result, "kaggle")
    assert bool(finding.fix) == (result != OK)
    assert problem in finding.cause


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (Response(200, b"PK an archive", {"Content-Type": "application/octet-stream"}), ""),
        (Response(200, b"<p>Sign in", {"Content-Type": "text/html"}), "text/html, not the agent"),
        (Response(502, b""), "the response is 502 Bad Gateway"),
        (
            Response(400, {"code": "HOST_REFUSED"}, {"Content-Type": "application/problem+json"}),
            "400 Bad Request (HOST_REFUSED, of a supervisor)",
        ),
        (Response(400, b"{", {"Content-Type": "application/problem+json"}), "the response is 400 Bad Request"),
    ],
)
def test_what_responds_there_is_read(response: Response, why: str) -> None:
    asked: list[str] = []

    def site(request: Request) -> Response:
        asked.append(request.path)
        return response

    server = WebServer(site)
    try:
        found = why_not(server.url)
    finally:
        server.close()
    assert why in found
    assert bool(found) == bool(why)
    assert set(asked) == {"/v1/door/agent.pyz"}, "what the cell downloads"
    assert why_not(server.url), "nobody listens any more"

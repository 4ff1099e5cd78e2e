"""The relay of the API for a browser: only GET, only below /v1, and nothing in it may run."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import quote

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Send

from supervisor.api.wire.deps import with_tokens
from supervisor.contract import runfiles
from supervisor.contract.baton import Done
from supervisor.dashboard import public_api
from supervisor.dashboard.mounting import mount
from supervisor.dashboard.public_api import Api
from supervisor.domain.callers import LOCAL, Scope
from supervisor.services.access.tokens import TokenRequest, create
from tests.api.listening import QUICK, serving
from tests.dashboard.looking import Looking
from tests.dashboard.raw import raw
from tests.services.bed import Bed
from tests.services.test_files import ID, MODEL, entry, furnished, write_baton
from tests.waiting import wait_for

FILE = f"/ui/v1/runs/{ID}/files/results/g1/model.npz"
HOSTILE = b"<script>alert(1)</script>"


@pytest.fixture
def signed_in(bed: Bed) -> Looking:
    wish = TokenRequest(name="eve", owner="eve", scopes=frozenset({Scope.ADMIN}))
    looking = Looking(with_tokens(bed.services))
    looking.sign_in(create(bed.parts, wish, LOCAL)["token"])
    return looking


def test_the_answer_is_that_of_the_api(bed: Bed, signed_in: Looking) -> None:
    furnished(bed)
    listed = signed_in.get("/ui/v1/runs?q=nobody-has-this")
    assert (listed.status_code, listed.json()["runs"]) == (200, [])
    refused = signed_in.get("/ui/v1/runs?ownr=x")
    assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_REQUEST")
    assert len(refused.headers.get_list("x-request-id")) == 1
    assert refused.json()["request_id"] == refused.headers["x-request-id"]
    one = signed_in.get(f"/ui/v1/runs/{ID}")
    known = signed_in.get(f"/ui/v1/runs/{ID}", headers={"If-None-Match": one.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    tag = signed_in.get(FILE).headers["etag"]
    part = signed_in.get(FILE, headers={"Range": "bytes=490-", "If-Range": tag})
    assert (part.status_code, part.content) == (206, MODEL[490:])
    looked = signed_in.request("HEAD", FILE)
    assert (looked.status_code, looked.content, looked.headers["content-length"]) == (200, b"", "500")


def test_a_file_never_runs_here(bed: Bed, signed_in: Looking) -> None:
    bed.submit(ID)
    names = ("x.html", "x.svg", "x.js", "x.xhtml", "x", "x.html/y.htm", "a%2f..%2fb.html", "ä b.html")
    prefix = runfiles.results(ID, 1)
    write_baton(bed, done=Done("1.1.1", prefix, tuple(entry(name, HOSTILE) for name in names)))
    for name in names:
        bed.objects.put(f"{prefix}{name}", HOSTILE)
        answer = signed_in.get(f"/ui/v1/runs/{ID}/files/results/g1/{quote(name)}")
        assert (answer.status_code, answer.content) == (200, HOSTILE), name
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers.get_list("content-security-policy") == [public_api.CAGE["Content-Security-Policy"]]
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


def test_every_answer_is_caged(bed: Bed, signed_in: Looking) -> None:
    furnished(bed)
    for path in ("/ui/v1/runs", f"/ui/v1/runs/{ID}/log", "/ui/v1/meta", "/ui/v1/nothing"):
        answer = signed_in.get(path)
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"].partition(";")[0] in public_api.SHOWN


def test_a_kind_of_answer_that_we_do_not_know_is_saved_and_not_shown(signed_in: Looking) -> None:
    """As if the API had an operation that answers in HTML."""

    async def html(scope: object, receive: object, send: Send) -> None:
        headers = [(b"content-type", b"text/html"), (b"set-cookie", b"a=b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": HOSTILE})

    scope = {"type": "http", "asgi": {}, "http_version": "1.1", "scheme": "http", "path": "/", "headers": []}
    request = Request({**scope, "method": "GET", "query_string": b""})
    shown = public_api.Relayed(Api(html, request, "t"), "/v1/new", (), {})

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(shown)) as client:
            return await client.get("http://127.0.0.1/")

    answer = asyncio.run(ask())
    assert answer.headers["content-disposition"] == "attachment"
    assert "set-cookie" not in answer.headers


def test_without_a_token_it_is_the_apis_401_and_no_page(bed: Bed) -> None:
    answer = Looking(with_tokens(bed.services)).get("/ui/v1/runs")
    assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_stream_comes_as_it_goes_and_ends_with_its_listener(bed: Bed) -> None:
    with serving(replace(bed.services, streams=QUICK), mount) as served:
        listener = served.listen("/ui/v1/events")
        listener.wait_until_here()
        bed.submit("run-1")
        listener.wait(1)
        assert listener.events[0].event == "submitted"
        assert "sandbox" in listener.headers["Content-Security-Policy"]
        with closing(HTTPConnection("127.0.0.1", served.port, timeout=60)) as asking:
            asking.request("HEAD", "/ui/v1/events", headers={"Accept": "text/event-stream"})
            looked = asking.getresponse()
            assert (looked.status, looked.read()) == (200, b"")
            asking.request("GET", "/livez")
            assert asking.getresponse().status == 200, "the one before has ended"
        listener.close()
        wait_for(lambda: not served.streams._admitted, 10, "the stream that nobody listens to")


ELSEWHERE = (
    "/ui/v1/../ui/runs", "/ui/v1/%2e%2e/metrics", "/ui/v1/..%2fmetrics", "/ui/v1//v1/runs", "/ui/v1/runs%2fa",
    "/ui/v1/./runs", "/ui/v1/", "/ui/v1", "/ui//v1/runs", "/ui/v1/http://127.0.0.1/v1/runs", "/ui/v1/runs%00",
    "/ui/v1/runs/a/files/..", "/ui/v1/%2E/runs", "/ui/v1/livez", "/ui/v1/metrics", "/ui/v1/ui/runs", "/ui/V1/runs",
    "/ui/v2/runs", "/ui/metrics", "/ui/v1/../../metrics",
)  # fmt: skip


def test_nothing_but_v1_is_reached(signed_in: Looking) -> None:
    cookie = f"spot-8787={signed_in.cookies['spot-8787']}"
    assert raw(signed_in, "/ui/v1/runs", cookie=cookie).status == 200
    answers = {target: raw(signed_in, target, cookie=cookie).status for target in ELSEWHERE}
    assert {target: status for target, status in answers.items() if status != 404} == {}


def test_nothing_is_changed_through_it(bed: Bed, signed_in: Looking) -> None:
    bed.submit("mine")
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        answer = signed_in.request(method, "/ui/v1/runs/mine/stop", headers={"Origin": signed_in.origin})
        assert answer.status_code == 405, method
    assert bed.events("mine") == ["submitted"]
    direct = signed_in.post("/v1/runs/mine/stop")
    assert (direct.status_code, bed.events("mine")) == (401, ["submitted"])


def test_pages_of_others_get_nothing_of_it(signed_in: Looking) -> None:
    """A page on another port of this computer is of the same site: cookies go with what it asks."""
    told = {}
    for site in ("cross-site", "same-site", "same-origin", "none"):
        told[site] = signed_in.get("/ui/v1/runs", headers={"Sec-Fetch-Site": site}).status_code
    assert told == {"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200}

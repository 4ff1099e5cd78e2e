"""What other sites, attackers on the network and strangers may try on the pages, each with its response."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from supervisor.api.server import ROUTES
from supervisor.api.wire.deps import Services
from supervisor.dashboard import app as dashboard
from supervisor.dashboard import rendering, session
from supervisor.dashboard.public_api import Api
from supervisor.telemetry import metrics
from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.dashboard.raw import HOST, OURS, raw, sign_in
from tests.services.bed import Bed

# Who sends it, what the browser says of that, and the answer. `__Host-spot` is only ever kept where TLS is in front.
SENDERS = (
    ("our own page", {"origin": f"http://{HOST}", "sec_fetch_site": "same-origin"}, 303),
    ("our own page, of an older browser", {"origin": f"http://{HOST}"}, 303),
    ("a page of another site", {"origin": "http://evil.example", "sec_fetch_site": "cross-site"}, 403),
    ("another site, with our origin", {"origin": f"http://{HOST}", "sec_fetch_site": "cross-site"}, 403),
    ("a page on another port", {"origin": "http://127.0.0.1:3000", "sec_fetch_site": "same-site"}, 403),
    ("a page on another port, of an older browser", {"origin": "http://127.0.0.1:3000"}, 403),
    ("a page of another name of this computer", {"origin": "http://localhost:8787"}, 403),
    ("a page in a sandbox", {"origin": "null"}, 403),
    ("a page in a sandbox of ours", {"origin": "null", "sec_fetch_site": "same-origin"}, 403),
    ("nobody says who", {}, 403),
    ("an empty origin", {"origin": ""}, 403),
    ("a name that ends like ours", {"origin": f"http://evil{HOST}"}, 403),
    ("a name that begins like ours", {"origin": f"http://{HOST}.evil.example"}, 403),
    ("another word for the site", {"origin": f"http://{HOST}", "sec_fetch_site": "same-origin, cross-site"}, 403),
)  # fmt: skip


def test_only_our_own_pages_change_something(asked: Services, token: str) -> None:
    looking = Looking(asked)
    for name, headers, expected in SENDERS:
        told = sign_in(looking, token, **headers)
        assert (name, told.status) == (name, expected)
        assert ("set-cookie" in told.headers) is (expected == 303), name
        out = raw(looking, "/ui/sign-out", "POST", cookie=f"spot-8787={token}", **headers)
        assert (name, out.status) == (name, expected)


def test_pages_of_others_may_link_to_us_and_nothing_else(asked: Services, token: str) -> None:
    looking, cookie = Looking(asked), f"spot-8787={token}"
    for site in ("cross-site", "same-site"):
        for mode, dest, status in (
            ("navigate", "document", 200), ("navigate", "iframe", 403), ("navigate", "object", 403),
            ("cors", "empty", 403), ("no-cors", "script", 403), ("no-cors", "image", 403),
            ("cors", "", 403), ("", "", 403),
        ):  # fmt: skip
            headers = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": dest}
            for target in ("/ui/alerts", "/ui/sign-in?next=/ui/alerts"):
                told = raw(looking, target, cookie=cookie, **headers)
                wanted = 303 if status == 200 and "sign-in" in target else status
                assert (site, mode, dest, told.status) == (site, mode, dest, wanted)
    assert raw(looking, "/ui/live", sec_fetch_site="same-site", sec_fetch_mode="cors", cookie=cookie).status == 403


def test_the_tables_bite(asked: Services, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of the origin, or with cookies that count at the API, the responses above differ."""
    monkeypatch.setattr(session, "is_from_our_pages", lambda request: True)
    assert sign_in(Looking(asked), token).status == 303
    looking, cookie = Looking(asked), f"spot-8787={token}"

    async def believing(scope: Any, receive: Any, send: Any) -> None:
        told = dict(scope["headers"]).get(b"cookie", b"").partition(b"=")[2]
        await looking_app(
            {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + told)]}, receive, send
        )

    looking_app, looking.app = looking.app, believing  # type: ignore[assignment]
    assert raw(looking, "/v1/runs", cookie=cookie).status == 200


def test_every_change_below_ui_asks_where_it_comes_from(asked: Services, token: str) -> None:
    looking, cookie = Looking(asked), f"spot-8787={token}"
    changing = [(path, method) for path, methods, _, _ in dashboard.PAGES for method in methods if method != "GET"]
    assert changing
    for path, method in changing:
        target = "/ui" + path.replace("{", "").replace("}", "")
        told = raw(looking, target, method, cookie=cookie)
        assert (target, told.status) == (target, 403)
        assert "ORIGIN_REFUSED" in told.body.decode()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_cookie_counts_for_nothing_at_the_api(bed: Bed, asked: Services, token: str, method: str) -> None:
    bed.submit("mine")
    looking, cookie = Looking(asked), f"spot-8787={token}; __Host-spot={token}"
    targets = {
        "POST": ("/v1/runs/mine/stop", "/v1/runs", "/v1/tokens", "/v1/webhooks"),
        "PUT": (f"/v1/code/{'0' * 64}",),
        "PATCH": ("/v1/runs/mine", "/v1/webhooks/wh-000000000000"),
        "DELETE": ("/v1/tokens/tok-000000000000", "/v1/webhooks/wh-000000000000"),
    }
    for target in targets[method]:
        told = raw(looking, target, method, b"{}", cookie=cookie, content_type="application/json", **OURS)
        assert (target, told.status) == (target, 401)
    assert raw(looking, "/v1/runs", cookie=cookie).status == 401
    assert bed.events("mine") == ["submitted"]


def test_on_the_way_to_tls_nobody_can_make_our_origin(asked: Services, token: str) -> None:
    """Whoever sits between makes http://HOST, and a browser that says nothing of sites sends the cookie along."""
    looking = Looking(asked)
    kept = {"cookie": f"__Host-spot={token}", "host": "localhost"}
    told = raw(looking, "/ui/sign-out", "POST", origin="http://localhost", **kept)
    assert told.status == 403
    assert raw(looking, "/ui/sign-out", "POST", origin="https://localhost", **kept).status == 303


NAMES = ("evil.example", "evil.example:8787", "127.0.0.1.evil.example", "", "127.0.0.1:8787@evil.example", "[::2]")


def test_another_name_is_refused_below_ui_too(asked: Services, token: str) -> None:
    looking = Looking(asked)
    for name in NAMES:
        for target in ("/ui/runs", "/ui/sign-in", "/ui/v1/runs", "/ui/static/style.css", "/"):
            told = raw(looking, target, host=name, cookie=f"spot-8787={token}; __Host-spot={token}")
            assert (name, target, told.status) == (name, target, 400)
            assert b"HOST_REFUSED" in told.body


def test_a_port_that_is_none_is_no_bug(asked: Services, token: str) -> None:
    for name in ("127.0.0.1:99999", "127.0.0.1:", "localhost:00000", "[::1]:1"):
        told = raw(Looking(asked), "/ui/sign-in", host=name, cookie=f"spot-8787={token}")
        assert (name, told.status) == (name, 200)


HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ANSWERS = (
    ("GET", "/", 307), ("GET", "/ui", 307), ("GET", "/ui/runs", 303), ("GET", "/ui/sign-in", 200),
    ("GET", "/ui/nothing", 404), ("GET", "/ui/static/nothing.js", 404), ("POST", "/ui/runs", 405),
    ("DELETE", "/ui/sign-in", 405), ("BREW", "/ui/sign-in", 405), ("POST", "/ui/sign-in", 403),
    ("GET", "/ui/v1/runs", 401), ("GET", "/ui/v1/..", 404), ("POST", "/ui/v1/runs", 405), ("HEAD", "/ui/sign-in", 200),
    ("HEAD", "/ui/nothing", 404), ("GET", "/ui/bug", 500), ("GET", "/ui/runs/", 404),
    ("GET", "/ui/" + "x" * 17_000, 431), ("POST", "/", 405), ("DELETE", "/ui", 405),
)  # fmt: skip


@pytest.fixture
def with_a_bug(asked: Services, monkeypatch: pytest.MonkeyPatch) -> Looking:
    async def bug(request: Request, api: Api) -> Response:
        raise RuntimeError("a secret of the page")

    monkeypatch.setattr(dashboard, "PAGES", (*dashboard.PAGES, ("/bug", ["GET"], bug, "ui_bug")))
    return Looking(asked)


def test_every_answer_carries_the_headers(with_a_bug: Looking) -> None:
    for method, target, status in ANSWERS:
        told = raw(with_a_bug, target, method)
        assert (method, target[:30], told.status) == (method, target[:30], status)
        assert {name: told.headers.get(name) for name in HEADERS} == HEADERS, target[:30]
        policy = told.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'"), target[:30]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "access-control-allow-origin" not in told.headers
        assert (told.headers.get("allow") or "none").startswith("GET, HEAD" if status == 405 else "none")
        if status >= 400 and not target.startswith("/ui/v1"):
            assert told.headers["content-type"] == rendering.HTML, target[:30]
            assert told.headers["cache-control"] == "no-store"
            if method != "HEAD":
                assert read(told.body.decode()).one("p", role="alert").text


def test_what_may_be_kept_is_the_assets_alone(asked: Services, token: str) -> None:
    looking, cookie = Looking(asked), f"spot-8787={token}"
    for target in ("/ui/runs", "/ui/sign-in", "/ui/v1/runs", "/ui/nothing"):
        assert raw(looking, target, cookie=cookie).headers["cache-control"] == "no-store", target
    sheet = read(raw(looking, "/ui/runs", cookie=cookie).body.decode()).all("link", rel="stylesheet")[0]
    assert "immutable" in raw(looking, sheet.attributes["href"]).headers["cache-control"]


def test_a_bug_is_a_page_with_the_id_of_the_request(with_a_bug: Looking, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        told = raw(with_a_bug, "/ui/bug", x_request_id="find-me")
    page = read(told.body.decode())
    assert told.status == 500
    assert "find-me" in page.one("main").text
    assert "INTERNAL" in page.one("main").text
    assert "secret of the page" not in told.body.decode()
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None
    assert "secret of the page" in str(record.exc_info[1])


def test_a_page_of_a_refusal_that_breaks_is_still_an_answer(
    with_a_bug: Looking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> Response:
        raise RuntimeError("the template is broken")

    monkeypatch.setattr(rendering, "page", broken)
    told = raw(with_a_bug, "/ui/nothing")
    assert (told.status, told.headers["content-type"]) == (404, "application/problem+json")


def test_a_page_is_counted_by_its_name_and_no_address_makes_a_label(
    asked: Services, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = set[str]()
    monkeypatch.setattr(metrics.REQUESTS, "add", lambda operation, *_: counted.add(operation))
    looking = Looking(asked)
    targets = ("/ui/z1", "/ui/static/z2.js", "/ui/v1/z3", "/ui/runs/z4", "/z5", "/ui/runs/z6/z7", "/ui/", "/ui/sign-in")
    for target in targets:
        raw(looking, target, cookie=f"spot-8787={token}")
        raw(looking, target, "PATCH", cookie=f"spot-8787={token}")
    pages = {name for *_, name in dashboard.PAGES}
    assert counted - pages - {route.name for route in ROUTES} == {"none", "ui_home"}
    assert counted >= {"ui_static", "ui_relay", "ui_run", "ui_sign_in"}

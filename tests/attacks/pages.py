"""Attacks on the dashboard, with the cookie of somebody who may: one line each, with the answer that is promised."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from tests.attacks.house import House
from tests.attacks.requests import Attack
from tests.attacks.wire import HERE, ask

FORM = "Content-Type: application/x-www-form-urlencoded"
NO_METHOD = "405 METHOD_NOT_ALLOWED"
OURS = f"Origin: http://{HERE}"


def forms(house: House) -> Iterator[Attack]:
    """Changes that no page of ours has sent, and the cookie where it does not count."""
    targets = ("/ui/sign-out", "/ui/many/stop", f"/ui/alerts/{house.webhook}/remove", "/ui/machines/release")
    for target in targets:
        yield f"{target} from nowhere", ask("POST", target, house.cookie, FORM, body=b"a=b"), "403"
        for line in ("Origin: null", "Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"):
            yield f"{target}, {line}", ask("POST", target, house.cookie, FORM, line, body=b"a=b"), "403"
    no = "401 UNAUTHORIZED"
    yield "the cookie at the API", ask("GET", "/v1/runs", house.cookie), no
    yield "a stop by cookie", ask("POST", f"/v1/runs/{house.theirs}/stop", house.cookie, OURS, body=b"{}"), no
    yield "a removal by cookie", ask("DELETE", f"/v1/webhooks/{house.webhook}", house.cookie, OURS), no
    yield "the cookie of another port", ask("GET", "/ui/runs", f"Cookie: spot-81={house.admin}"), "303"
    yield (
        "a stranger's page",
        ask("GET", "/ui/v1/runs", house.cookie, "Sec-Fetch-Site: cross-site"),
        "403 ORIGIN_REFUSED",
    )


def addresses(house: House) -> Iterator[Attack]:
    lost = "404 NOT_FOUND"
    for path in (
        "..",
        "../../v1/tokens",
        "%2e%2e/v1/tokens",
        "..%2f..%2fmetrics",
        "/runs",
        "runs%00",
        "//evil.example/",
    ):
        yield f"/ui/v1/{path}", ask("GET", f"/ui/v1/{path}", house.cookie), lost
    for path in (
        "static/../app.py",
        "static/%2e%2e%2fapp.py",
        "static/..%2f..%2fsettings.py",
        "static/",
        "runs/",
        "//",
    ):
        yield f"/ui/{path}", ask("GET", f"/ui/{path}", house.cookie), "404"
    yield "another name", ask("GET", "/ui/runs", house.cookie, host="rebound.example"), "400"
    yield "a method", ask("TRACE", "/ui/runs", house.cookie), "405"
    yield (
        "a change through the relay",
        ask("DELETE", f"/ui/v1/webhooks/{house.webhook}", house.cookie, OURS),
        NO_METHOD,
    )
    yield "a token in the address", ask("GET", f"/ui/sign-in?token={house.admin}"), "200"


def entering(house: House) -> Iterator[Attack]:
    many = urlencode([(f"k{n}", "v") for n in range(5000)]).encode()
    yield "a form of 1.1 MB", ask("POST", "/ui/sign-in", OURS, FORM, body=b"a" * 1_100_000), "413"
    yield "a form of 5,000 fields", ask("POST", "/ui/sign-in", OURS, FORM, body=many), "401"
    yield "a form that is none", ask("POST", "/ui/sign-in", OURS, body=b'{"token": "x"}'), "401"
    wrong = house.admin[:-1] + ("A" if house.admin[-1] != "A" else "B")
    yield "a wrong letter", ask("POST", "/ui/sign-in", OURS, FORM, body=b"token=" + wrong.encode()), "401"
    plain = b"token=" + house.admin.encode()
    yield (
        "a page elsewhere that signs in",
        ask("POST", "/ui/sign-in", "Origin: http://e.example", FORM, body=plain),
        "403",
    )

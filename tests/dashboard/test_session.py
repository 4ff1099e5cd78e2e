"""How the token is kept: the name of the cookie, how long, and when it is deleted."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.api.wire.middleware import LOOPBACK
from supervisor.dashboard.rendering import is_ours
from supervisor.domain.callers import LOCAL, Scope
from supervisor.services.access.tokens import TokenRequest, create, revoke
from tests.dashboard.document import read
from tests.dashboard.looking import Looking
from tests.dashboard.raw import FORM, raw, sign_in
from tests.services.bed import Bed

NAME = "spot.lab.example"


def made(bed: Bed, *scopes: Scope, **wish: float) -> dict[str, str]:
    asked = TokenRequest(name="eve", owner="eve", scopes=frozenset(scopes or (Scope.ADMIN,)), **wish)  # type: ignore[arg-type]
    return create(bed.parts, asked, LOCAL)


@pytest.fixture
def looking(bed: Bed) -> Looking:
    return Looking(with_tokens(bed.services), hosts=(*LOOPBACK, NAME))


@pytest.mark.parametrize(
    ("origin", "cookie"),
    [
        ("http://127.0.0.1:8787", "spot-8787={}; HttpOnly; Max-Age=604800; Path=/; SameSite=strict"),
        ("http://localhost:9000", "spot-9000={}; HttpOnly; Max-Age=604800; Path=/; SameSite=strict"),
        ("http://[::1]", "spot-80={}; HttpOnly; Max-Age=604800; Path=/; SameSite=strict"),
        (f"https://{NAME}", "__Host-spot={}; HttpOnly; Max-Age=604800; Path=/; SameSite=strict; Secure"),
        ("https://localhost:8443", "__Host-spot={}; HttpOnly; Max-Age=604800; Path=/; SameSite=strict; Secure"),
        (f"http://{NAME}", ""),
    ],
)
def test_under_which_name_it_is_kept(bed: Bed, looking: Looking, origin: str, cookie: str) -> None:
    token, host = made(bed)["token"], origin.partition("://")[2]
    told = sign_in(looking, token, origin=origin, host=host)
    who = cookie.replace("={}", "-who=eve")
    assert told.cookies == ([cookie.format(token), who] if cookie else [])
    if not cookie:
        assert (told.status, "plain http" in told.body.decode()) == (403, True)
        return
    kept = f"{cookie.partition(';')[0].format(token)}; {who.partition(';')[0]}"
    runs = raw(looking, "/ui/runs", host=host, cookie=kept)
    assert (runs.status, read(runs.body.decode()).one("a", class_="who").text) == (200, "eve")
    out = raw(looking, "/ui/sign-out", "POST", host=host, cookie=kept, origin=origin)
    names = [one.partition("=")[0] for one in out.cookies]
    assert cookie.partition("=")[0] in names
    assert "__Host-spot" in names
    assert all("Max-Age=0" in one for one in out.cookies)


def test_two_supervisors_on_one_computer_do_not_sign_each_other_out(bed: Bed, looking: Looking) -> None:
    mine, other = made(bed)["token"], made(bed)["token"]
    both = f"spot-8787={mine}; spot-9000={other}"
    assert raw(looking, "/ui/runs", cookie=both).status == 200
    assert raw(looking, "/ui/runs", cookie=f"spot-9000={mine}").status == 303
    out = raw(looking, "/ui/sign-out", "POST", cookie=both, origin="http://127.0.0.1:8787")
    assert not any(one.startswith("spot-9000") for one in out.cookies)


def test_the_plain_cookie_counts_on_this_computer_only(bed: Bed, looking: Looking) -> None:
    token = made(bed)["token"]
    for name in ("spot-80", "spot-8787", "spot-443"):
        assert raw(looking, "/ui/runs", host=NAME, cookie=f"{name}={token}").status == 303
    assert raw(looking, "/ui/runs", host=NAME, cookie=f"__Host-spot={token}").status == 200


def test_a_token_that_is_over_leads_to_the_sign_in_and_back(bed: Bed, looking: Looking) -> None:
    gone, fired = made(bed, expires_in_s=60.0), made(bed)
    bed.clock.advance(61.0)
    revoke(bed.parts, bed.services.identity, fired["token_id"], LOCAL)
    for token in (gone["token"], fired["token"]):
        kept = f"spot-8787={token}"
        told = raw(looking, "/ui/runs?status=failed&q=%C3%A4", cookie=kept)
        assert told.headers["location"] == "/ui/sign-in?next=/ui/runs%3Fstatus%3Dfailed%26q%3D%25C3%25A4"
        form = raw(looking, told.headers["location"], cookie=kept)
        page = read(form.body.decode())
        assert "no longer valid" in page.one("p", role="alert").text
        assert (
            page.one("form", action="/ui/sign-in").one("input", name="next").attributes["value"]
            == "/ui/runs?status=failed&q=%C3%A4"
        )
        assert any("Max-Age=0" in one for one in form.cookies)
        assert not page.all("form", action="/ui/sign-out")


def test_a_change_without_a_valid_token_leads_back_to_its_page(looking: Looking) -> None:
    ours = {"origin": "http://127.0.0.1:8787", "content_type": FORM}
    for referer, following in (
        ("http://127.0.0.1:8787/ui/runs?q=a", "?next=/ui/runs%3Fq%3Da"),
        ("http://evil.example/ui/runs", ""),
        ("http://127.0.0.1:8787/v1/runs", ""),
        ("", ""),
    ):
        told = raw(looking, "/ui/alerts/settings/replay", "POST", referer=referer, **ours)
        assert (told.status, told.headers["location"]) == (303, "/ui/sign-in" + following)
    asks = {"hx_request": "true", "hx_current_url": "http://127.0.0.1:8787/ui/runs?q=a"}
    told = raw(looking, "/ui/runs/digits-7/log/lines?after=3", **asks)
    assert told.headers["hx-redirect"] == "/ui/sign-in?next=/ui/runs%3Fq%3Da"


ELSEWHERE = (
    "//evil.example", "https://evil.example/ui/", "/\\evil.example", "/ui\\..\\evil", "/ui/\n/x", "javascript:alert(1)",
    "/v1/runs", "", " /ui/runs", "ui/runs", "/ui", "/uix", "\x00/ui/", "/ui/\u202e", "/ui/../v1/runs",
    "/ui/..//evil.example", "/ui/%2e%2E//evil.example", "/ui/.%2e/x?a=b", "/ui//evil.example",
)  # fmt: skip


def test_the_sign_in_never_leads_away(bed: Bed, looking: Looking) -> None:
    token = made(bed)["token"]
    for address in ELSEWHERE:
        assert not is_ours(address)
        told = sign_in(looking, token, address, origin="http://127.0.0.1:8787")
        assert (told.status, told.headers["location"]) == (303, "/ui/runs"), repr(address)
        told = raw(looking, f"/ui/sign-in?{urlencode({'next': address})}", cookie=f"spot-8787={token}")
        assert (told.status, told.headers["location"]) == (303, "/ui/runs"), repr(address)
        body = urlencode({"theme": "dark", "next": address}).encode()
        told = raw(looking, "/ui/theme", "POST", body, content_type=FORM, origin="http://127.0.0.1:8787")
        assert (told.status, told.headers["location"]) == (303, "/ui/runs"), repr(address)


def test_a_token_that_may_not_read_is_told_so(bed: Bed, looking: Looking) -> None:
    told = sign_in(looking, made(bed, Scope.METRICS)["token"], origin="http://127.0.0.1:8787")
    assert (told.status, told.cookies) == (403, [])
    assert "runs:read" in read(told.body.decode()).one("p", role="alert").text


def test_where_nobody_is_asked_there_is_no_sign_in(bed: Bed) -> None:
    looking = Looking(bed.services)
    told = raw(looking, "/ui/sign-in?next=/ui/alerts")
    assert (told.status, told.headers["location"]) == (303, "/ui/alerts")
    told = sign_in(looking, "no token at all", origin="http://127.0.0.1:8787")
    assert (told.status, told.cookies) == (303, [])
    assert not looking.page("/ui/runs").all("form", action="/ui/sign-out")


def test_the_form_is_one_that_browsers_and_their_keepers_of_passwords_know(looking: Looking) -> None:
    page = looking.page("/ui/sign-in")
    field = page.one("input", name="token").attributes
    assert (field["type"], field["autocomplete"]) == ("password", "current-password")
    assert page.one("label", for_="token").text == "Token"
    assert field.get("value", "") == ""
    assert page.one("form", action="/ui/sign-in").attributes["method"] == "post"


def test_the_name_that_is_shown_cannot_be_anything(bed: Bed, looking: Looking) -> None:
    token = made(bed)["token"]
    for name in ("<b>", "a b", "", "x" * 64, '"eve"; x=y'):
        told = raw(looking, "/ui/runs", cookie=f"spot-8787={token}; spot-8787-who={name}")
        assert told.status == 200
        assert [one.text for one in read(told.body.decode()).all("a", class_="who")] in ([], ["eve"])
    assert not read(raw(looking, "/ui/sign-in", cookie="spot-8787-who=eve").body.decode()).all("a", class_="who")


def test_the_answer_to_a_form_leads_back_to_its_page(bed: Bed) -> None:
    looking = Looking(bed.services)
    for referer, following in (
        ("http://127.0.0.1:8787/ui/alerts?a=b", "/ui/alerts?a=b"),
        ("http://evil.example/ui/alerts", "/ui/runs"),
        ("http://[evil/ui/alerts", "/ui/runs"),
        ("", "/ui/runs"),
    ):
        told = raw(looking, "/ui/alerts/none/test", "POST", origin="http://127.0.0.1:8787", referer=referer)
        assert told.status == 404
        assert read(told.body.decode()).one("input", name="next").attributes["value"] == following

"""Who looks: the API token, kept by the browser in a cookie that no script can read and no other site can send.

Over TLS, which ends in the proxy in front of us, the cookie is named `__Host-spot`: Secure, for this host alone. A
browser refuses that name over plain http; there it is plainly named, and on loopback only, because over a network the
token would travel in the clear. Cookies do not know ports: the plain name carries the port, so that two supervisors on
one computer do not sign each other out.

A page of another site must not be able to press our buttons: every unsafe request has to say that it comes from our own
pages (Sec-Fetch-Site, or Origin where a browser does not send that). Absence is refused too, other than at the API's
outer door: there a token in a header proves the sender, here a cookie does not.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

KEPT_S = 7 * 86_400
TOKEN_MAX = 255
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = ("same-origin", "none")  # Sec-Fetch-Site of our own pages, and of what a person typed
SECURE_NAME = "__Host-spot"
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?\Z")


class InTheClear(Exception):
    """A token was to be sent over plain http to another computer."""


def token_of(request: Request) -> str:
    """The empty text = nobody has signed in here."""
    token = request.cookies.get(SECURE_NAME) or (
        request.cookies.get(_plain_name(request), "") if _is_loopback(request) else ""
    )
    plain = token.isascii() and token.isprintable() and " " not in token and len(token) <= TOKEN_MAX
    return token if plain else ""


def sign_in(request: Request, response: Response, token: str) -> None:
    """Raises InTheClear."""
    if not _over_tls(request) and not _is_loopback(request):
        raise InTheClear
    _set(request, response, token, KEPT_S)


def sign_out(request: Request, response: Response) -> None:
    _set(request, response, "", 0)


def _set(request: Request, response: Response, value: str, age_s: int) -> None:
    secure = _over_tls(request)
    name = SECURE_NAME if secure else _plain_name(request)
    response.set_cookie(name, value, max_age=age_s, path="/", secure=secure, httponly=True, samesite="strict")


def _plain_name(request: Request) -> str:
    return f"spot-{request.url.port or 80}"


def _is_loopback(request: Request) -> bool:
    return _LOOPBACK.match(request.headers.get("host", "").lower()) is not None


def _over_tls(request: Request) -> bool:
    """As the browser sees it: its own Origin tells, which no page can forge; a header of a proxy could be anybody's."""
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")


def is_from_our_pages(request: Request) -> bool:
    """Whether this request may change something."""
    if request.method in SAFE:
        return True
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in OWN_SITES
    origin = request.headers.get("origin", "").lower()
    return origin.partition("://")[2] == request.headers.get("host", "").lower() != ""

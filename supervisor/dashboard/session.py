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

from supervisor.domain.callers import NAME, is_token

KEPT_S = 7 * 86_400
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = ("same-origin", "none")  # Sec-Fetch-Site of our own pages, and of what a person typed
SECURE_NAME = "__Host-spot"
WHO = "-who"  # ends the name of the cookie beside it, which says whose token that is
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:(?P<port>\d+))?\Z")


class InTheClear(Exception):
    """A token was to be sent over plain http to another computer."""


def token_of(request: Request) -> str:
    """The empty text = nobody has signed in here."""
    token = request.cookies.get(SECURE_NAME, "")
    if not token and (name := _plain_name(request)):
        token = request.cookies.get(name, "")
    return token if is_token(token) else ""


def name_of(request: Request) -> str:
    """Of the token, as it was told at the sign-in: to be shown, and for nothing else. "" = not known."""
    for kept in (SECURE_NAME, _plain_name(request)):
        if kept in request.cookies:
            name = request.cookies.get(kept + WHO, "")
            return name if NAME.match(name) else ""
    return ""


def sign_in(request: Request, response: Response, token: str, name: str) -> None:
    """`name`: of the token. Raises InTheClear."""
    kept = SECURE_NAME if _over_tls(request) else _plain_name(request)
    if not kept:
        raise InTheClear
    _set(response, kept, token, KEPT_S)
    _set(response, kept + WHO, name, KEPT_S)


def sign_out(request: Request, response: Response) -> None:
    """Whichever cookie there is."""
    for kept in (SECURE_NAME, _plain_name(request)):
        if kept:
            _set(response, kept, "", 0)
            _set(response, kept + WHO, "", 0)


def _set(response: Response, name: str, value: str, age_s: int) -> None:
    secure = name.startswith(SECURE_NAME)
    response.set_cookie(name, value, max_age=age_s, path="/", secure=secure, httponly=True, samesite="strict")


def _plain_name(request: Request) -> str:
    """ "" = the cookie would leave this computer in the clear."""
    match = _LOOPBACK.match(_host(request))
    return f"spot-{match['port'] or 80}" if match is not None else ""


def _host(request: Request) -> str:
    return request.headers.get("host", "").lower()


def _over_tls(request: Request) -> bool:
    """As the browser sees it: its own Origin tells, which no page can forge; a header of a proxy could be anybody's."""
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")


def is_from_our_pages(request: Request) -> bool:
    """Whether this request may do what its method is for. A page of another site may lead here by a link, and neither
    frame us, load what we have, nor send us anything."""
    site = request.headers.get("sec-fetch-site")
    if request.method in SAFE:
        by_link = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
        return site is None or site in OWN_SITES or by_link == ("navigate", "document")
    if site is not None:
        return site in OWN_SITES
    scheme, _, name = request.headers.get("origin", "").lower().partition("://")
    if SECURE_NAME in request.cookies and scheme != "https":
        return False  # of our name, as whoever sits on the way can make it
    return name == _host(request) != ""

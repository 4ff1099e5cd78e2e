"""The session: the API token, kept by the browser in a cookie that no script can read and no other site can send.

Over TLS, which ends in the proxy before us, the cookie is named `__Host-spot`: Secure, for this host only. A browser
refuses that name over plain http; there the name is plain, and only on loopback, because over a network the token would
be readable. Cookies do not include the port, so the plain name does: two supervisors on one computer do not sign each
other out.

A page of another site must not be able to press our buttons: every unsafe request must show that one of our pages sent
it (Sec-Fetch-Site, or Origin where a browser does not send that). A request without both is refused too: in the API a
token in a header proves the sender, here a cookie does not.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from supervisor.domain.callers import NAME, is_token

KEPT_S = 7 * 86_400
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = ("same-origin", "none")  # Sec-Fetch-Site of our pages, and of a typed address
SECURE_NAME = "__Host-spot"
WHO = "-who"  # the end of the name of a second cookie, which says whose token it is
_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:(?P<port>\d+))?\Z")


class InTheClear(Exception):
    """The token would be sent over plain http to another computer."""


def token_of(request: Request) -> str:
    """ "" = not signed in."""
    token = request.cookies.get(SECURE_NAME, "")
    if not token and (name := _plain_name(request)):
        token = request.cookies.get(name, "")
    return token if is_token(token) else ""


def name_of(request: Request) -> str:
    """Of the token, as the API reported it at the sign-in; only for display. "" = unknown."""
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
    """Deletes every cookie of ours."""
    for kept in (SECURE_NAME, _plain_name(request)):
        if kept:
            _set(response, kept, "", 0)
            _set(response, kept + WHO, "", 0)


def _set(response: Response, name: str, value: str, age_s: int) -> None:
    secure = name.startswith(SECURE_NAME)
    response.set_cookie(name, value, max_age=age_s, path="/", secure=secure, httponly=True, samesite="strict")


def _plain_name(request: Request) -> str:
    """ "" = the cookie would leave this computer unencrypted."""
    match = _LOOPBACK.match(_host(request))
    return f"spot-{match['port'] or 80}" if match is not None else ""


def _host(request: Request) -> str:
    return request.headers.get("host", "").lower()


def _over_tls(request: Request) -> bool:
    """As the browser sees it: no page can forge its Origin header; a proxy's header could come from anyone."""
    return request.url.scheme == "https" or request.headers.get("origin", "").lower().startswith("https://")


def is_from_our_pages(request: Request) -> bool:
    """False for a request that another site caused. Another site may link here, but may not embed a page, load data, or
    send anything."""
    site = request.headers.get("sec-fetch-site")
    if request.method in SAFE:
        by_link = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
        return site is None or site in OWN_SITES or by_link == ("navigate", "document")
    if site is not None:
        return site in OWN_SITES
    scheme, _, name = request.headers.get("origin", "").lower().partition("://")
    if SECURE_NAME in request.cookies and scheme != "https":
        return False  # an attacker on the network can make an http page with our name
    return name == _host(request) != ""

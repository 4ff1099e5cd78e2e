"""Signing in with a token, signing out, and light or dark."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering, session
from supervisor.dashboard.public_api import Api, Refused, SignInNeeded
from supervisor.dashboard.rendering import first, read_form
from supervisor.domain.callers import is_token

YEAR_S = 365 * 86_400
OVER = "The token in this browser is no longer valid: it has expired or was revoked."
NOT_VALID = "This token is not valid here: it has expired, was revoked, or belongs to another supervisor."
MISTYPED = "This is not a complete token: a character is wrong or missing (it begins with sup_ and ends in a checksum)."
IN_THE_CLEAR = "Over plain http a token may only be sent on this computer. Use a proxy with TLS (docs/access.md)."


async def show(request: Request, api: Api) -> Response:
    """The form; a redirect to the page where no token is required, or the kept one is valid."""
    following = _following(request.query_params.get("next", ""))
    try:
        await api.get("/v1/meta")
    except SignInNeeded:
        kept = session.token_of(request) != ""
        response = await _form(request, 200, following, OVER if kept else "")
        if kept:
            session.sign_out(request, response)
        return response
    except Refused as refusal:
        return await _refused(request, following, refusal)
    return rendering.go_to(following)


async def enter(request: Request, api: Api) -> Response:
    """The API counts guesses by their address. The token is never repeated."""
    form = await read_form(request)
    token, following = first(form, "token"), _following(first(form, "next"))
    whole = is_token(token)
    try:
        caller = await Api(api.app, request, token if whole else "").get("/v1/whoami")
    except SignInNeeded:
        return await _form(request, 401, following, NOT_VALID if whole else MISTYPED)
    except Refused as refusal:
        return await _refused(request, following, refusal)
    response = rendering.go_to(following)
    if whole:
        try:
            session.sign_in(request, response, token, caller["name"])
        except session.InTheClear:
            return await _form(request, 403, following, IN_THE_CLEAR)
    return response


async def leave(request: Request, api: Api) -> Response:
    response = rendering.go_to("/ui/sign-in")
    session.sign_out(request, response)
    return response


async def choose_theme(request: Request, api: Api) -> Response:
    """Kept by the browser; any other value means the setting of the system."""
    form = await read_form(request)
    theme = first(form, "theme")
    response = rendering.go_to(_following(first(form, "next")))
    is_theme = theme in rendering.THEMES
    response.set_cookie(
        "theme", theme if is_theme else "", max_age=YEAR_S if is_theme else 0, samesite="strict", httponly=True
    )
    return response


def _following(address: str) -> str:
    return address if rendering.is_ours(address) else "/ui/runs"


async def _refused(request: Request, following: str, refusal: Refused) -> Response:
    response = await _form(request, refusal.status, following, str(refusal))
    if refusal.status == 429:
        response.headers["Retry-After"] = str(refusal.problem.get("meta", {}).get("retry_after_s", 2))
    return response


async def _form(request: Request, status: int, following: str, why: str) -> Response:
    return await rendering.page(request, "sign_in.html", status, following=following, why=why, signed_in=False)

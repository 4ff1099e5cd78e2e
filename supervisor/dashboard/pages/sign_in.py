"""Signing in with a token, signing out, and light or dark."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering, session
from supervisor.dashboard.forms import first, read_form
from supervisor.dashboard.public_api import Api, Refused, SignInNeeded

YEAR_S = 365 * 86_400


async def show(request: Request, api: Api) -> Response:
    """The form; straight on to the page where no token is asked for."""
    following = _following(request.query_params.get("next", ""))
    try:
        await api.get("/v1/meta")
    except SignInNeeded:
        return await _form(request, 200, following, "")
    except Refused as refusal:
        return await _form(request, 200, following, str(refusal))
    return rendering.go_to(following)


async def enter(request: Request, api: Api) -> Response:
    form = await read_form(request)
    token, following = first(form, "token"), _following(first(form, "next"))
    try:
        await Api(api.app, request, token).get("/v1/meta")
    except SignInNeeded:
        return await _form(
            request, 401, following, "This token is not valid here: mistyped, expired or revoked."
        )
    except Refused as refusal:
        return await _form(request, refusal.status, following, str(refusal))
    response = rendering.go_to(following)
    try:
        session.sign_in(request, response, token)
    except session.InTheClear:
        why = "Over plain http a token may be sent on this computer only. Put TLS in front (docs/operations.md)."
        return await _form(request, 403, following, why)
    return response


async def leave(request: Request, api: Api) -> Response:
    response = rendering.go_to("/ui/sign-in")
    session.sign_out(request, response)
    return response


async def choose_theme(request: Request, api: Api) -> Response:
    """Remembered by the browser; anything but light and dark: as the system has it."""
    form = await read_form(request)
    theme = first(form, "theme")
    response = rendering.go_to(_following(first(form, "next")))
    known = theme in rendering.THEMES
    response.set_cookie(
        "theme", theme if known else "", max_age=YEAR_S if known else 0, samesite="strict", httponly=True
    )
    return response


def _following(address: str) -> str:
    return address if rendering.is_ours(address) else "/ui/runs"


async def _form(request: Request, status: int, following: str, why: str) -> Response:
    return await rendering.page(request, "sign_in.html", status, following=following, why=why)

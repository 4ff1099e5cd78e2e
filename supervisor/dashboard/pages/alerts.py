"""Who is told of what happens, what became of it, and what needs a person now.

The secret of a webhook is on one page, the answer to its making, which no cache keeps; its address, a credential of its
receiver, is on none.
"""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.rendering import first, read_form
from supervisor.dashboard.words import moment_text
from supervisor.domain.events import KINDS
from supervisor.wording.figures import Look

# In which a run may wait for a person; one that trains does not.
WAITING = ("awaiting_teardown", "waiting", "finishing", "recovering", "launching", "pending")
LOOKED_AT = 200  # runs that are not over, the newest
STATES = (("", "all"), ("pending", "on the way"), ("delivered", "delivered"), ("given_up", "given up"))
DELIVERY_LOOKS = {
    "pending": Look("◌", "wait", "on the way"),
    "delivered": Look("✔", "good", "delivered"),
    "given_up": Look("✗", "bad", "given up"),
}
WITHIN = (("3600", "1 hour"), ("86400", "1 day"), ("259200", "3 days"), ("604800", "7 days"))
DEEDS = ("enable", "disable", "remove", "rotate", "test", "replay")
FORMS = (("", "by its host"), ("standard", "signed JSON"), ("slack", "Slack"), ("discord", "Discord"))


async def show(request: Request, api: Api) -> Response:
    return await _all(request, api, 200, {})


async def add(request: Request, api: Api) -> Response:
    form = await read_form(request)
    wish = {
        "url": first(form, "url"),
        "form": first(form, "form") or None,
        "kinds": form.get("kind", []),
        "everything": first(form, "everything") == "yes",
        "note": first(form, "note"),
    }
    try:
        made = (await api.call("POST", "/v1/webhooks", body=wish)).json()
    except Refused as refusal:
        if refusal.status not in (409, 422):
            raise
        return await _all(request, api, refusal.status, {**wish, "url": "", "why": _why(refusal)})
    return await _made(request, made, "is added")


async def show_webhook(request: Request, api: Api) -> Response:
    return await _webhook_page(request, api, {})


async def change(request: Request, api: Api) -> Response:
    """A deed of a form: switched on or off, removed, tried, all sent again, another secret."""
    webhook_id, deed = request.path_params["webhook_id"], request.path_params["deed"]
    if deed not in DEEDS:
        raise HTTPException(404)
    here, path = f"/ui/alerts/{webhook_id}", f"/v1/webhooks/{webhook_id}"
    if deed in ("enable", "disable"):
        await api.call("PATCH", path, body={"enabled": deed == "enable"})
        return rendering.go_to(here)
    if deed == "remove":
        await api.call("DELETE", path)
        return rendering.go_to("/ui/alerts")
    if deed == "rotate":
        return await _made(request, (await api.call("POST", f"{path}/rotate")).json(), "has a new secret")
    if deed == "test":
        return await _webhook_page(request, api, {"test": (await api.call("POST", f"{path}/test")).json()})
    since = _since(first(await read_form(request), "within"), request.app.state.now())
    answer = (await api.call("POST", f"{path}/replay", body={"since": since})).json()
    return rendering.go_to(f"{here}?again={answer['replayed']}")


async def replay(request: Request, api: Api) -> Response:
    webhook_id, delivery_id = request.path_params["webhook_id"], request.path_params["delivery_id"]
    await api.call("POST", f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay")
    return rendering.go_to(f"/ui/alerts/{webhook_id}?again=1")


async def _all(request: Request, api: Api, status: int, wish: Json) -> Response:
    waiting = [("status", word) for word in WAITING]
    listing, runs, asker = await api.together(
        api.get("/v1/webhooks"), api.get("/v1/runs", [*waiting, ("page_size", str(LOOKED_AT))]), api.get("/v1/whoami")
    )
    persons = [run for run in runs["runs"] if run["needs_person"] or run["status"] == "awaiting_teardown"]
    return await rendering.page(
        request,
        "alerts.html",
        status,
        here="/ui/alerts",
        webhooks=[{**webhook, "look": look_of(webhook)} for webhook in listing["webhooks"]],
        persons=persons,
        more=runs["next_cursor"] is not None,
        wish={"note": "", "kinds": [], "everything": False, "form": None, "why": "", **wish},
        kinds=list(KINDS.values()),
        forms=FORMS,
        **_rights(asker),
    )


async def _webhook_page(request: Request, api: Api, result: Json) -> Response:
    """`result`: what has just been done, for its result to be shown."""
    webhook_id, params = request.path_params["webhook_id"], request.query_params
    path, query = (f"/v1/webhooks/{webhook_id}", [(key, params[key]) for key in ("state", "cursor") if params.get(key)])
    webhook, page, taken, asker = await api.together(
        api.get(path),
        api.get(f"{path}/deliveries", query),
        api.get(f"{path}/deliveries", [("state", "delivered"), ("page_size", "1")]),
        api.get("/v1/whoami"),
    )
    again = params.get("again", "")
    return await rendering.page(
        request,
        "alert.html",
        here=rendering.here(request) if request.method == "GET" else f"/ui/alerts/{webhook_id}",
        webhook={**webhook, "look": look_of(webhook)},
        deliveries=page["deliveries"],
        following=page["next_cursor"],
        state=params.get("state", ""),
        states=STATES,
        looks=DELIVERY_LOOKS,
        within=WITHIN,
        taken=next(iter(taken["deliveries"]), None),
        first_page=not params.get("cursor"),
        again=int(again) if again.isascii() and again.isdigit() and len(again) < 10 else None,
        test=result.get("test"),
        **_rights(asker),
    )


async def _made(request: Request, webhook: Json, what: str) -> Response:
    return await rendering.page(
        request, "alert_made.html", here=f"/ui/alerts/{webhook['webhook_id']}", webhook=webhook, what=what
    )


def look_of(webhook: Json) -> Look:
    if not webhook["enabled"]:
        return Look("■", "still", "off") if webhook["disabled_why"].endswith("by a person") else Look("✗", "bad", "off")
    return Look("◐", "wait", "failing") if webhook["failing_since"] else Look("✔", "good", "on")


def _rights(asker: Json) -> dict[str, Any]:
    scopes = asker["scopes"]
    return {"may_write": "admin" in scopes or "runs:write" in scopes, "admin": "admin" in scopes}


def _why(refusal: Refused) -> str:
    reasons = [str(error["detail"]) for error in refusal.problem.get("errors", [])]
    return f"{refusal} ({'; '.join(reasons)})" if reasons and refusal.code == "INVALID_REQUEST" else str(refusal)


def _since(within: str, now: float) -> str | None:
    """None: as far back as the API goes by itself."""
    if within not in dict(WITHIN):
        return None
    return moment_text(now - int(within))

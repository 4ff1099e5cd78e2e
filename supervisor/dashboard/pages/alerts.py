"""Alerts: which runs need a person now, who receives messages about runs, and what became of each message.

The secret of a webhook is shown once, on the page that responds to its creation, which no cache keeps. Its address, a
credential of its receiver, is never shown.
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

# Statuses in which a run may need a person; a training run does not.
WAITING = ("awaiting_teardown", "waiting", "finishing", "recovering", "launching", "pending")
EXAMINED = 200  # of the newest runs that are not over
STATES = (("", "all"), ("pending", "pending"), ("delivered", "delivered"), ("given_up", "given up"))
DELIVERY_LOOKS = {
    "pending": Look("◌", "wait", "pending"),
    "delivered": Look("✔", "good", "delivered"),
    "given_up": Look("✗", "bad", "given up"),
}
WITHIN = (("3600", "1 hour"), ("86400", "1 day"), ("259200", "3 days"), ("604800", "7 days"))
ACTIONS = ("enable", "disable", "remove", "rotate", "test", "replay")
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
        webhook = await api.post("/v1/webhooks", wish)
    except Refused as refusal:
        if refusal.status not in (409, 422):
            raise
        return await _all(request, api, refusal.status, {**wish, "url": "", "why": _why(refusal)})
    return await _secret_page(request, webhook, "has been added")


async def show_webhook(request: Request, api: Api) -> Response:
    return await _webhook_page(request, api, None)


async def change(request: Request, api: Api) -> Response:
    """An action of a form: enable, disable, remove, test, send messages again, a new secret."""
    webhook_id, action = request.path_params["webhook_id"], request.path_params["action"]
    if action not in ACTIONS:
        raise HTTPException(404)
    here, path = f"/ui/alerts/{webhook_id}", f"/v1/webhooks/{webhook_id}"
    if action in ("enable", "disable"):
        await api.call("PATCH", path, body={"enabled": action == "enable"})
        return rendering.go_to(here)
    if action == "remove":
        await api.call("DELETE", path)
        return rendering.go_to("/ui/alerts")
    if action == "rotate":
        return await _secret_page(request, await api.post(f"{path}/rotate"), "has a new secret")
    if action == "test":
        return await _webhook_page(request, api, await api.post(f"{path}/test"))
    since = _since(first(await read_form(request), "within"), request.app.state.now())
    answer = await api.post(f"{path}/replay", {"since": since})
    return rendering.go_to(f"{here}?again={answer['replayed']}")


async def replay(request: Request, api: Api) -> Response:
    webhook_id, delivery_id = request.path_params["webhook_id"], request.path_params["delivery_id"]
    await api.call("POST", f"/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/replay")
    return rendering.go_to(f"/ui/alerts/{webhook_id}?again=1")


async def _all(request: Request, api: Api, status: int, wish: Json) -> Response:
    waiting = [("status", word) for word in WAITING]
    listing, runs, caller = await api.together(
        api.get("/v1/webhooks"), api.get("/v1/runs", [*waiting, ("page_size", str(EXAMINED))]), api.get("/v1/whoami")
    )
    return await rendering.page(
        request,
        "alerts.html",
        status,
        here="/ui/alerts",
        webhooks=[{**webhook, "look": look_of(webhook)} for webhook in listing["webhooks"]],
        persons=[run for run in runs["runs"] if run["needs_person"] or run["status"] == "awaiting_teardown"],
        more=runs["next_cursor"] is not None,
        wish={"note": "", "kinds": [], "everything": False, "form": None, "why": "", **wish},
        kinds=list(KINDS.values()),
        forms=FORMS,
        **_rights(caller),
    )


async def _webhook_page(request: Request, api: Api, test: Json | None) -> Response:
    """`test`: the result of a test message that was just sent."""
    webhook_id, params = request.path_params["webhook_id"], request.query_params
    path, query = f"/v1/webhooks/{webhook_id}", [(key, params[key]) for key in ("state", "cursor") if params.get(key)]
    webhook, page, delivered, caller = await api.together(
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
        last=next(iter(delivered["deliveries"]), None),
        first_page=not params.get("cursor"),
        again=int(again) if again.isascii() and again.isdigit() and len(again) < 10 else None,
        test=test,
        **_rights(caller),
    )


async def _secret_page(request: Request, webhook: Json, what: str) -> Response:
    return await rendering.page(
        request, "alert_made.html", here=f"/ui/alerts/{webhook['webhook_id']}", webhook=webhook, what=what
    )


def look_of(webhook: Json) -> Look:
    if not webhook["enabled"]:
        return Look("■", "still", "off") if webhook["disabled_why"].endswith("by a person") else Look("✗", "bad", "off")
    return Look("◐", "wait", "failing") if webhook["failing_since"] else Look("✔", "good", "on")


def _rights(caller: Json) -> dict[str, Any]:
    scopes = caller["scopes"]
    return {"may_write": "admin" in scopes or "runs:write" in scopes, "admin": "admin" in scopes}


def _why(refusal: Refused) -> str:
    reasons = [str(error["detail"]) for error in refusal.problem.get("errors", [])]
    return f"{refusal} ({'; '.join(reasons)})" if reasons and refusal.code == "INVALID_REQUEST" else str(refusal)


def _since(within: str, now: float) -> str | None:
    """None: as far back as the API goes."""
    return moment_text(now - int(within)) if within in dict(WITHIN) else None

"""The supervisor itself: is it ready, the loop, the doctor's checks, versions, and the user of this page.

The doctor may take seconds, so a second request runs it: `?doctor=1`, which scripts send by themselves and a person
sends by a link.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Query, Refused
from supervisor.dashboard.rendering import assets
from supervisor.wording.figures import CHECK_LOOKS

GROUPS = {"local": "This computer", "alerts": "Alerts", "orphans": "Leftover machines"}


async def show(request: Request, api: Api) -> Response:
    return await _page(request, api, request.query_params.get("doctor") == "1", [])


async def alert_test(request: Request, api: Api) -> Response:
    """Sends one marked message to the alert address of the settings."""
    return await _page(request, api, True, [("alert_test", "true")])


async def _page(request: Request, api: Api, examined: bool, query: Query) -> Response:
    meta, loop, ready, caller, completion = await api.together(
        api.get("/v1/meta"), api.get("/v1/loop"), _readiness(api), api.get("/v1/whoami"), _completion(api)
    )
    report = await api.get("/v1/doctor", query) if examined else None
    checks: list[Json] = [] if report is None else report["checks"]
    return await rendering.page(
        request,
        "system.html",
        here="/ui/system?doctor=1" if examined else "/ui/system",
        meta=meta,
        loop=loop,
        ready=ready,
        completion=completion,
        caller=caller,
        admin="admin" in caller["scopes"],
        report=report,
        troubles=[check for check in checks if check["result"] != "ok"],
        groups=_grouped(checks, {} if report is None else report.get("groups", {})),
        looks=CHECK_LOOKS,
        missing=assets().missing,
    )


async def _readiness(api: Api) -> Json:
    """503 is a result here, not a refusal."""
    try:
        answer: Json = await api.get("/readyz", [("verbose", "true")])
    except Refused as refusal:
        if "checks" not in refusal.problem:
            raise
        return refusal.problem
    return answer


async def _completion(api: Api) -> Json | None:
    """None: the database cannot be read now, which the readiness says."""
    try:
        answer: Json = await api.get("/v1/completion")
    except Refused as refusal:
        if refusal.status < 500:
            raise
        return None
    return answer


def _grouped(checks: list[Json], titles: Json) -> list[tuple[str, list[Json]]]:
    """In the order of the report. `titles`: of the groups of providers; a group without a title shows its name."""
    groups: dict[str, list[Json]] = {}
    for check in checks:
        groups.setdefault(check["group"], []).append(check)
    return [(GROUPS.get(name) or titles.get(name, name), checks) for name, checks in groups.items()]

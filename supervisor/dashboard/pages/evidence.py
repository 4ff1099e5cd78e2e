"""Why an attempt ended: at a glance on the overview of its run, and all that is kept of it on a page of its own."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping import evidence_view
from supervisor.wording.evidence_words import last_failure

ABSENT = "More is not kept, or not yet."


async def panel(api: Api, run: Json, attempts: Sequence[Json]) -> Json | None:
    """What `evidence_panel.html` shows as `evidence`: of the newest attempt that is over, if it ended badly. `first`:
    nothing has gone on since, so it is what one wants to know. `missing`: why more of it cannot be shown. Raises
    SignInNeeded, Refused."""
    failed = last_failure(attempts)
    if failed is None:
        return None
    shown, why = await _kept(api, f"/v1/runs/{run['run_id']}/attempts/{failed['number']}/evidence")
    missing = str(why) if why is not None and why.code == "UNAVAILABLE" else ABSENT
    first = attempts[-1]["ended_at"] is not None and run["status"] != "completed"
    newest = failed["number"] == attempts[-1]["number"]
    return {"of": failed, "shown": shown, "missing": missing, "first": first, "newest": newest}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    number, run_id = request.path_params["attempt"], request.path_params["run_id"]
    run, told = await api.together(api.get(f"/v1/runs/{run_id}"), api.get(f"/v1/runs/{run_id}/attempts"))
    shown, why = await _kept(api, f"/v1/runs/{run_id}/attempts/{number}/evidence")
    return await rendering.page(
        request,
        "evidence.html",
        404 if shown is None and number not in {str(one["number"]) for one in told["attempts"]} else 200,
        run=run,
        tab="evidence",
        number=number,
        others=[one["number"] for one in told["attempts"] if one["ended_at"] is not None],
        shown=shown,
        missing="" if why is None else str(why),
    )


async def _kept(api: Api, path: str) -> tuple[Json | None, Refused | None]:
    """What is kept; else why not: there is none, or it cannot be read now. Raises SignInNeeded, Refused."""
    try:
        return evidence_view.view(await api.get(path)), None
    except Refused as refusal:
        if refusal.code not in ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE"):
            raise
        return None, refusal

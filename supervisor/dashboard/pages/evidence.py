"""Why an attempt ended: at a glance on the overview of its run, and all that is kept of it on a page of its own."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping import evidence_view
from supervisor.lifecycle.evidence_words import last_failure


async def panel(api: Api, run: Json, attempts: Sequence[Json]) -> Json | None:
    """What `evidence_panel.html` shows as `evidence`: of the newest attempt that is over, if it ended badly. `first`:
    nothing has gone on since, so it is what one wants to know. Raises SignInNeeded."""
    failed = last_failure(attempts)
    if failed is None:
        return None
    kept = await api.get_or_none(f"/v1/runs/{run['run_id']}/attempts/{failed['number']}/evidence")
    shown = evidence_view.view(kept) if kept is not None else None
    first = attempts[-1]["ended_at"] is not None and run["status"] != "completed"
    newest = failed["number"] == attempts[-1]["number"]
    return {"of": failed, "shown": shown, "first": first, "newest": newest}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    number, run_id = request.path_params["attempt"], request.path_params["run_id"]
    run, told = await api.together(api.get(f"/v1/runs/{run_id}"), api.get(f"/v1/runs/{run_id}/attempts"))
    shown, missing = None, ""
    try:
        shown = evidence_view.view(await api.get(f"/v1/runs/{run_id}/attempts/{number}/evidence"))
    except Refused as refusal:
        if refusal.code not in ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE"):
            raise
        missing = refusal.problem["detail"]
    return await rendering.page(
        request,
        "evidence.html",
        404 if shown is None and number not in {str(one["number"]) for one in told["attempts"]} else 200,
        run=run,
        tab="evidence",
        number=number,
        others=[one["number"] for one in told["attempts"] if one["ended_at"] is not None],
        shown=shown,
        missing=missing,
    )

"""What a machine wrote to its console: asked of the machine while it lives, else what was kept of it.

Where the platform can tell what came after an offset, scripts put that below (static/log.js asks for `/console/lines`);
elsewhere they show the newest part again.
"""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping import ansi

SHOWN_BYTES = 65_536
SOURCES = {
    "machine": "read from the machine just now",
    "kept": "kept before the machine was released",
    "cloud_logging": "read from the cloud's log service",
}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    run_id, asked = request.path_params["run_id"], dict(request.query_params)
    run, told = await api.together(api.get(f"/v1/runs/{run_id}"), api.get(f"/v1/runs/{run_id}/attempts"))
    attempts = told["attempts"]
    number = asked.get("attempt") or (str(attempts[-1]["number"]) if attempts else "")
    page: Json = {"run": run, "tab": "console", "attempts": attempts, "number": number, "sources": SOURCES}
    page |= {"console": None, "missing": None, "source": asked.get("source", "")}
    if attempts and not rendering.looks_again(request):
        try:
            page["console"] = await _console(api, run_id, number, asked, attempts)
        except Refused as refusal:
            if refusal.code not in ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE", "NOT_SUPPORTED"):
                raise
            page["missing"] = refusal.problem["detail"]
    return await rendering.page(request, "console.html", **page)


async def lines(request: Request, api: Api) -> Response:
    """What came after `after`, or the newest part again where there is none. Raises SignInNeeded, Refused."""
    asked = request.query_params
    query = [(name, asked[name]) for name in ("attempt", "after") if name in asked]
    told = await api.get(
        f"/v1/runs/{request.path_params['run_id']}/console", [*query, ("limit", str(SHOWN_BYTES))]
    )
    return await rendering.page(request, "console_lines.html", console=_view(told))


async def _console(api: Api, run_id: str, number: str, asked: Json, attempts: list[Json]) -> Json:
    path, base = f"/v1/runs/{run_id}/console", [("attempt", number), ("limit", str(SHOWN_BYTES))]
    if asked.get("source") == "cloud_logging":
        return _view(await api.get(path, [*base, ("source", "cloud_logging")]))
    gone = {str(one["number"]): one["gone_at"] is not None for one in attempts}
    if not gone.get(number, True):
        told = await api.get_or_none(
            path, [*base, ("after", str(-SHOWN_BYTES))], ("NOT_SUPPORTED", "EVIDENCE_NOT_FOUND")
        )
        if told is not None and told["text"]:
            return _view(told)
    return _view(await api.get(path, base))


def _view(told: Json) -> Json:
    *whole, rest = told["text"].split("\n")
    after = told.get("next_offset")  # None: of a console that is not followed by offsets
    # The line that has no end yet is read again, where its length in bytes is known.
    if after is not None and "\ufffd" not in rest:
        after -= len(rest.encode("utf-8", "replace"))
    rows = [(ansi.shown(line), False) for line in whole] + ([(ansi.shown(rest), True)] if rest else [])
    return {
        **{name: told[name] for name in ("live", "source", "machine", "zone", "log_service")},
        "rows": rows,
        "lost": told.get("lost_bytes") or 0,
        "begin": told.get("start"),
        "resume": urlencode({"after": after}) if after is not None else "",
    }

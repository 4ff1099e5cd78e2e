"""The files of a run: what it left, with sizes and checksums, each to be downloaded through /ui/v1."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping import ansi

PAGE_SIZE = 100
KINDS = (
    ("results", "Results"), ("checkpoints", "Checkpoints"), ("logs", "Logs"), ("evidence", "Evidence"),
    ("code", "Code"),
)  # fmt: skip


async def show(request: Request, api: Api) -> Response:
    """`?kind=&cursor=`, as the API has them. Raises SignInNeeded, Refused."""
    run = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    query = [
        (name, value)
        for name, value in request.query_params.multi_items()
        if name in ("kind", "cursor") and value
    ]
    found, missing, purged = None, "", False
    try:
        found = await api.get(f"/v1/runs/{run['run_id']}/files", [*query, ("page_size", str(PAGE_SIZE))])
    except Refused as refusal:
        if refusal.code not in ("FILES_PURGED", "UNAVAILABLE"):
            raise
        missing, purged = refusal.problem["detail"], refusal.code == "FILES_PURGED"
    kinds = [value for name, value in query if name == "kind"]
    return await rendering.page(
        request,
        "files.html",
        run=run,
        tab="files",
        kinds=KINDS,
        kind=kinds[0] if kinds else "",
        began=any(name == "cursor" for name, _ in query),
        files=[_file(run, file) for file in found["files"]] if found is not None else [],
        found=found,
        following=_following(query, found),
        missing=missing,
        purged=purged,
    )


def _file(run: Json, file: Json) -> Json:
    """Names of results and checkpoints are strangers' words."""
    return {
        **file,
        "name": ansi.shown(file["path"]),
        "address": f"/ui/v1/runs/{run['run_id']}/files/{quote(file['path'])}",
    }


def _following(query: list[tuple[str, str]], found: Json | None) -> str:
    """The query of the next page; empty: there is none."""
    if found is None or found["next_cursor"] is None:
        return ""
    return urlencode(
        [*((name, value) for name, value in query if name == "kind"), ("cursor", found["next_cursor"])]
    )

"""A run that exists already gets other labels, limits or zones. Only whoever has seen it as it is may change it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import VersionNeeded
from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.run_spec import RunSpec
from supervisor.api.shapes.runs.changes import MERGE_PATCH, ChangeBody
from supervisor.api.wire import etags
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import run_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.domain.errors import InvalidRequest
from supervisor.services.runs.altering import alter
from supervisor.services.views.run_view import Json

router = APIRouter(prefix="/v1/runs", tags=["actions"], route_class=Admitted)
OF_ANOTHER_GENERATION = {"spec", *RunSpec.model_fields} - set(ChangeBody.model_fields)


@router.patch("/{run_id}")
async def change_run(request: Request, run_id: str) -> Response:
    """Change labels, limits, or the zones of later attempts of a run, by a JSON merge patch. `If-Match` names the
    version that you have seen. What changes the training itself needs a resume with replace_spec."""
    read_query(NoParameters, request)
    versions = _versions(request)
    body = await _body(request)
    services, caller = services_of(request), caller_of(request)

    def work() -> Json:
        try:
            done = alter(services.parts, run_id, body.as_patch(), versions, caller)
        except InvalidRequest as error:
            error.errors = tuple((pointer.replace("#/spec/", "#/", 1), why) for pointer, why in error.errors)
            raise
        told = {"warnings": done.warnings, "before": done.before, "after": done.after}
        return {**services.queries.view(done.run), **told}

    return run_answer(await run_in_threadpool(work))


def _versions(request: Request) -> frozenset[int] | None:
    """Raises VersionNeeded, InvalidRequest. None = whatever is there may be changed."""
    lines = request.headers.getlist("if-match")
    if not lines:
        raise VersionNeeded(
            "Send the ETag of the run that you have read as If-Match, so that nobody else's change is overwritten; "
            "`If-Match: *` takes whatever is there."
        )
    wanted = etags.parse(lines)
    if wanted is None:
        raise InvalidRequest("If-Match is neither a list of entity tags in quotes nor `*`.")
    return etags.versions(wanted)


async def _body(request: Request) -> ChangeBody:
    """Raises InvalidRequest and its kin; with advice where a field was meant that cannot change under a run."""
    try:
        return await read_body(ChangeBody, request, kind=MERGE_PATCH)
    except InvalidRequest as error:
        names = [pointer[2:].partition("/")[0] for pointer, _ in error.errors]
        fixed = [name for name in dict.fromkeys(names) if name in OF_ANOTHER_GENERATION]
        if not fixed:
            raise
        raise InvalidRequest(
            f"{', '.join(fixed)}: what is trained does not change under a run; labels, limits and zones do. "
            "Stop the run and resume it with the other spec and replace_spec. Nothing was changed.",
            {"fields": fixed},
            [(f"#/{name}", "needs a resume with replace_spec") for name in fixed],
        ) from None

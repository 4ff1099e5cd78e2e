"""Changing one run: a page that says what will happen, a form that asks the API for it, and back to the run.

What the API refuses is said on the same page, with what was typed still in it. A form carries what its page has shown:
the machine and the results that are approved, the version that is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.forms import first, read_form
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping.run_limits import LIMITS, patch_of, shown_limits

Form = Mapping[str, list[str]]
NOTHING: Form = {}


async def ask(request: Request, api: Api) -> Response:
    return await _question(request, api, _deed(request), NOTHING)


async def do(request: Request, api: Api) -> Response:
    deed, form = _deed(request), await read_form(request)
    run_id = request.path_params["run_id"]
    try:
        did = await DEEDS[deed](api, f"/v1/runs/{run_id}", form)
    except Refused as refusal:
        if refusal.status in (404, 429):
            raise
        return await _question(request, api, deed, form, refusal)
    return rendering.go_to(f"/ui/runs/{quote(run_id)}?did={did}")


def _deed(request: Request) -> str:
    """The last word of the address, one of DEEDS."""
    path: str = request.scope["path"]
    return path.rpartition("/")[2]


async def _question(
    request: Request, api: Api, deed: str, form: Form, refusal: Refused | None = None
) -> Response:
    path = f"/v1/runs/{request.path_params['run_id']}"
    answer = await api.call("GET", path)
    spec: Json = (await api.get(f"{path}/spec"))["spec"] if deed == "change" else {}
    return await rendering.page(
        request,
        "run_change.html",
        200 if refusal is None else refusal.status,
        run=answer.json(),
        tab="",
        deed=deed,
        version=answer.headers.get("etag", ""),
        refusal=None if refusal is None else refusal.problem,
        typed={name: values[0] for name, values in form.items()},
        limits=LIMITS,
        shown=shown_limits(spec),
    )


# --- what each form asks for, and the word of its notice (run_actions.DID) --------------------------------------------


async def _stop(api: Api, path: str, form: Form) -> str:
    await api.call("POST", f"{path}/stop")
    return "stop"


async def _resume(api: Api, path: str, form: Form) -> str:
    rerun = first(form, "rerun") == "true"
    await api.call("POST", f"{path}/resume", body={"rerun": rerun})
    return "rerun" if rerun else "resume"


async def _approve(api: Api, path: str, form: Form) -> str:
    body: dict[str, Any] = {"machine_id": first(form, "machine_id")}
    giving_up = "accept_loss" in form
    if giving_up:
        body["accept_loss"] = first(form, "accept_loss")
    else:
        body["results_sha256"] = first(form, "results_sha256") or None
    await api.call("POST", f"{path}/approve", body=body)
    return "loss" if giving_up else "approve"


async def _change(api: Api, path: str, form: Form) -> str:
    spec = (await api.get(f"{path}/spec"))["spec"]
    patch = patch_of(spec, form)
    if not patch:
        return "same"
    answer = await api.call("PATCH", path, body=patch, headers={"if-match": first(form, "version")})
    return "change" if answer.json()["after"] else "same"


async def _purge(api: Api, path: str, form: Form) -> str:
    await api.call("POST", f"{path}/purge", body={"confirm": first(form, "confirm")})
    return "purge"


DEEDS: Mapping[str, Callable[[Api, str, Form], Awaitable[str]]] = {
    "stop": _stop,
    "resume": _resume,
    "approve": _approve,
    "change": _change,
    "purge": _purge,
}

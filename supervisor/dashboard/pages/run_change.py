"""Changing one run or many: a page that says what will happen, a form that asks the API for it, and the result.

A refusal for one run is shown on the same page, with what was typed still in it. A form carries what its page has
shown: the machine and the results that are approved, the version that is changed. Limits and zones that were not edited
are not in the patch; an emptied field requests the default. A value that cannot be read is sent as it was typed, for
the API to refuse by name.

For many runs the API receives the number that the person has seen; if the number of matching runs differs by then,
nothing is done and the page asks again. One request changes up to a thousand runs; after some seconds a button
continues with the rest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.pages.runs import FILTERS, Pairs, Wanted
from supervisor.dashboard.public_api import Api, Json, Query, Refused
from supervisor.dashboard.rendering import first, read_form

Form = Mapping[str, list[str]]


class Limit(NamedTuple):
    name: str  # in the spec's `limits`
    text: str
    hint: str
    kind: str = "float"


LIMITS = (
    Limit("budget_usd", "Budget, $", "all attempts since it was last started or resumed; empty: no budget"),
    Limit("max_runtime_s", "Training time at most, s", "since it was last started or resumed; empty: no limit"),
    Limit("deadline", "Deadline", "such as 2030-01-31T08:00:00Z; empty: none", "text"),
    Limit("max_attempts", "Attempts at most", "failures; preemptions do not count; empty: as in the settings", "int"),
    Limit("wait_for_capacity_s", "Wait for capacity at most, s", "then the run fails; empty: as in the settings"),
)
ACTIONS = ("stop", "resume", "retry", "drill", "approve", "change", "purge")
ZONES = "zones"
NOTHING: Form = {}
WITHIN_S = 10.0  # no further request to the API starts after this
NAMED = 12  # runs that are named; the others are counted
REFUSED_NAMED = 100
MANY_ACTIONS: Mapping[str, Mapping[str, str]] = {
    "stop": {
        "verb": "Stop",
        "meaning": "Each run saves a final checkpoint, as far as its grace period allows, and releases its machine; "
        "from then on it costs nothing. It can be resumed from that checkpoint. Runs that are over, stopping or "
        "waiting for an approval stay as they are.",
    },
    "resume": {
        "verb": "Resume",
        "meaning": "Each run continues from its newest checkpoint with its spec, as soon as there is a machine for it, "
        "and costs money again. Live and completed runs stay as they are.",
    },
}


async def ask(request: Request, api: Api) -> Response:
    return await _question(request, api, _action(request), NOTHING)


async def do(request: Request, api: Api) -> Response:
    action, form = _action(request), await read_form(request)
    run_id = request.path_params["run_id"]
    path = f"/v1/runs/{run_id}"
    try:
        done = await (_change(api, path, form) if action == "change" else _post(api, path, action, form))
    except Refused as refusal:
        if refusal.status in (404, 429):
            raise
        return await _question(request, api, action, form, refusal)
    return rendering.go_to(f"/ui/runs/{quote(run_id)}?did={done}")


def _action(request: Request) -> str:
    """The last word of the address, one of ACTIONS."""
    path: str = request.scope["path"]
    return path.rpartition("/")[2]


async def _question(request: Request, api: Api, action: str, form: Form, refusal: Refused | None = None) -> Response:
    path = f"/v1/runs/{request.path_params['run_id']}"
    answer = await api.call("GET", path)
    spec: Json = (await api.get(f"{path}/spec"))["spec"] if action == "change" else {}
    teardown: Json = await api.get(f"{path}/teardown") if action == "approve" else {}
    return await rendering.tab(
        request,
        "run_change.html",
        answer.json(),
        "",
        200 if refusal is None else refusal.status,
        action=action,
        version=answer.headers.get("etag", ""),
        refusal=None if refusal is None else refusal.problem,
        typed={name: values[0] for name, values in form.items()},
        limits=LIMITS,
        shown=shown_limits(spec),
        teardown=teardown,
    )


def shown_limits(spec: Mapping[str, Any]) -> dict[str, str]:
    """The text of each field; "" = the default applies."""
    limits = spec.get("limits", {})
    shown = {limit.name: _text(limits.get(limit.name)) for limit in LIMITS}
    return {**shown, ZONES: ", ".join(spec.get(ZONES, []))}


def patch_of(spec: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """A merge patch (RFC 7396); empty = nothing was changed."""
    shown, patch = shown_limits(spec), dict[str, Any]()
    changed = {
        limit.name: _value(limit.kind, first(form, limit.name))
        for limit in LIMITS
        if limit.name in form and first(form, limit.name) != shown[limit.name]
    }
    if changed:
        patch["limits"] = changed
    if ZONES in form:
        zones = first(form, ZONES).replace(",", " ").split()
        if zones != list(spec.get(ZONES, [])):
            patch[ZONES] = zones
    return patch


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _value(kind: str, text: str) -> object:
    if not text:
        return None
    try:
        number = float(text) if kind == "float" else int(text) if kind == "int" else text
    except ValueError:
        return text
    infinite = isinstance(number, float) and number - number != 0  # JSON cannot hold it
    return text if infinite else number


async def _change(api: Api, path: str, form: Form) -> str:
    """Returns the word of the notice (run_rows.DONE), as the next function does."""
    patch = patch_of((await api.get(f"{path}/spec"))["spec"], form)
    if not patch:
        return "same"
    answer = await api.call("PATCH", path, body=patch, headers={"if-match": first(form, "version")})
    return "change" if answer.json()["after"] else "same"


async def _post(api: Api, path: str, action: str, form: Form) -> str:
    word = action
    body: Json | None = None
    if action == "resume":
        rerun = first(form, "rerun") == "true"
        word, body = "rerun" if rerun else "resume", {"rerun": rerun}
    elif action == "purge":
        body = {"confirm": first(form, "confirm")}
    elif action == "approve" and "accept_loss" in form:
        word, body = "loss", {name: first(form, name) for name in ("machine_id", "accept_loss")}
    elif action == "approve":
        results = first(form, "results_sha256") or None
        body = {"machine_id": first(form, "machine_id"), "results_sha256": results}
        if first(form, "verb"):
            body["verb"] = first(form, "verb")
        if first(form, "meter_stopped") == "true":
            word, body["meter_stopped"] = "ended", True
    await api.call("POST", f"{path}/{action}", body=body)
    return word


async def ask_many(request: Request, api: Api) -> Response:
    """The question; nothing is done yet."""
    pairs = _filter(request.query_params.multi_items())
    return await _many_question(request, api, pairs, _back(request.query_params.get("back", "")))


async def do_many(request: Request, api: Api) -> Response:
    """After the form of the question, or after the form of a result, to continue with the rest."""
    form = await read_form(request)
    pairs = _filter([(name, value) for name, values in form.items() for value in values])
    back, number, cursor = _back(first(form, "back")), first(form, "expect"), first(form, "cursor")
    expect = int(number) if re.fullmatch("[0-9]{1,9}", number) else None
    if not pairs or (expect is None and not cursor):
        return await _many_question(request, api, pairs, back)
    action = _many_action(request)
    try:
        done = await _done(api, action, pairs, expect, cursor)
    except Refused as refusal:
        if refusal.code != "COUNT_DIFFERS":
            raise
        return await _many_question(request, api, pairs, back, differs=str(refusal))
    return await _many_page(request, "many_done.html", done, done=done, pairs=pairs, back=back)


async def _many_question(request: Request, api: Api, pairs: Pairs, back: str, *, differs: str = "") -> Response:
    """Where no run was selected the page says so: without a filter the API would have to assume that all are meant."""
    action = _many_action(request)
    preview = await _page(api, action, pairs, {"dry_run": True}) if pairs else None
    return await _many_page(
        request,
        "many.html",
        preview or {"runs": [], "changed": 0, "refused": []},
        409 if differs else 200,
        preview=preview,
        pairs=pairs,
        back=back,
        differs=differs,
        everything=pairs == (("all", "true"),),
    )


async def _many_page(request: Request, template: str, answer: Json, status: int = 200, **values: Any) -> Response:
    action = _many_action(request)
    return await rendering.page(
        request,
        template,
        status,
        action=action,
        **MANY_ACTIONS[action],
        named=answer["runs"][:NAMED],
        unnamed=max(0, answer["changed"] - NAMED),
        refused=answer["refused"][:REFUSED_NAMED],
        refused_more=max(0, len(answer["refused"]) - REFUSED_NAMED),
        **values,
    )


async def _done(api: Api, action: str, pairs: Pairs, expect: int | None, cursor: str) -> Json:
    """The responses to all requests as one; `next_cursor`: of the rest, None = there is none. Raises Refused."""
    until = time.monotonic() + WITHIN_S
    body: Json = {} if cursor or expect is None else {"expect": expect}
    done = await _page(api, action, [*pairs, ("cursor", cursor)] if cursor else pairs, body)
    while done["next_cursor"] is not None and time.monotonic() < until:
        more = await _page(api, action, [*pairs, ("cursor", done["next_cursor"])], {})
        for name in ("changed", "unchanged", "refused", "runs"):
            done[name] += more[name]
        done["next_cursor"] = more["next_cursor"]
    return done


async def _page(api: Api, action: str, query: Query, body: Json) -> Json:
    answer: Json = await api.post(f"/v1/runs/{action}", body, query)
    return answer


def _many_action(request: Request) -> str:
    action = str(request.path_params["action"])
    if action not in MANY_ACTIONS:
        raise HTTPException(404)
    return action


def _filter(given: Sequence[tuple[str, str]]) -> Pairs:
    return tuple((name, value) for name, value in given if name in (*FILTERS, "all") and value)


def _back(address: str) -> str:
    return address if rendering.is_ours(address) else Wanted().address()

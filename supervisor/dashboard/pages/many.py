"""Stop or resume many runs: what it would be, the question with its number, and what became of it.

The API is told the number that the person has seen; where others match by then, nothing is done and the question is
asked again. It does a thousand runs in one request; what is left after some seconds is gone on with by a button.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.forms import first, read_form
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping.run_filter import FILTERS, Pairs, Wanted

WITHIN_S = 10.0  # no further request to the API is begun after this
NAMED = 12  # runs that are named; the others are counted
REFUSED_NAMED = 100
DEEDS: Mapping[str, Mapping[str, str]] = {
    "stop": {
        "verb": "Stop",
        "meaning": "Each saves a last checkpoint, as far as its grace allows, and gives its machine back; from then on "
        "it costs nothing. It can be resumed from that checkpoint. Runs that are over, being stopped or waiting for an "
        "approval stay as they are.",
    },
    "resume": {
        "verb": "Resume",
        "meaning": "Each goes on from its newest checkpoint with the spec that it has, as soon as there is a machine "
        "for it, and costs money again. Live and completed runs stay as they are.",
    },
}


async def ask(request: Request, api: Api) -> Response:
    """The question; nothing is done yet."""
    deed, given = _deed(request), request.query_params.multi_items()
    back = _back(request.query_params.get("back", ""))
    return await _question(request, api, deed, _filter(given), back)


async def do(request: Request, api: Api) -> Response:
    """The form of the question was sent; or that of a result, to go on with what it left."""
    deed, form = _deed(request), await read_form(request)
    pairs = _filter([(name, value) for name, values in form.items() for value in values])
    back, seen, cursor = _back(first(form, "back")), first(form, "expect"), first(form, "cursor")
    expect = int(seen) if re.fullmatch("[0-9]{1,9}", seen) else None
    if not pairs or (expect is None and not cursor):
        return await _question(request, api, deed, pairs, back)
    try:
        done = await _done(api, deed, pairs, expect, cursor)
    except Refused as refusal:
        if refusal.code != "COUNT_DIFFERS":
            raise
        return await _question(request, api, deed, pairs, back, str(refusal))
    return await rendering.page(
        request, "many_done.html", done=done, pairs=pairs, back=back, **_words(deed), **_named(done)
    )


async def _question(
    request: Request, api: Api, deed: str, pairs: Pairs, back: str, differs: str = ""
) -> Response:
    """Where nothing was selected it says so: without a filter the API would have to be told that all are meant."""
    told: Json | None = None
    if pairs:
        told = await _page(api, deed, pairs, {"dry_run": True})
    return await rendering.page(
        request,
        "many.html",
        409 if differs else 200,
        told=told,
        pairs=pairs,
        back=back,
        differs=differs,
        everything=pairs == (("all", "true"),),
        **_words(deed),
        **_named(told or {"runs": [], "changed": 0, "refused": []}),
    )


async def _done(api: Api, deed: str, pairs: Pairs, expect: int | None, cursor: str) -> Json:
    """The answers of all requests as one; `next_cursor`: of what is left, None = nothing. Raises Refused."""
    until = time.monotonic() + WITHIN_S
    body: Json = {} if cursor or expect is None else {"expect": expect}
    done = await _page(api, deed, [*pairs, ("cursor", cursor)] if cursor else pairs, body)
    while done["next_cursor"] is not None and time.monotonic() < until:
        more = await _page(api, deed, [*pairs, ("cursor", done["next_cursor"])], {})
        for name in ("changed", "unchanged", "refused", "runs"):
            done[name] += more[name]
        done["next_cursor"] = more["next_cursor"]
    return done


async def _page(api: Api, deed: str, query: Sequence[tuple[str, str]], body: Json) -> Json:
    answer: Json = (await api.call("POST", f"/v1/runs/{deed}", query, body)).json()
    return answer


def _deed(request: Request) -> str:
    deed = str(request.path_params["deed"])
    if deed not in DEEDS:
        raise HTTPException(404)
    return deed


def _filter(given: Sequence[tuple[str, str]]) -> Pairs:
    return tuple((name, value) for name, value in given if name in (*FILTERS, "all") and value)


def _back(address: str) -> str:
    return address if rendering.is_ours(address) else Wanted().address()


def _words(deed: str) -> dict[str, Any]:
    return {"deed": deed, **DEEDS[deed]}


def _named(told: Json) -> dict[str, Any]:
    return {
        "named": told["runs"][:NAMED],
        "unnamed": max(0, told["changed"] - NAMED),
        "refused": told["refused"][:REFUSED_NAMED],
        "refused_more": max(0, len(told["refused"]) - REFUSED_NAMED),
    }

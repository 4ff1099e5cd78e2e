"""What was learned of each zone: room, refusals and their pauses, machines that were taken away."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api
from supervisor.dashboard.shaping import offers


async def show(request: Request, api: Api) -> Response:
    """`?state=&region=&shape=&market=&sort=`. Raises SignInNeeded, Refused."""
    found = await api.get("/v1/zones")
    chosen = offers.choose(found["zones"], request.query_params)
    filters = {**chosen.chosen, "sort": chosen.order}

    def where(name: str, value: str) -> str:
        """This page with one of its choices made otherwise."""
        query = {**filters, name: value}
        return "/ui/zones?" + urlencode([(key, text) for key, text in query.items() if text])

    return await rendering.page(
        request,
        "zones.html",
        offers=chosen,
        total=len(found["zones"]),
        window_s=found["window_s"],
        where=where,
        look=offers.look,
        market=offers.market,
        meanings=offers.MEANINGS,
        orders=offers.ORDERS,
    )

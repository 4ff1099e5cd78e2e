"""The providers and their profiles: one part for each, and one more for each zone whose profile differs.

The words come from the API, so a terminal shows the same. The looks are of this page: a color never stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.words import look_of
from supervisor.wording.figures import Look
from supervisor.wording.profile import SURVIVAL_LOOKS

Part = tuple[str, str, Json]  # provider, zone ("" = all), profile


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    answer = await api.get("/v1/providers")
    return await rendering.page(
        request, "providers.html", profiles=list(parts(answer["providers"])), look=survival_look
    )


def parts(providers: Sequence[Json]) -> Iterator[Part]:
    for provider in providers:
        yield provider["name"], "", provider["profile"]
        for place in provider["places"]:
            if place["profile"]:
                yield provider["name"], place["zone"], place["profile"]


def survival_look(text: str) -> Look:
    return look_of(text, SURVIVAL_LOOKS)

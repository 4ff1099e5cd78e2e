"""Forms as plain pages send them: application/x-www-form-urlencoded, a few fields."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.requests import Request

MOST_FIELDS = 2000


async def read_form(request: Request) -> Mapping[str, list[str]]:
    """name -> values. What is no such form is an empty one."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        return parse_qs(
            (await request.body()).decode(),
            keep_blank_values=True,
            max_num_fields=MOST_FIELDS,
            errors="replace",
        )
    except ValueError:
        return {}


def first(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0].strip()

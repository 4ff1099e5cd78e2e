"""The same of who may ask, who is told, and what people change while a run lives."""

from __future__ import annotations

from collections.abc import Callable

from tests.api.recorder import Asking
from tests.services.bed import COMMAND, Bed

RUN = "/v1/runs/digits-7"


def tokens(bed: Bed, ask: Asking) -> None:
    made = ask("POST", "/v1/tokens", {"name": "ci", "owner": "vision", "scopes": ["runs:read", "runs:write"]})
    ask("POST", "/v1/tokens", {"name": "ci", "scopes": ["runs:all"]})
    ask("GET", "/v1/tokens")
    ask("GET", "/v1/tokens?owner=vision")
    ask("DELETE", f"/v1/tokens/{made.json()['token_id']}")
    ask("DELETE", "/v1/tokens/tok_0")


def changes(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7", {**COMMAND, "limits": {"budget_usd": 25.0}})
    change = {"labels": {"team": "vision"}, "limits": {"budget_usd": 50.0}, "zones": ["local-b"]}
    ask("PATCH", RUN, change)
    ask("PATCH", RUN, change, headers={"If-Match": ask("GET", RUN).headers["etag"]})


SCENES: tuple[Callable[[Bed, Asking], None], ...] = (tokens, changes)

"""The rows of runs that changed, each made once for all pages that show it.

Whoever is told of an event may see its run, and a row shows everybody the same: so the first page that needs it asks
the API, with its own token, and the others wait for what it gets. Where it gets nothing, the next one asks itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused, SignInNeeded

KEPT = 256
TEMPLATE = "runs_row.html"


class Rows:
    """Used on the event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: OrderedDict[tuple[str, str], asyncio.Task[str]] = OrderedDict()

    async def made(self, api: Api, run_id: str, event_id: str) -> str:
        """The row as it is after this event, or later; "" = it could not be had."""
        key = run_id, event_id
        while (making := self._made.get(key)) is not None:
            # Shielded: it is made for all, whoever goes away meanwhile.
            if row := await asyncio.shield(making):
                return row
            if self._made.get(key) is making:
                del self._made[key]
        making = self._made[key] = asyncio.create_task(self._make(api, run_id))
        if len(self._made) > KEPT:
            self._made.popitem(last=False)
        return await asyncio.shield(making)

    async def _make(self, api: Api, run_id: str) -> str:
        try:
            run = await api.get(f"/v1/runs/{run_id}")
        except (Refused, SignInNeeded):
            return ""
        return await run_in_threadpool(self._rendered, run)

    def _rendered(self, run: Json) -> str:
        return rendering.environment().get_template(TEMPLATE).render(run=run, now=self._now())

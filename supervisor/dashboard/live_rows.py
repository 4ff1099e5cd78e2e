"""The rows of runs that changed, each made once for all pages that show it.

Whoever is told of an event may see its run, and a row shows everybody the same: so the first page that needs it asks
the API, with its own token, and the others wait for what it gets. Where it gets nothing, the next one asks itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from starlette.concurrency import run_in_threadpool

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused, SignInNeeded

LOG = logging.getLogger(__name__)
KEPT = 256
TEMPLATE = "runs_row.html"
Making = asyncio.Task[dict[str, str] | None]


class Rows:
    """Used on the event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: OrderedDict[tuple[str, str], Making] = OrderedDict()

    async def made(self, api: Api, changed: Mapping[str, str]) -> dict[str, str]:
        """`changed`: run -> its last event. Run -> its row as it is after that event, or later; a run that is gone, or
        that could not be had, is left out."""
        rows: dict[str, str] = {}
        for key in changed.items():
            while key[0] not in rows and (making := self._made.get(key)) is not None:
                # Shielded: it is made for all, whoever goes away meanwhile.
                if (made := await asyncio.shield(making)) is not None:
                    rows[key[0]] = made.get(key[0], "")
                elif self._made.get(key) is making:
                    del self._made[key]
        missing = {run_id: event_id for run_id, event_id in changed.items() if run_id not in rows}
        if missing:
            rows |= await self._begin(api, missing) or {}
        return {run_id: row for run_id, row in rows.items() if row}

    async def _begin(self, api: Api, missing: Mapping[str, str]) -> dict[str, str] | None:
        making = asyncio.create_task(self._make(api, list(missing)))
        for key in missing.items():
            self._made[key] = making
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        return await asyncio.shield(making)

    async def _make(self, api: Api, run_ids: Sequence[str]) -> dict[str, str] | None:
        """None: the API refused. Raises nothing: a row that cannot be shown would end the streams of all pages, again
        and again, as they come back; they look instead, and the page says what is wrong."""
        asked = [("run_id", run_id) for run_id in run_ids]
        try:
            found = await api.get("/v1/runs", [*asked, ("include", "sparkline")])
            return await run_in_threadpool(self._rendered, found["runs"])
        except (Refused, SignInNeeded):
            return None
        except Exception:
            LOG.exception("The rows of changed runs cannot be made.")
            return {}

    def _rendered(self, runs: Sequence[Json]) -> dict[str, str]:
        template, now = rendering.environment().get_template(TEMPLATE), self._now()
        return {run["run_id"]: template.render(run=run, now=now) for run in runs}

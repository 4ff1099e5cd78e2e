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
from supervisor.dashboard.live.frames import framed
from supervisor.dashboard.public_api import Api, Json, Refused, SignInNeeded
from supervisor.domain.access.plaintext import visible

LOG = logging.getLogger(__name__)
KEPT, FRESH_S = 256, 2.0
TEMPLATE = "runs_row.html"
Making = asyncio.Task[dict[str, bytes] | None]


class Rows:
    """Used on the event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: OrderedDict[tuple[str, str], tuple[Making, float]] = OrderedDict()

    async def made(self, api: Api, changed: Mapping[str, str]) -> dict[str, bytes]:
        """`changed`: run -> its last event. Run -> the event with its row as it is after that, or later; a run
        that is gone, or that could not be had, is left out."""
        rows: dict[str, bytes] = {}
        for key in changed.items():
            while key[0] not in rows and (making := self._fresh(key)) is not None:
                # Shielded: it is made for all, whoever goes away meanwhile.
                if (made := await asyncio.shield(making)) is not None:
                    rows[key[0]] = made.get(key[0], b"")
                elif self._fresh(key) is making:
                    del self._made[key]
        missing = {run_id: event_id for run_id, event_id in changed.items() if run_id not in rows}
        if missing:
            rows |= await self._begin(api, missing) or {}
        return {run_id: row for run_id, row in rows.items() if row}

    def _fresh(self, key: tuple[str, str]) -> Making | None:
        """A page that comes back is told of events of before: the row of then may be old."""
        making, begun = self._made.get(key, (None, 0.0))
        return making if asyncio.get_running_loop().time() - begun < FRESH_S else None

    async def _begin(self, api: Api, missing: Mapping[str, str]) -> dict[str, bytes] | None:
        making = asyncio.create_task(self._make(api, list(missing)))
        for key in missing.items():
            self._made[key] = making, asyncio.get_running_loop().time()
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        return await asyncio.shield(making)

    async def _make(self, api: Api, run_ids: Sequence[str]) -> dict[str, bytes] | None:
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

    def _rendered(self, runs: Sequence[Json]) -> dict[str, bytes]:
        template, now = rendering.environment().get_template(TEMPLATE), self._now()
        rows = ((run["run_id"], visible(template.render(run=run, now=now))) for run in runs)
        return {run_id: framed(f"run-{run_id}", row) for run_id, row in rows}

"""What a run was asked for, and what its machines are started with.

A spec is told as it is stored, so that it can be submitted again; what looks like the value of a secret, which a spec
holds only where `allow_plain_secrets` let it in, is left out, and `withheld` says where. A launch is made again by the
plan's preview, from the run as it stands now: what was really sent then is kept by nobody, for it holds the nonce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supervisor.domain.attempt import Try
from supervisor.domain.run import Run
from supervisor.ports.provider import LaunchRejected, NotSupported
from supervisor.services.parts import Parts
from supervisor.services.plan.plan import Preview
from supervisor.services.plan.plan_view import MADE_AT_LAUNCH
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.spec_secrets import hidden, shown_spec
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json, placement_json


def show_spec(parts: Parts, queries: Queries, run_id: str) -> Json:
    """`withheld`: JSON pointers of values that are dots here. Raises NotFound."""
    run = queries.find(run_id)
    stored = parts.store.spec(run.key)
    shown = shown_spec(stored)
    withheld = list(_differing("#", stored, shown))
    return {"run_id": run.run_id, "generation": run.generation, "spec": shown, "withheld": withheld}


def show_launch(parts: Parts, queries: Queries, preview: Preview, run_id: str) -> Json:
    """Of the newest request for a machine. `launch` None: `why` says why there is nothing to show. Raises NotFound."""
    run = queries.find(run_id)
    newest = max(parts.store.tries(run.key), key=lambda one: one.requested_at, default=None)
    launch, why = _launch(parts, preview, run, newest)
    return {
        "run_id": run.run_id,
        "attempt": None if newest is None else newest.attempt,
        "machine": None if newest is None else newest.machine_name,
        "placement": None if newest is None else placement_json(newest.placement, parts.gpu),
        "requested_at": None if newest is None else rfc3339.text(newest.requested_at),
        "launch": launch,
        "why": why,
        "made_at_launch": list(MADE_AT_LAUNCH),
    }


def _launch(parts: Parts, preview: Preview, run: Run, newest: Try | None) -> tuple[Json | None, str]:
    if newest is None:
        return None, "no machine was asked for yet"
    if run.provider not in parts.providers or parts.cells[run.provider] != run.cell:
        return None, "its machines belong to another supervisor's place"
    try:
        return dict(preview(run, newest, hidden(parts.store.spec(run.key)))), ""
    except (LaunchRejected, NotSupported) as error:
        return None, str(error)


def _differing(pointer: str, stored: Any, shown: Any) -> Iterator[str]:
    if isinstance(stored, dict):
        for name, value in stored.items():
            yield from _differing(f"{pointer}/{_escaped(name)}", value, shown[name])
    elif isinstance(stored, list):
        for number, value in enumerate(stored):
            yield from _differing(f"{pointer}/{number}", value, shown[number])
    elif stored != shown:
        yield pointer


def _escaped(name: str) -> str:
    """RFC 6901."""
    return name.replace("~", "~0").replace("/", "~1")

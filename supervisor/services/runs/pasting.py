"""The cell that a person pastes into a notebook, so that the machine of a run begins.

Each cell has a ticket that lives for minutes and is good for one claim. A new one is made when somebody asks after the
last one is about to expire, so nothing is stored, and no cell waits anywhere.
"""

from __future__ import annotations

from typing_extensions import TypedDict

from supervisor.contract.identifiers import request_id
from supervisor.domain.errors import NothingToPaste, Unavailable
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.claims import PastedCell
from supervisor.ports.provider import LaunchFailed, LaunchRequest, NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import find_run
from supervisor.services.views.formats import Time, time_text


class NotebookCell(TypedDict):
    """`cell`: Python, for one cell. `expires_at`: of its ticket; then ask again. `notebook`: the same as an .ipynb.
    `url`: of a new notebook; null: not known. `wanted`: what to choose there before it runs; null: nothing."""

    run_id: str
    launch_id: str
    cell: str
    expires_at: Time
    notebook: str
    url: str | None
    wanted: str | None


def notebook_cell(parts: Parts, run_id: str) -> NotebookCell:
    """Raises NotFound, NothingToPaste, Unavailable."""
    run = find_run(parts, run_id)
    try_ = run.open_try
    if run.status != Status.LAUNCHING or try_ is None or run.live_attempt is not None or run.stop is not None:
        raise _nothing(run, f"it is {run.status}")
    provider: object = parts.providers.get(try_.placement.provider)
    if not isinstance(provider, PastedCell):
        raise _nothing(run, f"no person starts machines of {try_.placement.provider}")
    request = LaunchRequest(
        name=try_.machine_name,
        request_id=request_id(parts.store.supervisor_id, run.run_id, run.generation, try_.attempt, try_.number),
        placement=try_.placement,
        supervisor_id=parts.store.supervisor_id,
        run_id=run.run_id,
        launch_id=try_.launch_id,
        machine_max_s=run.policy.limits.machine_max_s,
    )
    try:
        cell = provider.cell(request)
    except (NotSupported, LaunchFailed) as error:
        raise _nothing(run, str(error)) from None
    except ProviderUnavailable as error:
        raise Unavailable(f"The cell of {run.run_id} cannot be made now: {error}.", {"run_id": run.run_id}) from error
    return {
        "run_id": run.run_id,
        "launch_id": try_.launch_id,
        "cell": cell.text,
        "expires_at": time_text(cell.expires_at),
        "notebook": cell.notebook,
        "url": cell.url or None,
        "wanted": cell.wanted or None,
    }


def _nothing(run: Run, why: str) -> NothingToPaste:
    return NothingToPaste(
        f"{run.run_id} waits for no notebook: {why}.", {"run_id": run.run_id, "status": str(run.status)}
    )

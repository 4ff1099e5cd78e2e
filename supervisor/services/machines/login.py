"""How a person gets a shell on the machine of a live run: the platform's own command for it, and the machine's folder.

Nothing is opened here. The person's own login counts: the supervisor hands out no access.
"""

from __future__ import annotations

from typing_extensions import TypedDict

from supervisor.domain.errors import EvidenceNotFound, Unavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries


class MachineLogin(TypedDict):
    """`command`: opens a shell there; null: the machine is the supervisor's own computer. `folder`: of the machine,
    with its output in work/output.log; null: it has none."""

    run_id: str
    machine: str
    zone: str
    command: str | None
    folder: str | None


def machine_login(parts: Parts, queries: Queries, run_id: str) -> MachineLogin:
    """Raises NotFound, EvidenceNotFound (no live machine), Unavailable."""
    run = queries.find(run_id)
    if run.live_attempt is None:
        raise EvidenceNotFound(f"{run.run_id} has no machine now.", {"run_id": run.run_id})
    ref = run.live_attempt.ref
    try:
        login = parts.platform.login(ref)
    except ProviderUnavailable as error:
        raise Unavailable(f"The machine of {run.run_id}: {error}.", {"run_id": run.run_id}) from error
    return {
        "run_id": run.run_id,
        "machine": ref.name,
        "zone": ref.zone,
        "command": login.command or None,
        "folder": login.folder or None,
    }

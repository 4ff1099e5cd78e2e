"""The machines that runs keep switched off (`keep: machine`), as the rows have them: no provider is asked.

Whether such a machine still exists is known to the loop, which follows it in each tick.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.services.parts import Parts
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.wording.forecast import kept_machine_text


class KeptShown(TypedDict):
    """`usd_per_h`: of its disks while it is off, null = unknown. `off_since`: null: it is being switched off.
    `refusal`: why its last start failed, "" = none did. `given_up`: why it is being deleted, "" = it stays."""

    machine: str
    run_id: str
    run_status: str
    provider: str
    zone: str
    shape: str
    spot: bool
    off_since: formats.Time | None
    deleted_at: Annotated[formats.Time, Field(description="at the latest")]
    usd_per_h: float | None
    refusal: str
    given_up: str
    text: str


class KeptList(TypedDict):
    machines: list[KeptShown]


def kept_json(parts: Parts, caller: Caller) -> KeptList:
    """Raises StoreDown."""
    runs = (run for cell in dict.fromkeys(parts.cells.values()) for run in parts.store.active(cell, {})[0])
    now, machines = parts.clock.now(), list[KeptShown]()
    for run in runs:
        if run.kept is None or not caller.owns(run.owner):
            continue
        item, kept = run.kept
        machines.append(
            {
                "machine": item.ref.name,
                "run_id": run.run_id,
                "run_status": run.status,
                "provider": item.ref.provider,
                "zone": item.ref.zone,
                "shape": kept.placement.shape,
                "spot": kept.placement.spot,
                "off_since": formats.maybe_time(kept.off_at),
                "deleted_at": formats.time_text(item.until),
                "usd_per_h": usd(kept.usd_per_h),
                "refusal": kept.refusal,
                "given_up": kept.given_up,
                "text": kept_machine_text(run, now),
            }
        )
    return {"machines": sorted(machines, key=lambda shown: (shown["run_id"], shown["machine"]))}

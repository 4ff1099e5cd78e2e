"""Does an old run still live? Two trainings of one run would overwrite each other, so every sign of life refuses.

Signs: a heartbeat or a lock that the store saw written a short while ago, and a machine that carries the run's name.
The machine's clock is never asked; what cannot be read is no proof that nobody is there.
"""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.contract.identifiers import label_value
from supervisor.domain.errors import OldRunAlive, Unavailable
from supervisor.domain.machines.machine import OLD_RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineState
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.migration.oldrun import (
    HEARTBEAT,
    MANIFEST,
    OWNER_LOCK,
    RESTART_LOCK,
    STATE,
    STOP,
    TERMINAL,
    OldRun,
)
from supervisor.services.parts import Parts
from supervisor.wording.figures import age_text, clip

# The older runner's own limits: HEARTBEAT_STALE_SEC, OWNER_LOCK_STALE_SEC; a restart takes as long as a boot may.
FRESH_S = {HEARTBEAT: 600.0, OWNER_LOCK: 300.0, RESTART_LOCK: 600.0}


def refuse_alive(parts: Parts, old: OldRun) -> None:
    """Raises OldRunAlive, and Unavailable when the machines cannot be read."""
    now = max([old.now, *(info.updated for info in old.seen.values())])
    for name, limit_s in FRESH_S.items():
        info = old.seen.get(name)
        if info is not None and now - info.updated < limit_s:
            age_s = max(0.0, now - info.updated)
            raise OldRunAlive(
                f"The old run may still be going on: its {name} was written {age_text(age_s)} ago. Stop it the old "
                f"way, and import it in {age_text(limit_s - age_s)}.",
                {"file": name, "age_s": round(age_s, 1), "limit_s": limit_s},
            )
    for machine in _machines(parts, old):
        raise OldRunAlive(
            f"A machine of the old run is still there: {machine.name} in {machine.zone} ({machine.state}). Two must "
            "not train the same: delete it the old way, then import.",
            {"machine": machine.name, "zone": machine.zone},
        )


def warnings(old: OldRun, run_id: str, sees_cloud: bool) -> tuple[str, ...]:
    """`sees_cloud`: this supervisor's machines are in the cloud, so that the old one's would have been seen."""
    found = []
    if not sees_cloud and old.place.root.startswith("gs://"):
        found.append(
            "This supervisor sees no machines of Google Cloud: make sure that none of the old run is left there."
        )
    if old.state == "COMPLETE":
        found.append("The old run was COMPLETE: resume it only if it is to train on.")
    elif old.state not in TERMINAL and STOP not in old.seen:
        found.append(
            f"The old run is {old.state or 'in an unknown state'} and has no .stop: the older reconciler may start it "
            f"again. Switch that off, or put a .stop there: "
            f"echo stop | gcloud storage cp - {clip(old.place.url, 200)}/.stop"
        )
    if run_id != old.place.old_id:
        found.append(f"It is called {run_id} here.")
    return tuple(found)


def _machines(parts: Parts, old: OldRun) -> Iterator[Machine]:
    names = set(_names(old))
    labels = {old.place.old_id, label_value(old.place.old_id)}
    for provider in parts.providers.values():
        try:
            listing = provider.machines()
        except ProviderUnavailable as error:
            raise Unavailable(
                f"It is not known whether a machine of the old run is still there: {clip(str(error), 200)}. Try again."
            ) from error
        for machine in listing.machines:
            labeled = machine.labels.get(OLD_RUN_LABEL) in labels and SUPERVISOR_LABEL not in machine.labels
            if (machine.name in names or labeled) and machine.state is not MachineState.ENDED:
                yield machine
        if listing.unreachable:
            away = ", ".join(sorted(listing.unreachable)[:5])
            raise Unavailable(
                f"A machine of the old run may be in a zone that does not answer ({away}). Try again."
            )


def _names(old: OldRun) -> Iterator[str]:
    """Of the machines that it had, as far as they were written down."""
    records = [old.told.get(name, {}) for name in (STATE, MANIFEST)]
    records += [
        record for name, several in old.records.items() if name.startswith("instances/") for record in several
    ]
    for record in records:
        for key in ("instance_name", "instance", "owner_id"):
            value = record.get(key)
            if isinstance(value, str) and value not in ("", "unknown"):
                yield value

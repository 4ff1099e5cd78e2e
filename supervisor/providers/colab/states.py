"""What is known of a session of Colab becomes a machine. Pure.

Colab gives no notice, no signal, and no record of an end. A session is seen by its claim (the first thing that its
notebook says), by what it asks of the supervisor since, and, where the client is signed in, by the client's list. So
its end is only ever a doubt: it counts where its agent's beats are missing too (lifecycle/phases/running).
"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.domain.causes import Cause
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRecord, MachineState
from supervisor.ports.claims import Claim
from supervisor.providers.colab.kept import Kept
from supervisor.providers.colab.settings import CELL, gpus
from supervisor.wording.figures import age_text

SILENT_S = 180.0  # two beats of a quiet agent, which pushes one each minute, and the time of a request
CAP_SHARE = 0.9  # NB5: an end so near to the cap is the cap's
OPEN = "open a Colab notebook"


@dataclass(frozen=True, slots=True)
class Sighting:
    """`claim` None: no notebook has come. `listed`: the client lists its session; None = there is no client, or its
    list says nothing about this one. `watched_since`: since when this process could have seen its requests."""

    kept: Kept
    claim: Claim | None
    listed: bool | None
    watched_since: float

    @property
    def machine_id(self) -> str:
        """The name that the notebook gave itself; "" = none has come."""
        return "" if self.claim is None else self.claim.claimant

    def has_id(self, machine_id: str | None) -> bool:
        return not machine_id or machine_id == self.machine_id


def needs(kept: Kept) -> str:
    """What a person must do for it to begin; "" = nothing."""
    if kept.way != CELL:
        return ""
    hardware = gpus(kept.shape)
    runtime = f" with a {hardware}" if hardware else ""
    return f"{OPEN}{runtime} and run cell 1: `spot cell {kept.run_id}`"


def machine_of(sighting: Sighting, cap_s: float, now: float) -> Machine | None:
    """None: it is gone, and nothing says why. Only a session of the client can be: it never claimed, and the client's
    list has it no more."""
    kept, claim = sighting.kept, sighting.claim
    if claim is not None:
        return _machine(sighting, MachineState.UP, claim.at, doubt=_doubt(sighting, claim, cap_s, now))
    if kept.way == CELL or not kept.started_at:
        what = needs(kept) or "its session is being created"
        return _machine(
            sighting, MachineState.ASKED, kept.asked_at, detail=what, needs=needs(kept), queued=bool(needs(kept))
        )
    if sighting.listed is False:
        return None
    return _machine(sighting, MachineState.STARTING, kept.started_at, detail="its notebook has not claimed its job yet")


def _doubt(sighting: Sighting, claim: Claim, cap_s: float, now: float) -> MachineRecord | None:
    """Why it may have ended; None = nothing says so. A session in the client's list lives, however silent it is."""
    if sighting.listed:
        return None
    silent_s = now - max(claim.seen_at, sighting.watched_since)
    if sighting.listed is None and silent_s < SILENT_S:
        return None
    age_s = now - claim.at
    seen = (
        "the client's list has no such session"
        if sighting.listed is False
        else f"its notebook asks for nothing since {age_text(silent_s)}"
    )
    if age_s >= CAP_SHARE * cap_s:
        return MachineRecord(
            Cause.TIME_LIMIT, f"{seen}, {age_text(age_s)} after its start: the cap is {age_text(cap_s)}"
        )
    return MachineRecord(
        Cause.PREEMPTED, f"{seen}, {age_text(age_s)} after its start: Colab ended it, or the notebook was closed"
    )


def _machine(
    sighting: Sighting,
    state: MachineState,
    created_at: float,
    *,
    detail: str = "",
    needs: str = "",
    queued: bool = False,
    doubt: MachineRecord | None = None,
) -> Machine:
    kept = sighting.kept
    return Machine(
        machine_id=sighting.machine_id,
        name=kept.name,
        zone=kept.way,
        state=state,
        supervisor_id=kept.supervisor_id,
        run_id=kept.run_id,
        launch_id=kept.launch_id,
        created_at=created_at,
        detail=detail,
        labels={SUPERVISOR_LABEL: kept.supervisor_id, RUN_LABEL: kept.run_id, LAUNCH_LABEL: kept.launch_id},
        shape=kept.shape,
        spot=kept.spot,
        queued=queued,
        needs=needs,
        doubt=doubt,
    )

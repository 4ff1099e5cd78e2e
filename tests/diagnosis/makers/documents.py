"""The document of an attempt, composed by the supervisor's own code from what an agent and a platform report."""

from __future__ import annotations

from typing import Any

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineRecord, MachineState, Placement
from supervisor.domain.observation import Observation, Seen, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.ending.exits import end_in
from supervisor.lifecycle.evidence.attempt_evidence import Found, compose

NOW = 1_790_000_000.0
Json = dict[str, Any]
LOCAL = Placement("local", "", "here", "local", False)


def document(
    beat: Beat | None,
    part: Json | None = None,
    *,
    record: MachineRecord | None = None,
    cause: Cause | None = None,
    detail: str = "",
    placement: Placement = LOCAL,
    ran_s: float = 600.0,
    missing: str = "",
) -> Json:
    """`cause`: what ended the attempt where the beat does not say it: a stall, a boot that never came. Else it is what
    the supervisor concludes from the beat and the record."""
    machine = Machine("m-1", "spot-0badcafe-a1-t1", placement.zone, MachineState.UP, "sup-1", "digits-7", "1.1.1")
    machine = Machine(**{**{n: getattr(machine, n) for n in machine.__slots__}, "record": record})
    observation = Observation(machine=Seen(machine, 1.0, "listing"), beat=_seen(beat))
    end = None if beat is None else end_in(beat, observation, World(Knobs("sup-1")))
    if cause is None and end is not None:
        cause, detail = end.cause, end.evidence
    if cause is None and record is not None:
        cause, detail = record.cause, record.detail
    ended = cause is not None or (beat is not None and beat.exit is not None)
    attempt = Attempt(
        number=1, generation=1, launch_id="1.1.1", machine_name=machine.name, machine_id=machine.machine_id,
        placement=placement, requested_at=NOW - ran_s - 40, started_at=NOW - ran_s - 30,
        ended_at=NOW if ended else None, gone_at=NOW if record is not None else None, cause=cause, evidence=detail,
        step_last=None if beat is None else beat.step, step_kept=None if beat is None else beat.checkpoint_step,
        exit=None if beat is None else beat.exit,
        readings=() if end is None else end.readings,
    )  # fmt: skip
    run = Run(
        key=1, run_id="digits-7", owner="local", cell="c", provider=placement.provider, generation=1,
        status=Status.RUNNING, policy=Policy(), created_at=NOW - 9000, generation_at=NOW - 9000, status_since=NOW - 9000,
        attempt=attempt, pulse=_pulse(beat),
    )  # fmt: skip
    return compose(run, attempt, Found(part, missing), (), None)


def _seen(beat: Beat | None) -> Any:
    return Observation().beat if beat is None else Seen(beat, 2.0, "push")


def _pulse(beat: Beat | None) -> Pulse | None:
    if beat is None:
        return None
    return Pulse(
        beat.launch_id, sequence=beat.sequence, phase=beat.phase, phase_since=NOW - 300, beat_at=NOW - 2,
        step=beat.step, total=beat.total, checkpoint_step=beat.checkpoint_step, message=beat.message,
        metrics=dict(beat.metrics), telemetry=beat.telemetry, up_s=beat.up_s,
    )  # fmt: skip

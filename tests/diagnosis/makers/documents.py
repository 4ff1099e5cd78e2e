"""The document of an attempt, composed by the supervisor's own code from what an agent and a platform report."""

from __future__ import annotations

from typing import Any

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord, Placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
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
    """`cause`: what ended the attempt where the supervisor itself decided it: a stall, a boot that never came. What it
    concludes from an exit or a record is left out: a verdict must not read its own answer."""
    readings = ["listing: up, 1.0 s old"]
    if beat is not None:
        readings.append(f"beat: phase {beat.phase}, sequence {beat.sequence}, 2.0 s old")
    ended = cause is not None or record is not None or (beat is not None and (beat.exit or beat.left) is not None)
    attempt = Attempt(
        number=1, generation=1, launch_id="1.1.1", machine_name="spot-0badcafe-a1-t1", machine_id="m-1",
        placement=placement, requested_at=NOW - ran_s - 40, started_at=NOW - ran_s - 30,
        ended_at=NOW if ended else None, gone_at=NOW if record is not None else None, cause=cause, evidence=detail,
        step_last=None if beat is None else beat.step, step_kept=None if beat is None else beat.checkpoint_step,
        exit=None if beat is None else beat.exit,
        readings=tuple(readings) if ended else (),
    )  # fmt: skip
    run = Run(
        key=1, run_id="digits-7", owner="local", cell="c", provider=placement.provider, generation=1,
        status=Status.RUNNING, policy=Policy(), created_at=NOW - 9000, generation_at=NOW - 9000, status_since=NOW - 9000,
        attempt=attempt, pulse=_pulse(beat),
    )  # fmt: skip
    return compose(run, attempt, Found(part, missing), (), None)


def _pulse(beat: Beat | None) -> Pulse | None:
    if beat is None:
        return None
    return Pulse(
        beat.launch_id, sequence=beat.sequence, phase=beat.phase, phase_since=NOW - 300, beat_at=NOW - 2,
        step=beat.step, total=beat.total, checkpoint_step=beat.checkpoint_step, message=beat.message,
        metrics=dict(beat.metrics), telemetry=beat.telemetry, up_s=beat.up_s,
    )  # fmt: skip

"""What a beat says about the end of its attempt, without a row."""

from __future__ import annotations

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Observation
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_beat
from supervisor.lifecycle.ending.exits import reports_end, text_of


def end_of(beat: Beat, telemetry_before: str = "") -> tuple[Cause, str] | None:
    """(cause, fact); None where the beat reports no end. `telemetry_before`: of the beats before this one."""
    if not reports_end(beat):
        return None
    verdict = diagnose(of_beat(None, beat, Observation(), Pulse("", telemetry=telemetry_before)))
    return verdict.cause or Cause.UNKNOWN, text_of(verdict)

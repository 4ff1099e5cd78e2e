"""What a beat says of its attempt's end, at any time of its life.

The command's exit, why the agent or the start-up script left, a preemption that was seen inside the machine. The
platform's own record of the machine's end may know better.
"""

from __future__ import annotations

from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.world import World
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End
from supervisor.lifecycle.ending.exits import end_of

# A machine that is taken away ends its processes: what these make of that says less than the platform's record.
_SAYS_LITTLE = (Cause.KILLED, Cause.SUPERSEDED, Cause.UNKNOWN)


def word_of(beat: Beat, obs: Observation, world: World, told: str = "") -> End | None:
    """The End that this beat tells of; None while it goes on, at exit 0, and where the agent left because of a stop.
    `told`: what earlier beats told of the machine."""
    ended = end_of(beat, told)
    if ended is not None:
        cause, evidence = _record_wins(obs, *ended)
        return End(cause, evidence, machines.readings(obs), exit=beat.exit)
    if beat.notice_s is None:
        return None
    ahead = f"{beat.notice_s:.0f} s ahead" if beat.notice_s >= 0.5 else "at the last moment"
    evidence = f"the machine was told of its preemption {ahead}"
    return End(Cause.PREEMPTED, evidence, machines.readings(obs), overlap_s=world.knobs.notice_overlap_s)


def _record_wins(obs: Observation, cause: Cause, evidence: str) -> tuple[Cause, str]:
    """A signal from outside on a machine whose platform records an end is that end."""
    record = obs.machine.value.record if isinstance(obs.machine, Seen) else None
    if record is not None and cause in _SAYS_LITTLE:
        return record.cause, record.detail
    return cause, evidence

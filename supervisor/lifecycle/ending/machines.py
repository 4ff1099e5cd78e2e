"""What a machine's state says about its attempt. One authoritative record ends it; absence needs a second signal.

The listing may be partial or late. A machine that it does not contain is looked up by id. Only when the platform says
"there is none" too, and no beat has arrived since, has the machine died.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.observation import (
    BEATS,
    LOOKUP,
    NOT_READ,
    WRITTEN_OFF,
    Absent,
    Observation,
    Part,
    Seen,
    Unknown,
    World,
    gap_s,
)
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, new_event, unchanged, unread
from supervisor.lifecycle.ending.ending import End
from supervisor.lifecycle.living.beats import beat_of
from supervisor.lifecycle.living.limits import machines_since, silent_s

STOPPING_STATES = (MachineState.ENDING, MachineState.ENDED)  # it runs no more
# A lookup without an answer: the machine may have been preempted, which is free. That answer is awaited for so long
# beyond the silence, once the zone can be read; where the platform does not answer, no other machine can be had either.
UNANSWERED_S = 600.0
# Rows hold these texts: a later version recognizes them there.
UNANSWERED = "its machine is in no listing, and what became of it is not known yet"
DISAGREE = "the listing leaves out a machine that answers or beats"


def at_hand(obs: Observation, world: World) -> Machine | None:
    """The machine as it is now; None = not seen, or only in an old listing. It may have been preempted since, and an
    end for its silence would name the wrong cause."""
    seen = obs.machine
    if not isinstance(seen, Seen) or seen.age_s > gap_s(world.knobs.poll_interval_s):
        return None
    return seen.value


def is_stopping(part: Part[Machine]) -> bool:
    return isinstance(part, Seen) and part.value.state in STOPPING_STATES


def lost(run: Run, obs: Observation, world: World, now: float) -> End | Decision | None:
    """An End when the machine is lost; a Decision when more must be read first; None when it is there or unknown."""
    if isinstance(obs.machine, Seen):
        return _ended(obs.machine.value, obs, world) or _written_off(run, obs)
    if isinstance(obs.machine, Unknown):
        return None
    if is_written_off(obs):
        return _written_off(run, obs)
    if unread(obs, LOOKUP):
        return unchanged(run, wants=frozenset({LOOKUP}))
    if isinstance(obs.lookup, Seen):
        return _ended(obs.lookup.value, obs, world) or _disagree(run)
    return _absent(run, obs, world, now)


def _written_off(run: Run, obs: Observation) -> End | None:
    """A machine that a person wrote off, and that is seen again, is released: the run goes on elsewhere."""
    lost, attempt = run.written_off, run.live_attempt
    if lost is None or attempt is None or parse_launch_id(attempt.launch_id) > parse_launch_id(lost.launch_id):
        return None
    evidence = f"{lost.actor} wrote off the machine: {lost.reason}"
    return End(Cause.HOST_ERROR, evidence, readings(obs), machine_gone=not isinstance(obs.machine, Seen))


def is_written_off(obs: Observation) -> bool:
    return isinstance(obs.machine, Absent) and obs.machine.source == WRITTEN_OFF


def _ended(machine: Machine, obs: Observation, world: World) -> End | None:
    record, gone = machine.record, machine.state == MachineState.ENDED
    if record is not None and machine.state in STOPPING_STATES:
        overlap_s = 0.0 if gone or record.cause != Cause.PREEMPTED else world.knobs.notice_overlap_s
        return End(
            record.cause, record.detail, readings(obs), overlap_s=overlap_s, stopped_at=record.at,
            memory_bytes=record.memory_bytes,
        )  # fmt: skip
    if gone:
        return End(Cause.UNKNOWN, f"the machine stopped without a record of why ({machine.detail})", readings(obs))
    return None


def _absent(run: Run, obs: Observation, world: World, now: float) -> End | Decision | None:
    """Absent in a complete listing. Second signal: a lookup that says so too, or silence where beats are due."""
    attempt = run.live_attempt
    assert attempt is not None
    beat = beat_of(obs.beat, attempt.launch_id)
    listing_age_s = obs.machine.age_s if isinstance(obs.machine, Absent) else 0.0
    if beat is not None and beat.age_s < listing_age_s:
        return _disagree(run)
    silence_s = silent_s(run.pulse, attempt, world, now)
    listed_s = now - machines_since(world, attempt.placement, now - silence_s, now)
    silent = (
        attempt.running_at is not None  # before that, at boot, silence is legal
        and BEATS in world.fresh
        and BEATS not in world.breakers_open
        and not isinstance(obs.beat, Unknown)
        and silence_s > run.policy.stall.silence_s
        and not (isinstance(obs.lookup, Unknown) and listed_s < run.policy.stall.silence_s + UNANSWERED_S)
    )
    if not isinstance(obs.lookup, Absent) and not silent:
        return _unanswered(run, obs.lookup) if isinstance(obs.lookup, Unknown) else _disagree(run)
    source = world.machines_of(attempt.placement.provider)
    if source in world.breakers_open:
        return None
    evidence = "the machine is gone without a record of why: absent in the listing"
    evidence += ", not found when looked up" if isinstance(obs.lookup, Absent) else ", and no beat arrives"
    return End(Cause.ORPHANED, evidence, readings(obs), machine_gone=True, inferred=source)


def _unanswered(run: Run, lookup: Unknown) -> Decision | None:
    """Not in the listing, and the platform did not respond to the lookup: the next tick repeats it."""
    if run.hold.startswith(UNANSWERED):
        return None
    # Decided again at once, so that the limits judged after this apply in this tick, not in the next one.
    return Decision(replace(run, hold=f"{UNANSWERED}: {lookup.reason}"), again=True)


def _disagree(run: Run) -> Decision | None:
    """Recorded once. After that the run goes on under its own limits, and nothing rests on the machine."""
    if run.hold == DISAGREE:
        return None
    text = "The machine is missing in the listing, but it answers or beats. No action is taken."
    return Decision(replace(run, hold=DISAGREE), (new_event(EventKind.READINGS_DISAGREE, text),), again=True)


def stopped_at(obs: Observation, now: float) -> float | None:
    """When the machine of an agent that has sent its last beat stopped: the platform's record, else that last beat,
    where the machine is gone already. None = it is still seen running, or nothing reports it: later ticks will."""
    if isinstance(obs.machine, Seen):
        record = obs.machine.value.record
        return record.at if is_stopping(obs.machine) and record is not None else None
    if isinstance(obs.machine, Absent) and isinstance(obs.beat, Seen):
        return now - obs.beat.age_s
    return None


def readings(obs: Observation) -> tuple[str, ...]:
    """Source, value and age of everything a destructive decision rests on."""
    parts = (("listing", obs.machine), ("lookup", obs.lookup), ("beat", obs.beat))
    return tuple(f"{name}: {reading_text(part)}" for name, part in parts if part is not NOT_READ)


def reading_text(part: Part[Machine] | Part[Beat]) -> str:
    if isinstance(part, Unknown):
        return f"unknown ({part.reason})"
    if isinstance(part, Absent):
        return f"absent, {part.age_s:.1f} s old"
    value = part.value
    shown = value.state if isinstance(value, Machine) else f"phase {value.phase}, sequence {value.sequence}"
    return f"{shown}, {part.age_s:.1f} s old"

"""What a machine's state says about its attempt. One authoritative record ends it; absence needs a second signal.

The listing may be partial or late: a machine that it does not contain is asked for by id, and only when the platform
says "there is none" too, and no beat has come since, has the machine died.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.observation import (
    BEATS,
    LOOKUP,
    NOT_READ,
    Absent,
    Observation,
    Part,
    Seen,
    Unknown,
    World,
    gap_s,
)
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, tell, unchanged
from supervisor.lifecycle.ending.ending import End
from supervisor.lifecycle.living.liveness import beat_of, machines_since, silent_s

# Asked for by id, and no answer: it may have been taken, which is free. That word is waited for so long beyond the
# silence, once the zone can be read; where the platform does not answer, there is no other machine to be had either.
UNANSWERED_S = 600.0
UNANSWERED = "its machine is in no listing, and what became of it is not known yet"
DISAGREE = "the listing leaves out a machine that answers or beats"


def at_hand(obs: Observation, world: World) -> Machine | None:
    """The machine as it is now; None = not seen, or only in an old listing: it may have been taken away since, and an
    end for its silence would name the wrong cause."""
    seen = obs.machine
    if not isinstance(seen, Seen) or seen.age_s > gap_s(world.knobs.poll_interval_s):
        return None
    return seen.value


def lost(run: Run, obs: Observation, world: World, now: float) -> End | Decision | None:
    """An End when the machine is lost; a Decision when more must be read first; None when it is there or unknown."""
    if isinstance(obs.machine, Seen):
        return _ended(obs.machine.value, obs, world)
    if isinstance(obs.machine, Unknown):
        return None
    if obs.lookup is NOT_READ:
        return unchanged(run, wants=frozenset({LOOKUP}))
    if isinstance(obs.lookup, Seen):
        return _ended(obs.lookup.value, obs, world) or _disagree(run)
    return _absent(run, obs, world, now)


def _ended(machine: Machine, obs: Observation, world: World) -> End | None:
    record = machine.record
    ends = machine.state in (MachineState.ENDING, MachineState.ENDED)
    if record is not None and ends:
        gone = machine.state == MachineState.ENDED
        overlap_s = 0.0 if gone or record.cause != Cause.PREEMPTED else world.knobs.notice_overlap_s
        return End(record.cause, record.detail, readings(obs), overlap_s=overlap_s, stopped_at=record.at)
    if machine.state == MachineState.ENDED:
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
    evidence += ", not found when asked for" if isinstance(obs.lookup, Absent) else ", no beat either"
    return End(Cause.ORPHANED, evidence, readings(obs), machine_gone=True, inferred=source)


def _unanswered(run: Run, lookup: Unknown) -> Decision | None:
    """Not in the listing, and whoever was asked has not said what became of it: it is asked again at the next look."""
    if run.hold.startswith(UNANSWERED):
        return None
    # Again, so that the limits judged after this bite at this look, not at the next one.
    return Decision(replace(run, hold=f"{UNANSWERED}: {lookup.reason}"), again=True)


def _disagree(run: Run) -> Decision | None:
    """Told once; after that the run goes on under its own limits, and nothing rests on the machine."""
    if run.hold == DISAGREE:
        return None
    text = "The machine is missing in the listing, but it answers or beats: nothing is done."
    return Decision(replace(run, hold=DISAGREE), (tell(EventKind.READINGS_DISAGREE, text),), again=True)


def stopped_at(obs: Observation, now: float) -> float | None:
    """Since when the machine of an agent that has said its last word runs no more: the platform's word, else that last
    word, where the machine is gone already. None = it is still seen running, or nobody knows: later looks will tell."""
    if isinstance(obs.machine, Seen):
        machine = obs.machine.value
        ends = machine.state in (MachineState.ENDING, MachineState.ENDED)
        return machine.record.at if ends and machine.record is not None else None
    if isinstance(obs.machine, Absent) and isinstance(obs.beat, Seen):
        return now - obs.beat.age_s
    return None


def readings(obs: Observation) -> tuple[str, ...]:
    """Source, value and age of everything a destructive decision rests on."""
    parts = (("listing", obs.machine), ("lookup", obs.lookup), ("beat", obs.beat))
    return tuple(f"{name}: {_word(part)}" for name, part in parts if part is not NOT_READ)


def _word(part: Part[Machine] | Part[Beat]) -> str:
    if isinstance(part, Unknown):
        return f"unknown ({part.reason})"
    if isinstance(part, Absent):
        return f"absent, {part.age_s:.1f} s old"
    value = part.value
    shown = value.state if isinstance(value, Machine) else f"phase {value.phase}, sequence {value.sequence}"
    return f"{shown}, {part.age_s:.1f} s old"

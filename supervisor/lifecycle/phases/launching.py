"""From the create call to the first beat that counts. One try at a time; the next zone only after a definite no.

A create that "failed" may exist: it is adopted when the listing shows it, and asked for again under the same name and
request id while it does not, or shows that the platform still looks for room. `running` means a beat of this launch in
phase restore or later, after its claim; what a machine says before that changes the sentence, unless it says its end.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import heartbeat
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.actions import Launch, MarkHolderGone
from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Machine, MachineState, offer_key
from supervisor.domain.observation import (
    BATON,
    BEATS,
    LOOKUP,
    NOT_READ,
    Absent,
    CreateFailed,
    Observation,
    Part,
    Seen,
    Unknown,
    World,
)
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, moved, tell, unchanged
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.exits import word_of
from supervisor.lifecycle.living.checkpoints import begun_from_nothing
from supervisor.lifecycle.living.liveness import (
    beat_of,
    follow,
    identified,
    machines_since,
    reckoned,
    watched_since,
    with_pull,
    with_times,
)
from supervisor.lifecycle.living.overriding import done_elsewhere, done_of, heed_marker, mended
from supervisor.lifecycle.offers.choosing import NoOffer, lessons_of, run_pause_s, without_failures
from supervisor.lifecycle.phases.beginning import begin_attempt, obtained, trains_event
from supervisor.lifecycle.phases.placing import blind_start, place, wait
from supervisor.lifecycle.phases.stopping import CREATE_SETTLED_S, begin_stopping, call_off, stop_for_limit
from supervisor.wording.figures import age_text, clock_text

LOOKING_AFTER_S = 60.0  # before that it is no news
LOOKING = "the cloud is looking for room in {zone}, until {until} at most"


def launch(run: Run, obs: Observation, world: World, now: float) -> Decision:
    try_ = run.open_try
    if try_ is None:
        return place(run, obs, world, now)
    run = heed_marker(mended(run, obs), obs, now)
    if run.stop is not None:
        return begin_stopping(run, now)  # before the end of a create call: a call that was called off says nothing
    if run.live_attempt is None and isinstance(obs.create, Seen) and obs.create.value.launch_id == try_.launch_id:
        return _try_failed(run, try_, obs.create.value, world, now)
    return stop_for_limit(run, world, now) or _ask(run, try_, obs, world, now)


def _ask(run: Run, try_: Try, obs: Observation, world: World, now: float) -> Decision:
    """Adopt the machine, hear its beat, or ask for it again."""
    called_off = now >= _overdue_at(try_, world, now) and _ends(obs)
    if run.live_attempt is None and isinstance(obs.machine, Seen) and not (_asked(obs) or called_off):
        return _obtained(run, try_, obs.machine.value, world, now)
    beat = beat_of(obs.beat, try_.launch_id)
    if beat is not None and beat.value.phase not in heartbeat.BEFORE_CLAIM:
        return _running(run, try_, beat, obs, world, now)
    if done_of(run, obs) is not None:
        return done_elsewhere(run, now)
    if run.live_attempt is None:
        return _left_already(run, try_, beat, obs, now) or _again(run, try_, obs, world, now)
    return _booting(run, obs, beat, world, now)


def _asked(obs: Observation) -> bool:
    """The platform looks for room and may yet say no: nothing is obtained, and nothing is billed."""
    return isinstance(obs.machine, Seen) and obs.machine.value.state == MachineState.ASKED


def _left_already(run: Run, try_: Try, beat: Seen[Beat] | None, obs: Observation, now: float) -> Decision | None:
    """A machine that came up, said why it cannot go on, and was gone before the listing showed it once."""
    if beat is None or beat.value.left is None or not isinstance(obs.machine, Absent):
        return None
    begun = begin_attempt(run, try_, beat.value.machine_id, now)
    return Decision(begun, (obtained(try_, beat.value.machine_id),), again=True)


def _overdue_at(try_: Try, world: World, now: float) -> float:
    """From then on nobody waits any longer for what the platform makes of this request."""
    watched = machines_since(world, try_.placement, try_.requested_at, now)
    return watched + world.knobs.launch_timeout_s


def _ends(obs: Observation) -> bool:
    states = (MachineState.ENDING, MachineState.ENDED)
    return isinstance(obs.machine, Seen) and obs.machine.value.state in states


def _again(run: Run, try_: Try, obs: Observation, world: World, now: float) -> Decision:
    """Machine absent or asked for, and no word from the create call: the same Launch, never another zone."""
    overdue_at = _overdue_at(try_, world, now)
    if now >= overdue_at and isinstance(obs.machine, Seen | Absent):
        return _give_up(run, try_, obs, world, overdue_at + CREATE_SETTLED_S, now)
    taken = isinstance(obs.machine, Unknown) and obs.machine.taken
    if not (isinstance(obs.machine, Absent) or _asked(obs) or taken):
        return unchanged(run)
    blind = blind_start(run, obs, now)
    if blind is not None:
        return blind
    looks = _asked(obs) and now - try_.requested_at >= LOOKING_AFTER_S
    hold = LOOKING.format(zone=try_.placement.zone, until=clock_text(overdue_at, now)) if looks else ""
    after = run if run.hold == hold else replace(run, hold=hold)
    return Decision(after, actions=(Launch(try_, holder_gone=not run.retiring),))


def _give_up(run: Run, try_: Try, obs: Observation, world: World, settled_at: float, now: float) -> Decision:
    """The request has not ended in time: what it may still become is deleted. It is not sent again, and once nothing
    can come of it and nothing is there, the next place is asked. A request that was never sent is sent now."""
    if isinstance(obs.machine, Seen):
        return call_off(run, try_, obs, "the request for it has not ended in time")
    blind = blind_start(run, obs, now)
    if blind is not None:  # only the baton tells whether the request was sent
        return blind
    if not _was_raised(obs.baton, try_.launch_id):
        # The store kept it from being sent. Nothing is learned of the place: its time begins when it is sent.
        unsent_try = replace(try_, requested_at=now)
        unsent = replace(run, try_=unsent_try, hold="")
        return Decision(unsent, actions=(Launch(unsent_try, holder_gone=not run.retiring),))
    if now < settled_at:
        return unchanged(run, check_after=settled_at)
    if obs.lookup is NOT_READ:
        return unchanged(run, wants=frozenset({LOOKUP}))
    if not isinstance(obs.lookup, Absent):
        return unchanged(run)
    text = f"no machine came within {age_text(world.knobs.launch_timeout_s)}, and the request was called off"
    return _try_failed(run, try_, CreateFailed(try_.launch_id, Cause.NO_CAPACITY, text), world, now)


def _was_raised(baton: Part[Baton], launch_id: str) -> bool:
    """The baton's `next` names this try or a later one; before that no create call can have been made."""
    raised = baton.value.next if isinstance(baton, Seen) else None
    return raised is not None and parse_launch_id(raised.launch_id) >= parse_launch_id(launch_id)


def _try_failed(run: Run, try_: Try, failed: CreateFailed, world: World, now: float) -> Decision:
    ended = replace(try_, ended_at=now, outcome=failed.cause, detail=failed.detail)
    text = f"No machine in {try_.placement.zone}: {failed.cause}. {failed.detail}"
    event = tell(EventKind.TRY_FAILED, text, cause=failed.cause, zone=try_.placement.zone, launch_id=try_.launch_id)
    since = run.waiting.since if run.waiting.since is not None else now
    after = replace(run, try_=ended, waiting=replace(run.waiting, since=since))
    if failed.of_run:
        # Nothing is learnt of the place: other runs go on there. This one asks again soon, for a person may mend it.
        waiting = wait(after, NoOffer(now + run_pause_s(try_.number, world), failed.cause, failed.detail), now)
        return replace(waiting, events=(event, *waiting.events))
    if failed.cause == Cause.QUEUED:
        # Our own machines were quicker than the listing. The pause is for a provider that contradicts its own listing.
        pause_s = min(2.0 ** min(try_.number - 1, 10), world.knobs.poll_interval_s)
        waiting = wait(after, NoOffer(now + pause_s, failed.cause, failed.detail), now)
        return replace(waiting, events=(event, *waiting.events))
    return Decision(after, (event,), again=True, lessons=lessons_of(failed, try_.placement, world, now))


def _obtained(run: Run, try_: Try, machine: Machine, world: World, now: float) -> Decision:
    """The machine exists: the attempt begins, and so does its bill."""
    after = begin_attempt(run, try_, machine.machine_id, now)
    key = offer_key(try_.placement)
    forget = ((key, without_failures(world.zones[key])),) if key in world.zones else ()
    return Decision(after, (obtained(try_, machine.machine_id),), again=True, lessons=forget)


def _running(run: Run, try_: Try, beat: Seen[Beat], obs: Observation, world: World, now: float) -> Decision:
    """A late beat of the current launch is always accepted, also where the listing does not show the machine."""
    events = []
    if run.live_attempt is None:
        run = begin_attempt(run, try_, beat.value.machine_id, now)
        events.append(tell(EventKind.READINGS_DISAGREE, "The machine is not in the listing, but it beats: going on."))
    assert run.attempt is not None
    pulse = follow(run.pulse, beat, now, world.knobs.poll_interval_s)
    attempt = identified(replace(run.attempt, up_at=run.attempt.up_at or now), obs)
    attempt = with_times(attempt, beat.value, now)
    attempt = reckoned(attempt, run.pulse, pulse, run.policy.stall.boot_timeout_s)
    if beat.value.left is None or beat.value.exit is not None:  # else it left before anything was started
        events.append(trains_event(run, attempt, now))
    after = replace(run, attempt=attempt, pulse=pulse, cause=None, detail="", down_since=None)
    after, from_nothing = begun_from_nothing(after, run.attempt, beat.value)
    return Decision(moved(after, Status.RUNNING, now), (*events, *from_nothing), again=True)


def _booting(run: Run, obs: Observation, beat: Seen[Beat] | None, world: World, now: float) -> Decision:
    attempt = run.live_attempt
    assert attempt is not None
    seen = _seen_up(attempt, obs, now)
    if beat is not None:
        seen = with_pull(seen, beat.value, now)
    run = before = run if seen is attempt else replace(run, attempt=seen)
    if beat is not None:
        pulse = follow(run.pulse, beat, now, world.knobs.poll_interval_s)
        counted = reckoned(seen, run.pulse, pulse, run.policy.stall.boot_timeout_s)
        run = replace(run, pulse=pulse, attempt=counted)
        word = word_of(beat.value, obs, world)
        if word is not None:  # before the machine's own end: why it switched itself off stands here
            return end_attempt(run, replace(word, stopped_at=machines.stopped_at(obs, now)), world, now)
    lost = machines.lost(run, obs, world, now)
    if lost is not None:
        return lost if isinstance(lost, Decision) else end_attempt(run, lost, world, now)
    late = _boot_timeout(run, obs, world, now)
    if late is not None:
        return end_attempt(run, late, world, now)
    return Decision(
        run,
        actions=_holder_gone(run, obs),
        wants=frozenset({BATON}) if obs.baton is NOT_READ and _baton_may_tell(run, obs, beat) else frozenset(),
        check_after=_boot_deadline(run, world, now),
        pulse_only=run is not before and run.attempt is attempt,
    )


def _seen_up(attempt: Attempt, obs: Observation, now: float) -> Attempt:
    """The attempt with what the listing tells of its machine for the first time; the same object otherwise."""
    if not isinstance(obs.machine, Seen):
        return attempt
    machine = obs.machine.value
    attempt = identified(attempt, obs)
    if attempt.up_at is None and machine.state == MachineState.UP:
        attempt = replace(attempt, up_at=now)
    return attempt


def _boot_deadline(run: Run, world: World, now: float) -> float:
    assert run.attempt is not None
    start = run.attempt.up_at or run.attempt.started_at
    watched = max(watched_since(world, start, now), machines_since(world, run.attempt.placement, start, now))
    return watched + run.policy.stall.boot_timeout_s


def _boot_timeout(run: Run, obs: Observation, world: World, now: float) -> End | None:
    """Needs fresh beats (or their fresh absence) and a machine that is really there."""
    readable = BEATS in world.fresh and isinstance(obs.beat, Seen | Absent)
    there = machines.at_hand(obs, world) is not None
    if not (readable and there) or now < _boot_deadline(run, world, now) or BEATS in world.breakers_open:
        return None
    limit_s = run.policy.stall.boot_timeout_s
    evidence = f"no beat after its claim within {limit_s:.0f} s; {_last_word(run, now)}"
    return End(Cause.BOOT_TIMEOUT, evidence, machines.readings(obs), inferred=BEATS)


def _last_word(run: Run, now: float) -> str:
    """The phase in which it hangs, since when, and what it said of it."""
    pulse, attempt = run.pulse, run.live_attempt
    if pulse is None or attempt is None or pulse.launch_id != attempt.launch_id or pulse.sequence == 0:
        return "it has said nothing"
    said = f": {pulse.message}" if pulse.message else ""
    return f"last word: phase {pulse.phase} for {age_text(max(0.0, now - pulse.phase_since))}{said}"


def _baton_may_tell(run: Run, obs: Observation, beat: Seen[Beat] | None) -> bool:
    """Reading the baton of every machine that boots costs two requests a look. It cannot have changed while no agent is
    up to change it: none of an earlier machine, and none of this one. A first attempt has nobody to wait for either."""
    if run.retiring:
        return True
    if isinstance(obs.machine, Seen) and obs.machine.value.state == MachineState.STARTING:
        return False
    script_speaks = beat is not None and beat.source == "boot"
    first = run.live_attempt is not None and run.live_attempt.number == 1
    return not (script_speaks and first)


def _holder_gone(run: Run, obs: Observation) -> tuple[MarkHolderGone, ...]:
    """The old machine went away while the newcomer waits: say so, derived again from the baton until it is there."""
    if run.retiring or not isinstance(obs.baton, Seen) or run.try_ is None:
        return ()
    baton = obs.baton.value
    waits = baton.next is not None and baton.next.launch_id == run.try_.launch_id and not baton.next.holder_gone
    held_by_other = baton.holder is not None and baton.holder.launch_id != run.try_.launch_id
    return (MarkHolderGone(run.try_.launch_id),) if waits and held_by_other and baton.closed is None else ()

"""From the create call to the first beat that counts. One try at a time; the next zone only after a definite failure.

A create call that "failed" may have worked: its machine is adopted when the listing shows it. While the listing does
not show it, or shows that the platform still looks for capacity, the machine is requested again under the same name
and request id. `running` means a beat of this launch in phase restore or later, after its claim. What a machine reports
before that changes the status sentence, unless it reports its end.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import heartbeat
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.actions import Launch, MarkHolderGone
from supervisor.domain.attempt import CREATE_SETTLED_S, Try
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import FLEX_START, Machine, MachineState, offer_key
from supervisor.domain.observation import (
    BATON,
    BEATS,
    LOOKUP,
    Absent,
    CreateFailed,
    Observation,
    Part,
    Seen,
    Unknown,
    World,
)
from supervisor.domain.run import Run, needing, unneeded
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, after_events, moved, new_event, unchanged, unread
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.exits import end_in
from supervisor.lifecycle.ending.keeping import put_back
from supervisor.lifecycle.ending.retiring import holder_gone, lost_launches
from supervisor.lifecycle.living.beats import beat_of, identified, with_beat
from supervisor.lifecycle.living.checkpoints import with_fresh_start
from supervisor.lifecycle.living.limits import machines_since, watched_since
from supervisor.lifecycle.living.overriding import (
    after_baton_fix,
    asks_about_baton,
    done_of,
    finish_done_work,
    with_marker,
)
from supervisor.lifecycle.offers.choosing import NoOffer, refused_pause_s, start_pause_s
from supervisor.lifecycle.offers.ladder import market_rule
from supervisor.lifecycle.offers.lessons import lessons_of, without_failures
from supervisor.lifecycle.offers.market import MarketRule, flex_wait_is_over
from supervisor.lifecycle.phases.beginning import obtain, training_event
from supervisor.lifecycle.phases.placing import hold_unread_store, place, wait
from supervisor.lifecycle.phases.racing import as_decided, promoted, rival_failed, with_baton, with_rival_call
from supervisor.lifecycle.phases.stopping import begin_stopping, cancel_request, stop_for_limit
from supervisor.wording.figures import age_text, clock_text

CALL_S = 60.0  # the deadline of a create call: its machine may appear so late
LOOKING_AFTER_S = 60.0  # earlier, a request that takes its time is not worth a sentence
SENDING_S = 120.0  # without a piece for so long, no files are on their way: a call with one is ended after 45 s


def launch(run: Run, obs: Observation, world: World, now: float) -> Decision:
    try_ = run.open_try
    if try_ is None:
        return place(run, obs, world, now)
    run = with_marker(after_baton_fix(run, obs), obs, now)
    if run.stop is not None:
        return begin_stopping(run, now)  # before the end of a create call: a canceled call teaches nothing
    rival = run.open_rival
    if rival is not None and isinstance(obs.rival_create, Seen) and obs.rival_create.value.launch_id == rival.launch_id:
        return _rival_failed(run, rival, obs.rival_create.value, world, now)
    if run.live_attempt is None and isinstance(obs.create, Seen) and obs.create.value.launch_id == try_.launch_id:
        return _try_failed(run, try_, obs.create.value, world, now)
    stopped = stop_for_limit(run, world, now)
    if stopped is not None:
        return stopped
    run, obs = as_decided(run, obs)
    assert run.try_ is not None
    run = _with_end_of_wait(run, run.try_, world, now)
    assert run.try_ is not None
    return with_baton(with_rival_call(_follow_machine(run, run.try_, obs, world, now), obs), obs)


def _rival_failed(run: Run, rival: Try, failed: CreateFailed, world: World, now: float) -> Decision:
    after, event = rival_failed(run, rival, failed.cause, failed.detail, now)
    lessons = () if failed.of_run else lessons_of(failed, rival.placement, world, now, is_second=True)
    return Decision(after, (event,), again=True, lessons=lessons)


def _follow_machine(run: Run, try_: Try, obs: Observation, world: World, now: float) -> Decision:
    """Adopt the machine, follow its beats, or request it again."""
    called_off = now >= _overdue_at(run, try_, obs, world, now) and machines.is_stopping(obs.machine)
    if run.live_attempt is None and isinstance(obs.machine, Seen) and not (_is_requested(obs) or called_off):
        return _adopt(_without_need(run), try_, obs.machine.value, world, now)
    beat = beat_of(obs.beat, try_.launch_id)
    if beat is not None and beat.value.phase not in heartbeat.BEFORE_CLAIM:
        return _running(_without_need(run), beat.value, obs, world, now)
    if done_of(run, obs) is not None:
        return finish_done_work(run, now)
    if run.live_attempt is not None:
        return _booting(run, obs, beat, world, now)
    if beat is not None and beat.value.left is not None and isinstance(obs.machine, Absent):
        # The machine came up, reported why it cannot go on, and disappeared before the listing showed it once.
        return obtain(run, try_, beat.value.machine_id, now)
    return _request_again(run, try_, obs, world, now)


# --- a create call without a definite end -----------------------------------------------------------------------------


def _is_requested(obs: Observation) -> bool:
    """The platform looks for capacity and may yet fail: nothing is obtained, and nothing is billed."""
    return isinstance(obs.machine, Seen) and obs.machine.value.state == MachineState.ASKED


def _is_queued(obs: Observation) -> bool:
    """It has a place in the platform's own queue."""
    return isinstance(obs.machine, Seen) and obs.machine.value.queued


def _overdue_at(run: Run, try_: Try, obs: Observation, world: World, now: float) -> float:
    """When the wait for this request is over, whatever the platform makes of it. A place in a queue is kept as long as
    the run may wait for capacity: a new request would begin at the end of the queue."""
    if try_.waits_s:  # the request itself says for how long, and no gap of ours moves the last moment for on-demand
        return try_.requested_at + try_.waits_s
    watched = machines_since(world, try_.placement, try_.requested_at, now)
    if _is_queued(obs):
        return watched + max(world.knobs.launch_timeout_s, run.policy.limits.wait_for_capacity_s)
    return watched + world.knobs.launch_timeout_s


def _with_end_of_wait(run: Run, try_: Try, world: World, now: float) -> Run:
    """A deadline that is moved while a flex-start request waits may need on-demand before the wait ends: it ends now
    then. That is kept: a request that is being withdrawn does not begin to wait again."""
    if not try_.waits_s or run.live_attempt is not None or now >= try_.requested_at + try_.waits_s:
        return run
    if not flex_wait_is_over(market_rule(run, world, now), world, now):
        return run
    waited_s = max(1.0, float(int(now - try_.requested_at)))
    return replace(run, try_=replace(try_, waits_s=waited_s))


def _request_again(run: Run, try_: Try, obs: Observation, world: World, now: float) -> Decision:
    """Machine absent or requested, and no end of the create call: the same Launch, never another zone."""
    overdue_at = _overdue_at(run, try_, obs, world, now)
    if machines.is_written_off(obs):
        failed = CreateFailed(try_.launch_id, Cause.NO_CAPACITY, "the machine was written off")
        return _try_failed(run, try_, failed, world, now)
    if _is_sending(obs, try_, now) and isinstance(obs.machine, Absent):
        return _keep_sending(run, try_, overdue_at, now)
    if now >= overdue_at and isinstance(obs.machine, Seen | Absent):
        return _give_up(run, try_, obs, world, now)
    taken = isinstance(obs.machine, Unknown) and obs.machine.taken
    if not (isinstance(obs.machine, Absent) or _is_requested(obs) or taken):
        return unchanged(run)
    blind = hold_unread_store(run, obs, now)
    if blind is not None:
        return blind
    if isinstance(obs.beat, Unknown):  # the machine may have reported why it left before the listing showed it once
        return unchanged(run)
    hold = _waiting_text(obs, try_, overdue_at, market_rule(run, world, now) if try_.waits_s else None, now)
    after, events = _with_need(run if run.hold == hold else replace(run, hold=hold), obs, now)
    return Decision(after, events, actions=(Launch(try_, holder_gone=holder_gone(run)),))


def _with_need(run: Run, obs: Observation, now: float) -> tuple[Run, tuple[Event, ...]]:
    """The run with what a person must do for its machine to begin, and the event of it: once for each launch."""
    need = obs.machine.value.needs if isinstance(obs.machine, Seen) and _is_requested(obs) else ""
    if not need or run.person.why:
        return run, ()
    return needing(run, need, now), (new_event(EventKind.NEEDS_PERSON, f"Needs a person: {need}."),)


def _without_need(run: Run) -> Run:
    """The machine has begun, or will not: nobody needs to act for it any more."""
    return unneeded(run) if run.person.why and not asks_about_baton(run) else run


def _waiting_text(obs: Observation, try_: Try, overdue_at: float, rule: MarketRule | None, now: float) -> str:
    """What a request that takes its time waits for; "" = nothing to say yet. `rule`: of a flex-start request."""
    if not isinstance(obs.machine, Seen) or not _is_requested(obs):
        return ""
    if obs.machine.value.needs:  # it waits for a person, who is told so, and not for the platform
        return ""
    zone, until, machine = try_.placement.zone, clock_text(overdue_at, now), obs.machine.value
    if try_.waits_s:
        text = f"a {FLEX_START} request waits in {zone} until {until} at most, and no machine is billed"
        latest = None if rule is None else rule.until
        return text if latest is None else f"{text}; on-demand at {clock_text(latest, now)} at the latest"
    if _is_queued(obs):
        queue = f"the queue of {try_.placement.provider}, {zone}"
        return f"it is in {queue}, until {until} at most: {machine.detail}".removesuffix(": ")
    if now - try_.requested_at < LOOKING_AFTER_S:
        return ""
    text = f"the cloud is looking for capacity in {zone}, until {until} at most"
    return f"{text}: {machine.waits_for}" if machine.waits_for else text


def _is_sending(obs: Observation, try_: Try, now: float) -> bool:
    """Before the machine is requested, the run's files travel to its host. That takes as long as the line needs."""
    sent = obs.sent.value if isinstance(obs.sent, Seen) else None
    return sent is not None and sent.launch_id == try_.launch_id and now - sent.at < SENDING_S


def _keep_sending(run: Run, try_: Try, overdue_at: float, now: float) -> Decision:
    """The time of the request begins again where it is over: with another host, what this one has received is lost."""
    hold = f"its files are on their way to {try_.placement.zone}" if now - try_.requested_at >= LOOKING_AFTER_S else ""
    again = replace(try_, requested_at=now) if now >= overdue_at else try_
    after = replace(run, try_=again, hold=hold or run.hold)
    return Decision(after, actions=(Launch(again, holder_gone=holder_gone(run)),))


def _give_up(run: Run, try_: Try, obs: Observation, world: World, now: float) -> Decision:
    """The request has not ended in time: what it may still become is deleted. It is not sent again. Once nothing can
    come of it and no machine is there, the next zone is tried. A request that was never sent is sent now. A kept
    machine is not deleted for that: should it come up after all, it is switched off again."""
    if try_.on is not None:
        text = f"it did not start within {age_text(world.knobs.launch_timeout_s)}"
        return _try_failed(run, try_, CreateFailed(try_.launch_id, Cause.NO_CAPACITY, text), world, now)
    if isinstance(obs.machine, Seen):
        if _is_queued(obs) and run.waiting.since is None:  # the wait in the queue was the run's wait for capacity
            run = replace(run, waiting=replace(run.waiting, since=try_.requested_at))
        return cancel_request(run, try_, obs, "the request for it did not end in time")
    blind = hold_unread_store(run, obs, now)
    if blind is not None:  # only the baton says whether the request was sent
        return blind
    if not _was_raised(obs.baton, try_.may_claim_after):
        if try_.waits_s:  # its time was what the deadline allowed, and does not begin again
            unsent_text = "the request was not sent in its time"
            failed = CreateFailed(try_.launch_id, Cause.NO_CAPACITY, unsent_text, of_run=True)
            return _try_failed(run, try_, failed, world, now)
        # An unreadable store kept it from being sent. That teaches nothing about the zone; its time begins now.
        unsent_try = replace(try_, requested_at=now)
        unsent = replace(run, try_=unsent_try, hold="")
        return Decision(unsent, actions=(Launch(unsent_try, holder_gone=holder_gone(run)),))
    settled_at = _overdue_at(run, try_, obs, world, now) + CREATE_SETTLED_S
    if now < settled_at:
        return unchanged(run, check_after=settled_at)
    if not isinstance(obs.lookup, Absent):
        return unchanged(run, wants=unread(obs, LOOKUP))
    limit_s = try_.waits_s or world.knobs.launch_timeout_s
    text = f"no machine appeared within {age_text(limit_s)}, and the request was canceled"
    return _try_failed(run, try_, CreateFailed(try_.launch_id, Cause.NO_CAPACITY, text), world, now)


def _was_raised(baton: Part[Baton], launch_id: str) -> bool:
    """The baton's `next` names this try or a later one. Before that no create call can have been made."""
    raised = baton.value.next if isinstance(baton, Seen) else None
    return raised is not None and parse_launch_id(raised.launch_id) >= parse_launch_id(launch_id)


def _try_failed(run: Run, try_: Try, failed: CreateFailed, world: World, now: float) -> Decision:
    zone = try_.placement.zone
    text = f"No machine in {zone}: {failed.cause}. {failed.detail}"
    event = new_event(EventKind.TRY_FAILED, text, cause=failed.cause, zone=zone, launch_id=try_.launch_id)
    began = try_.requested_at if try_.waits_s else now  # that wait was the run's wait for capacity
    since = run.waiting.since if run.waiting.since is not None else began
    ended = replace(try_, ended_at=now, outcome=failed.cause, detail=failed.detail, on=None)
    after = replace(_without_need(run), try_=ended, waiting=replace(run.waiting, since=since))
    if run.open_rival is not None:
        lessons = () if failed.of_run else lessons_of(failed, try_.placement, world, now)
        return Decision(promoted(after, ended), (event,), again=True, lessons=lessons)
    after, news = put_back(after, try_, failed.cause, failed.detail, now)
    is_of_machine = try_.on is not None and failed.cause == Cause.LAUNCH_REJECTED
    if failed.of_run:
        # This teaches nothing about the zone: other runs go on there. A person may fix it, so the run retries soon.
        pause_s = refused_pause_s(try_.number, world)
    elif failed.cause == Cause.QUEUED:
        # Our own machines were faster than the listing. The pause is for a provider that contradicts its own listing.
        pause_s = min(2.0 ** min(try_.number - 1, 10), world.knobs.poll_interval_s)
    elif failed.cause == Cause.QUOTA_HOURS:
        pause_s = world.knobs.quota_retry_s  # the provider's quotas say from now on how long the run waits
    elif is_of_machine and after.kept is not None and not after.kept[1].given_up:
        pause_s = start_pause_s(try_.number, world)
    else:
        # The refusal of one machine's start says nothing about the zone; a lack of capacity does.
        second = bool(try_.beside)
        lessons = () if is_of_machine else lessons_of(failed, try_.placement, world, now, is_second=second)
        return Decision(after, (event, *news), again=True, lessons=lessons)
    return after_events((event, *news), wait(after, NoOffer(now + pause_s, failed.cause, failed.detail), now))


# --- a machine --------------------------------------------------------------------------------------------------------


def _adopt(run: Run, try_: Try, machine: Machine, world: World, now: float) -> Decision:
    key = offer_key(try_.placement)
    lessons = ((key, without_failures(world.zones[key])),) if key in world.zones else ()
    return replace(obtain(run, try_, machine.machine_id, now), lessons=lessons)


def _running(run: Run, beat: Beat, obs: Observation, world: World, now: float) -> Decision:
    """A late beat of the current launch is always accepted, also where the listing does not show the machine."""
    events: tuple[Event, ...] = ()
    if run.live_attempt is None:
        assert run.try_ is not None
        requested_at = run.try_.requested_at
        obtained = obtain(run, run.try_, beat.machine_id, now)
        run, events = obtained.run, obtained.events
        # An earlier listing may be older than the machine: it ran beside the call that made it.
        if isinstance(obs.machine, Absent) and now - obs.machine.age_s > requested_at + CALL_S:
            text = "The machine is not in the listing, but its beats arrive: the run continues."
            events = (new_event(EventKind.READINGS_DISAGREE, text),)
    before = run.attempt
    assert before is not None
    up = replace(run, attempt=replace(before, up_at=before.up_at or now), cause=None, detail="", down_since=None)
    after = with_beat(up, obs, world, now)
    assert after.attempt is not None
    if beat.left is None or beat.exit is not None:  # else it left before anything was started
        events = (*events, training_event(run, after.attempt, now))
    after, fresh_start = with_fresh_start(after, before, beat)
    return Decision(moved(after, Status.RUNNING, now), (*events, *fresh_start), again=True)


def _booting(run: Run, obs: Observation, beat: Seen[Beat] | None, world: World, now: float) -> Decision:
    run = with_beat(_with_machine(run, obs, now), obs, world, now)
    end = end_in(run, beat.value, obs, world) if beat is not None else None
    if end is not None:  # before the machine's own end: this says why it switched itself off
        return end_attempt(run, replace(end, stopped_at=machines.stopped_at(obs, now)), world, now)
    lost = machines.lost(run, obs, world, now) or _boot_timeout(run, obs, world, now)
    if lost is not None:
        return lost if isinstance(lost, Decision) else end_attempt(run, lost, world, now)
    return Decision(
        run,
        actions=_mark_holder_gone(run, obs),
        wants=unread(obs, BATON) if _baton_may_have_changed(run, obs, beat) else frozenset(),
        check_after=_boot_limit_at(run, world, now),
    )


def _with_machine(run: Run, obs: Observation, now: float) -> Run:
    """The run with what the listing shows of its machine for the first time; the same object otherwise."""
    before = run.live_attempt
    assert before is not None
    attempt = identified(before, obs)
    if attempt.up_at is None and isinstance(obs.machine, Seen) and obs.machine.value.state == MachineState.UP:
        attempt = replace(attempt, up_at=now)
    return run if attempt is before else replace(run, attempt=attempt)


def _boot_limit_at(run: Run, world: World, now: float) -> float:
    assert run.attempt is not None
    start = run.attempt.up_at or run.attempt.started_at
    watched = max(watched_since(world, start, now), machines_since(world, run.attempt.placement, start, now))
    return watched + run.policy.stall.boot_timeout_s


def _boot_timeout(run: Run, obs: Observation, world: World, now: float) -> End | None:
    """Needs fresh beats (or their fresh absence) and a machine that is really there."""
    readable = BEATS in world.fresh and isinstance(obs.beat, Seen | Absent)
    there = machines.at_hand(obs, world) is not None
    if not (readable and there) or now < _boot_limit_at(run, world, now) or BEATS in world.breakers_open:
        return None
    limit_s = run.policy.stall.boot_timeout_s
    evidence = f"no beat after its claim within {limit_s:.0f} s; {_last_beat_text(run, now)}"
    return End(Cause.BOOT_TIMEOUT, evidence, machines.readings(obs), inferred=BEATS)


def _last_beat_text(run: Run, now: float) -> str:
    """The phase in which it hangs, since when, and its message."""
    pulse, attempt = run.pulse, run.live_attempt
    if pulse is None or attempt is None or pulse.launch_id != attempt.launch_id or pulse.sequence == 0:
        return "no beat has arrived"
    message = f": {pulse.message}" if pulse.message else ""
    return f"last beat: phase {pulse.phase} for {age_text(max(0.0, now - pulse.phase_since))}{message}"


def _baton_may_have_changed(run: Run, obs: Observation, beat: Seen[Beat] | None) -> bool:
    """Reading the baton of every machine that boots costs two requests a tick. It cannot have changed while no agent
    is up to change it: none of an earlier machine, and none of this one. A first attempt waits for no holder either."""
    if run.retiring:
        return True
    if isinstance(obs.machine, Seen) and obs.machine.value.state == MachineState.STARTING:
        return False
    from_script = beat is not None and beat.source == "boot"
    first = run.live_attempt is not None and run.live_attempt.number == 1
    return not (from_script and first)


def _mark_holder_gone(run: Run, obs: Observation) -> tuple[MarkHolderGone, ...]:
    """The old machine disappeared while the new agent waits: the baton must say so. Derived again until it does."""
    if not holder_gone(run) or not isinstance(obs.baton, Seen) or run.try_ is None:
        return ()
    baton = obs.baton.value
    if baton.holder is not None and baton.holder.launch_id in lost_launches(run):
        return ()
    waits = baton.next is not None and baton.next.launch_id == run.try_.launch_id and not baton.next.holder_gone
    held_by_other = baton.holder is not None and baton.holder.launch_id != run.try_.launch_id
    return (MarkHolderGone(run.try_.launch_id),) if waits and held_by_other and baton.closed is None else ()

"""From "no machine" to "a try is on record": pending, waiting, recovering, and launching between two tries.

Stop wins over every start; nothing is started while the object store, which carries the stop marker and the baton,
cannot be read. The zone is chosen last, so that a limit or a finished attempt is seen first.

Between two attempts: late words of the ended one are heard, then the next zone is chosen (placing).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from supervisor.contract.identifiers import launch_id, machine_name
from supervisor.domain.actions import Launch
from supervisor.domain.attempt import Try
from supervisor.domain.causes import NEEDS_PERSON, NO_GPU, Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Offer
from supervisor.domain.observation import BATON, NOT_READ, STOP, Observation, Unknown, World
from supervisor.domain.run import Run, unneeded
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, held, moved, tell, unchanged
from supervisor.lifecycle.ending.retiring import next_due
from supervisor.lifecycle.living.limits import limit_passed, next_limit_at
from supervisor.lifecycle.living.liveness import beat_of
from supervisor.lifecycle.living.overriding import ask_to_mend, done_elsewhere, done_of, heed_marker, is_torn, mended
from supervisor.lifecycle.offers.choosing import NoOffer, is_paused, lacks, why
from supervisor.lifecycle.offers.pinning import pinned
from supervisor.lifecycle.offers.queueing import place_of
from supervisor.lifecycle.phases.stopping import begin_stopping
from supervisor.wording.figures import clock_text

STORE_RETRY_S = 30.0
OTHER_PLACES = "Allow other zones or shapes, or on-demand machines, or mend the driver"
BLIND = "the object store cannot be read"


def place(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Choose the next zone when it is due and allowed; else stay, wait or end, with the reason."""
    run = heed_marker(mended(run, obs), obs, now)
    if run.stop is not None:
        return _stopped(run, now)
    passed = limit_passed(run, now, world) or (None if _lacked(run, world) else _waited_too_long(run, now))
    if run.status != Status.PENDING and done_of(run, obs) is not None:
        return done_elsewhere(run, now)
    if passed is not None:
        return _failed(run, obs, *passed, now)
    if is_paused(run, world, now):
        return unchanged(run, check_after=_soonest(run.next_at, next_limit_at(run, now), next_due(run, now)))
    choice = place_of(run, world, now)
    if _is_nobodys(choice) and run.status != Status.RECOVERING:
        return _none(run, choice, world, now)  # a recovering run looks first whether its last attempt did the work
    blind = blind_start(run, obs, now)
    if blind is not None:
        return blind
    run, told, pending = pinned(run, obs, now)
    if pending is not None:
        return pending
    decision = _none(run, choice, world, now) if isinstance(choice, NoOffer) else _launch(run, choice, world, now)
    return replace(decision, events=(*told, *decision.events)) if told else decision


def _is_nobodys(choice: Offer | NoOffer) -> TypeGuard[NoOffer]:
    """No provider is asked: the run stands in line, or its provider is not there."""
    return isinstance(choice, NoOffer) and (choice.cause == Cause.QUEUED or choice.lacking)


def _none(run: Run, choice: NoOffer, world: World, now: float) -> Decision:
    if choice.lacking:  # no limit of waiting counts
        standing = _standing(run, now, _lacked(run, world))
        return Decision(replace(standing, next_at=choice.until, hold=choice.detail))
    if choice.unread:  # the zones that have room: what is started there now could not be seen
        return held(run, choice.detail, now, world.knobs.poll_interval_s)
    return wait(run, choice, now)


def blind_start(run: Run, obs: Observation, now: float) -> Decision | None:
    """None when stop marker and baton have been read; without them no machine is asked for, the first time or again."""
    unread = frozenset(name for name, part in ((STOP, obs.stop), (BATON, obs.baton)) if part is NOT_READ)
    if unread:
        return unchanged(run, wants=unread)
    if is_torn(obs.baton):
        return ask_to_mend(run, now)
    for part in (obs.stop, obs.baton):
        if isinstance(part, Unknown):
            since = f"{BLIND} since {clock_text(now, now)}: {part.reason}"
            return held(run, run.hold if run.hold.startswith(BLIND) else since, now, STORE_RETRY_S)
    return None


def _stopped(run: Run, now: float) -> Decision:
    assert run.stop is not None
    if run.retiring:
        return begin_stopping(run, now)
    after = moved(
        replace(unneeded(run), cause=run.stop.cause, detail=f"by {run.stop.actor}", next_at=None), Status.STOPPED, now
    )
    return Decision(
        after, (tell(EventKind.STOPPED, f"Stopped by {run.stop.actor}.", cause=run.stop.cause),), again=True
    )


def _failed(run: Run, obs: Observation, cause: Cause, detail: str, now: float) -> Decision:
    if run.status != Status.PENDING and obs.baton is NOT_READ:
        return unchanged(run, wants=frozenset({BATON}))  # a lost attempt may have finished in time
    over = replace(unneeded(run), cause=cause, detail=detail, next_at=None)
    after = moved(over, Status.FAILED, now)
    return Decision(after, (tell(EventKind.FAILED, f"Failed: {cause}. {detail}", cause=cause),), again=True)


def _waited_too_long(run: Run, now: float) -> tuple[Cause, str] | None:
    limit_s = run.policy.limits.wait_for_capacity_s
    if run.waiting.since is None or run.cause == Cause.QUEUED or now - run.waiting.since < limit_s:
        return None
    cause = run.cause if run.cause == Cause.NO_CAPACITY or run.cause in NEEDS_PERSON else Cause.NO_CAPACITY
    return cause, f"waited {now - run.waiting.since:.0f} s, limit {limit_s:.0f} s"


def wait(run: Run, why: NoOffer, now: float) -> Decision:
    """For a place to ask; told with its reason. The limit of a wait for the platform does not count time in line, and
    a turn in line between two refusals does not begin it anew: only a machine does."""
    in_line = why.cause == Cause.QUEUED
    if in_line and run.status == Status.WAITING and run.cause == Cause.QUEUED and run.next_at is None:
        return unchanged(run, check_after=next_limit_at(run, now))
    placed = _in_line(run, now) if in_line else _out_of_line(run, now)
    after = replace(placed, next_at=why.until, cause=why.cause, detail=why.detail, hold="")
    events: tuple[Event, ...] = ()
    if why.cause not in run.waiting.reasons:
        after = replace(after, waiting=replace(after.waiting, reasons=(*run.waiting.reasons, why.cause)))
        if (
            run.cause != why.cause or why.cause in NO_GPU  # the lost attempt had that cause; this is news
        ):  # once for each reason, not after every try: zones may take turns in theirs
            text = _waiting_text(run, why)
            events = (tell(EventKind.WAITING, text, cause=why.cause, until=why.until),)
    return Decision(moved(after, Status.WAITING, now), events, check_after=_soonest(why.until, next_limit_at(run, now)))


def _in_line(run: Run, now: float) -> Run:
    """Its clock stands still from now on."""
    if run.cause == Cause.QUEUED and run.waiting.since is not None:
        return run
    waited_s = 0.0 if run.waiting.since is None else max(0.0, now - run.waiting.since)
    return replace(run, waiting=replace(run.waiting, since=now, before_s=waited_s))


def _lacked(run: Run, world: World) -> bool:
    """It waits for a provider that is not in the settings, and did so at its last look."""
    return bool(run.hold) and lacks(run, world)


def _standing(run: Run, now: float, lacked: bool) -> Run:
    """The clock of its wait for capacity stands still: nobody is there who could have any."""
    if run.waiting.since is None or run.cause == Cause.QUEUED:
        return run
    waited_s = run.waiting.before_s if lacked else max(0.0, now - run.waiting.since)
    return replace(run, waiting=replace(run.waiting, since=now - waited_s, before_s=waited_s))


def _out_of_line(run: Run, now: float) -> Run:
    """Its clock goes on from what it had waited for the platform before; it begins where there was no wait."""
    if run.waiting.since is None:
        return replace(run, waiting=replace(run.waiting, since=now, before_s=0.0))
    if run.cause != Cause.QUEUED:
        return run
    return replace(run, waiting=replace(run.waiting, since=now - run.waiting.before_s, before_s=0.0))


def _waiting_text(run: Run, why: NoOffer) -> str:
    billed = "The old machine still is to be released" if run.retiring else "Nothing is billed"
    if why.cause == Cause.QUOTA:
        return f"Needs you: {why.detail}. {billed}. Raise the quota, or allow another region."
    if why.cause in NO_GPU:
        return f"Needs you: no place has a GPU that works: {why.detail}. {billed}. {OTHER_PLACES}."
    if why.cause == Cause.QUEUED:
        return f"Queued: {why.detail}. {billed}."
    if why.cause == Cause.LAUNCH_REJECTED:
        return f"Needs you: the request for a machine was refused: {why.detail}. {billed}. Put right what it names."
    return f"Waiting: {why.cause}. {why.detail}. {billed}."


def _launch(run: Run, offer: Offer, world: World, now: float) -> Decision:
    """The row of the try is committed before the cloud is called: the Launch is derived again until it is answered."""
    if run.cause == Cause.QUEUED:  # its turn has come: from here on it waits for the platform
        run = replace(_out_of_line(run, now), cause=None, detail="")
    following = next_try(run, offer, world, now)
    counters = replace(run.counters, tries=run.counters.tries + 1)
    place = offer.placement
    placed = replace(run, try_=following, provider=place.provider, counters=counters, next_at=None, hold="")
    after = moved(placed, Status.LAUNCHING, now)
    market = "spot" if place.spot else "on-demand"
    reason = why(run, now)
    which = f"attempt {following.attempt}, try {following.number}" + (f"; {reason}" if reason else "")
    zone = f"{place.zone} of {place.provider}" if run.policy.providers else place.zone
    text = f"Asking for {place.shape} {market} in {zone} ({which})."
    event = tell(
        EventKind.LAUNCHING, text, zone=place.zone, shape=place.shape, spot=place.spot, launch_id=following.launch_id
    )
    return Decision(after, (event,), (Launch(following, holder_gone=not run.retiring),))


def next_try(run: Run, offer: Offer, world: World, now: float) -> Try:
    """What would be asked for: the next try of the attempt that is being placed."""
    attempt = run.counters.attempts + 1
    last = run.try_
    number = last.number + 1 if last is not None and last.attempt == attempt else 1
    name = machine_name(world.knobs.machine_prefix, world.knobs.supervisor_id, run.run_id, attempt, number)
    return Try(
        attempt=attempt,
        number=number,
        launch_id=launch_id(run.generation, attempt, number),
        machine_name=name,
        placement=offer.placement,
        requested_at=now,
        price_usd_per_h=offer.price_usd_per_h,
        on_demand_usd_per_h=offer.on_demand_usd_per_h,
        minimum_s=offer.minimum_s,
    )


def _soonest(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)


def recover(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """A late beat may bring the last checkpoint, or the news that the work is done; it never revives the attempt."""
    heeded = heed_marker(run, obs, now)
    if heeded.stop is not None and run.retiring:
        return begin_stopping(heeded, now)
    run, events, finished = _late_beat(heeded, obs)
    if finished and obs.baton is NOT_READ:
        return Decision(run, events, wants=frozenset({BATON}))
    decision = place(run, obs, world, now)
    return replace(decision, events=(*events, *decision.events)) if events else decision


def _late_beat(run: Run, obs: Observation) -> tuple[Run, tuple[Event, ...], bool]:
    """(run with what the beat taught, events, whether the command says it finished)."""
    attempt = run.attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    if attempt is None or beat is None:
        return run, (), False
    value = beat.value
    finished = value.exit is not None and value.exit.work_done
    newer = value.checkpoint_step is not None and value.checkpoint_step > (
        attempt.step_kept if attempt.step_kept is not None else -1
    )
    last = value.step if value.step is not None and value.step > (attempt.step_last or 0) else attempt.step_last
    if not newer and last == attempt.step_last:
        return run, (), finished
    kept = value.checkpoint_step if newer else attempt.step_kept
    steps = [step for step in (run.files.checkpoint_step, kept) if step is not None]
    files = replace(run.files, checkpoint_step=max(steps, default=None))
    after = replace(run, attempt=replace(attempt, step_kept=kept, step_last=last), files=files)
    if not newer:
        return after, (), finished
    text = f"A late beat of attempt {attempt.number}: checkpoint {kept:,} is safe."
    return after, (tell(EventKind.LATE_BEAT, text, checkpoint_step=kept),), finished

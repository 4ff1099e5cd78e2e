"""From "no machine" to "a try is on record": pending, waiting, recovering, and launching between two tries.

A stop wins over every start. Nothing is started while the object store cannot be read, because it holds the stop marker
and the baton. The zone is chosen last, so that a limit or a finished attempt is seen first. Between two attempts, late
beats of the ended attempt are still received.

When the cool-down of an offer ends, a few runs request it (`paced`); the others wait for what these learn. Otherwise
five hundred waiting runs would make five hundred create calls in the same second, and all get the same failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from supervisor.contract.identifiers import launch_id, machine_name
from supervisor.domain.actions import Launch
from supervisor.domain.attempt import Try
from supervisor.domain.causes import NEEDS_PERSON, NO_GPU, OWN_WAITS, UNANSWERED, Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Offer, OfferKey, ZoneRecord, offer_key
from supervisor.domain.observation import BATON, STOP, Observation, Unknown, World
from supervisor.domain.run import Run, unneeded
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import (
    Decision,
    after_events,
    failed,
    held,
    moved,
    new_event,
    soonest,
    unchanged,
    unread,
)
from supervisor.lifecycle.ending.keeping import before_start, fallback_at, started
from supervisor.lifecycle.ending.retiring import holder_gone, next_due
from supervisor.lifecycle.living.beats import beat_of
from supervisor.lifecycle.living.limits import limit_passed, next_limit_at
from supervisor.lifecycle.living.overriding import (
    after_baton_fix,
    ask_for_baton_fix,
    done_of,
    finish_done_work,
    is_torn,
    with_marker,
)
from supervisor.lifecycle.offers.choosing import NoOffer, is_paused, lacks
from supervisor.lifecycle.offers.ladder import escalation_text, market_rule, pay_rule
from supervisor.lifecycle.offers.market import flex_wait_s, reason_text
from supervisor.lifecycle.offers.pinning import pinned
from supervisor.lifecycle.offers.queueing import place_of
from supervisor.lifecycle.phases.racing import rival_offer
from supervisor.lifecycle.phases.stopping import begin_stopping
from supervisor.wording.figures import age_text, clock_text

STORE_RETRY_S = 30.0
BLIND = "the object store cannot be read"  # rows hold it: a later version recognizes it there
PROBES = 3  # create calls in flight, per offer that has failed
HELD_S = 15.0  # when the others are decided again; a response usually comes sooner


def place(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Choose the next zone when that is due and allowed; else stay, wait or end, with the reason."""
    run = with_marker(after_baton_fix(run, obs), obs, now)
    if run.stop is not None:
        return _stopped(run, now)
    passed = limit_passed(run, now, world) or (None if _has_lacked(run, world) else _waited_too_long(run, world, now))
    if run.status != Status.PENDING and done_of(run, obs) is not None:
        return finish_done_work(run, now)
    if passed is not None and run.status != Status.PENDING and unread(obs, BATON):
        return unchanged(run, wants=frozenset({BATON}))  # a lost attempt may have finished in time
    if passed is not None:
        return failed(run, *passed, now)
    if run.asks:
        return unchanged(replace(run, hold="") if run.hold else run, check_after=next_limit_at(run, now))
    if is_paused(run, world, now):
        return unchanged(run, check_after=soonest(run.next_at, next_limit_at(run, now), next_due(run, now)))
    return _place_now(run, obs, world, now)


def _place_now(run: Run, obs: Observation, world: World, now: float) -> Decision:
    first = before_start(run, obs, world, now)
    if first is not None:
        return first
    choice = place_of(run, world, now)
    if _requests_nothing(choice) and run.status != Status.RECOVERING:
        return _without_offer(run, choice, world, now)  # a recovering run first checks whether its work was done
    blind = hold_unread_store(run, obs, now)
    if blind is not None:
        return blind
    run, events, pending = pinned(run, obs, now)
    if pending is not None:
        return pending
    if isinstance(choice, NoOffer):
        return after_events(events, _without_offer(run, choice, world, now))
    return after_events(events, _launch(run, choice, world, now))


def recover(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """A late beat may bring the last checkpoint, or say that the work is done. It never revives the attempt."""
    marked = with_marker(run, obs, now)
    if marked.stop is not None and run.retiring:
        return begin_stopping(marked, now)
    run, events, finished = _with_late_beat(marked, obs)
    if finished and unread(obs, BATON):
        return unchanged(run, wants=frozenset({BATON}))
    return after_events(events, place(run, obs, world, now))


def _with_late_beat(run: Run, obs: Observation) -> tuple[Run, tuple[Event, ...], bool]:
    """(the run after a beat of its ended attempt, the events, whether the command says that it finished)."""
    attempt = run.attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    if attempt is None or beat is None:
        return run, (), False
    value = beat.value
    finished = value.exit is not None and value.exit.work_done
    kept, last = attempt.step_kept, attempt.step_last
    newer = value.checkpoint_step is not None and (kept is None or value.checkpoint_step > kept)
    if value.step is not None and value.step > (last or 0):
        last = value.step
    if not newer and last == attempt.step_last:
        return run, (), finished
    kept = value.checkpoint_step if newer else kept
    steps = [step for step in (run.files.checkpoint_step, kept) if step is not None]
    save_s = run.files.checkpoint_s if value.save_s is None else value.save_s
    files = replace(run.files, checkpoint_step=max(steps, default=None), checkpoint_s=save_s)
    after = replace(run, attempt=replace(attempt, step_kept=kept, step_last=last), files=files)
    if not newer:
        return after, (), finished
    text = f"A late beat of attempt {attempt.number}: checkpoint {kept:,} is safe."
    return after, (new_event(EventKind.LATE_BEAT, text, checkpoint_step=kept),), finished


def hold_unread_store(run: Run, obs: Observation, now: float) -> Decision | None:
    """None when stop marker and baton have been read; without them no machine is requested, the first time or again."""
    wants = unread(obs, STOP, BATON)
    if wants:
        return unchanged(run, wants=wants)
    if is_torn(obs.baton):
        return ask_for_baton_fix(run, now)
    for part in (obs.stop, obs.baton):
        if isinstance(part, Unknown):
            reason = f"{BLIND} since {clock_text(now, now)}: {part.reason}"
            return held(run, run.hold if run.hold.startswith(BLIND) else reason, now, STORE_RETRY_S)
    return None


def _stopped(run: Run, now: float) -> Decision:
    assert run.stop is not None
    if run.retiring:
        return begin_stopping(run, now)
    by = f"by {run.stop.actor}"
    over = moved(replace(unneeded(run), cause=run.stop.cause, detail=by, next_at=None), Status.STOPPED, now)
    return Decision(over, (new_event(EventKind.STOPPED, f"Stopped {by}.", cause=run.stop.cause),), again=True)


# --- no offer ---------------------------------------------------------------------------------------------------------


def _requests_nothing(choice: Offer | NoOffer) -> TypeGuard[NoOffer]:
    """No provider gets a request: the run waits for other runs, a gate stops it, or its provider is not in the
    settings."""
    return isinstance(choice, NoOffer) and (choice.cause in OWN_WAITS or choice.lacking or choice.stopped != "")


def _without_offer(run: Run, choice: NoOffer, world: World, now: float) -> Decision:
    if choice.lacking:  # no limit of waiting counts
        standing = _with_stopped_wait(run, now, _has_lacked(run, world))
        return Decision(replace(standing, next_at=choice.until, hold=choice.detail))
    if choice.unread:  # capacity is there, but a machine that is started there now could not be seen
        return held(run, choice.detail, now, world.knobs.poll_interval_s)
    return wait(run, choice, now)


def wait(run: Run, why: NoOffer, now: float) -> Decision:
    """The run waits for an offer; each reason of a wait is one event, however often zones alternate in theirs.

    The limit of a wait for the platform does not count time in the queue, and being queued between two refusals does
    not restart it: only a machine does."""
    queued = why.cause in OWN_WAITS
    is_set = why.until is None or why.cause == Cause.QUOTA_HOURS  # the end of a cool-down is set by each refusal
    if is_set and run.status == Status.WAITING and run.next_at == why.until and _is_the_same(run, why):
        return unchanged(run, check_after=next_limit_at(run, now))
    placed = _in_queue(run, now) if queued else _out_of_queue(run, now)
    placed = _with_held(placed, why.held, now)
    after = replace(
        placed, next_at=soonest(why.until, fallback_at(run, now)), cause=why.cause, detail=why.detail, hold=""
    )
    events: tuple[Event, ...] = ()
    reason = why.stopped or why.cause
    earlier = tuple(each for each in run.waiting.reasons if each != reason)
    after = replace(after, waiting=replace(after.waiting, reasons=(*earlier, reason)))
    # After GPUs failed, the lost attempt had the same cause.
    is_news = run.cause != why.cause or why.stopped or why.cause in NO_GPU
    if is_news and reason not in run.waiting.reasons:
        data = {"code": why.stopped} if why.stopped else {}
        text = _waiting_text(run, why) + (f" {why.note[:1].upper()}{why.note[1:]}." if why.note else "")
        events = (new_event(EventKind.WAITING, text, cause=why.cause, until=why.until, **data),)
    return Decision(moved(after, Status.WAITING, now), events, check_after=soonest(why.until, next_limit_at(run, now)))


def _is_the_same(run: Run, why: NoOffer) -> bool:
    """It waits as before. The text of a full computer may alternate, and the figures of a gate change with each
    reading: these are not written again."""
    if run.cause != why.cause or run.waiting.held != why.held:
        return False
    if why.stopped:
        return run.waiting.reasons[-1:] == (why.stopped,)
    return why.cause in (Cause.QUEUED, Cause.QUOTA_HOURS) or run.detail == why.detail


def _waiting_text(run: Run, why: NoOffer) -> str:
    billed = "The old machine is still to be released" if run.retiring else "Nothing is billed"
    billed = "Its machine is kept" if run.kept is not None else billed
    if why.cause == Cause.QUOTA:
        return f"Needs you: {why.detail}. {billed}. Raise the quota, or allow another region."
    if why.cause in NO_GPU:
        advice = "Allow other zones, shapes or on-demand machines, or fix the driver"
        return f"Needs you: no zone has a working GPU: {why.detail}. {billed}. {advice}."
    if why.cause == Cause.QUEUED:
        return f"Queued: {why.detail}. {billed}."
    if why.cause == Cause.DEPENDENCY_FAILED:
        return f"Needs you: {why.detail}. {billed}."
    if why.cause in OWN_WAITS:
        return f"Waiting: {why.detail}. {billed}."
    if why.cause == Cause.LAUNCH_REJECTED:
        detail = why.detail.rstrip(".")
        return f"Needs you: the request for a machine was refused: {detail}. {billed}. Fix what it names."
    return f"Waiting: {why.cause}. {why.detail}. {billed}."


def _waited_too_long(run: Run, world: World, now: float) -> tuple[Cause, str] | None:
    """For a machine, or for the answer of a person."""
    limit_s = world.knobs.ask_limit_s if run.asks else run.policy.limits.wait_for_capacity_s
    if run.waiting.since is None or run.waiting.held or run.cause in OWN_WAITS or now - run.waiting.since < limit_s:
        return None
    if run.asks and run.cause is not None:
        return run.cause, f"{run.detail} ({UNANSWERED} within {age_text(limit_s)})"
    cause = run.cause if run.cause == Cause.NO_CAPACITY or run.cause in NEEDS_PERSON else Cause.NO_CAPACITY
    return cause, f"waited {now - run.waiting.since:.0f} s, limit {limit_s:.0f} s"


def _with_held(run: Run, held: bool, now: float) -> Run:
    """When the deadline needs the paid provider, the wait for it begins."""
    if run.waiting.held == held:
        return run
    since = run.waiting.since if held else now
    return replace(run, waiting=replace(run.waiting, held=held, since=since))


def _has_lacked(run: Run, world: World) -> bool:
    """It waits for a provider that is not in the settings, and did so in its last tick."""
    return bool(run.hold) and lacks(run, world)


def _in_queue(run: Run, now: float) -> Run:
    """The clock of its wait for the platform stops."""
    if run.cause in OWN_WAITS and run.waiting.since is not None:
        return run
    waited_s = 0.0 if run.waiting.since is None else max(0.0, now - run.waiting.since)
    return replace(run, waiting=replace(run.waiting, since=now, before_s=waited_s))


def _out_of_queue(run: Run, now: float) -> Run:
    """The clock of its wait for the platform goes on from where it stopped; it begins where there was no wait."""
    if run.waiting.since is None:
        return replace(run, waiting=replace(run.waiting, since=now, before_s=0.0))
    if run.cause not in OWN_WAITS:
        return run
    return replace(run, waiting=replace(run.waiting, since=now - run.waiting.before_s, before_s=0.0))


def _with_stopped_wait(run: Run, now: float, has_lacked: bool) -> Run:
    """The clock of its wait for the platform stands still: no provider is there that could have capacity."""
    if run.waiting.since is None or run.cause in OWN_WAITS:
        return run
    waited_s = run.waiting.before_s if has_lacked else max(0.0, now - run.waiting.since)
    return replace(run, waiting=replace(run.waiting, since=now - waited_s, before_s=waited_s))


# --- an offer ---------------------------------------------------------------------------------------------------------


def _launch(run: Run, offer: Offer, world: World, now: float) -> Decision:
    """The row of the try is committed before the cloud is called. The Launch is derived again until it is answered."""
    if run.cause in OWN_WAITS:  # from here on the run waits for the platform
        run = replace(_out_of_queue(run, now), cause=None, detail="")
    place, market = offer.placement, market_rule(run, world, now)
    if place.flex and market is not None and market.until is not None:
        run = _with_held(run, True, now)  # no limit of waiting counts until the deadline needs on-demand
    run, try_ = started(run, next_try(run, offer, world, now), now)
    beside = rival_offer(run, try_, world, now)
    rival = None if beside is None else next_try(replace(run, try_=try_), beside, world, now)
    rival = rival and replace(rival, beside=try_.launch_id)
    placed = replace(
        run,
        try_=try_,
        rival=rival or run.rival,
        provider=place.provider,
        counters=replace(run.counters, tries=run.counters.tries + (1 if rival is None else 2)),
        next_at=None,
        hold="",
    )
    after = moved(placed, Status.LAUNCHING, now)
    rule = pay_rule(run, world, now)
    reasons = [escalation_text(run, now), "" if rule is None else rule.text, reason_text(market, spot=place.spot)]
    which = "; ".join(filter(None, [f"attempt {try_.attempt}, try {try_.number}", *reasons]))
    zone = f"{place.zone} of {place.provider}" if run.policy.providers else place.zone
    kept = f"Starting the kept machine {try_.machine_name}"
    what = f"Requesting {place.shape} {place.market}" if try_.on is None else kept
    also = "" if rival is None else f" and in {rival.placement.zone}: the first machine is used, the other one deleted"
    text = f"{what} in {zone}{also} ({which})."
    event = new_event(
        EventKind.LAUNCHING, text, zone=place.zone, shape=place.shape, spot=place.spot, launch_id=try_.launch_id
    )
    calls = (try_,) if rival is None else (try_, rival)
    return Decision(after, (event,), tuple(Launch(call, holder_gone(run)) for call in calls))


def next_try(run: Run, offer: Offer, world: World, now: float) -> Try:
    """The next try of the attempt that is being placed, for this offer."""
    attempt = run.counters.attempts + 1
    calls = [call.number for call in (run.try_, run.rival) if call is not None and call.attempt == attempt]
    number = max(calls, default=0) + 1
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
        off_usd_per_h=offer.off_usd_per_h,
        waits_s=flex_wait_s(run, market_rule(run, world, now), world, now) if offer.placement.flex else 0.0,
    )


# --- offers that have refused -----------------------------------------------------------------------------------------


def paced(
    decisions: Sequence[Decision], before: Mapping[int, Run], zones: Mapping[OfferKey, ZoneRecord], now: float
) -> list[Decision]:
    """The decisions; those that would request an offer with enough requests already wait instead, and so does a run of
    a lower priority than one that requests it. `before`: the runs as they were. Repeats of a create call that was on
    record are never held back."""
    in_flight: Counter[OfferKey] | None = None
    highest: dict[OfferKey, int] = {}
    kept = []
    for decision in sorted(decisions, key=lambda decision: -decision.run.policy.priority):
        offers = [offer for offer in _newly_requested(decision, before) if offer in zones and zones[offer].failures]
        if not offers:
            kept.append(decision)
            continue
        if in_flight is None:
            in_flight, highest = _in_flight(before.values())
        priority = decision.run.policy.priority
        full = [item for item in offers if in_flight[item] >= PROBES or priority < highest.get(item, priority)]
        if full:
            kept.append(_held(before[decision.run.key], zones[full[0]], now))
        else:
            in_flight.update(offers)
            highest.update(dict.fromkeys(offers, priority))
            kept.append(decision)
    return kept


def _newly_requested(decision: Decision, runs_before: Mapping[int, Run]) -> list[OfferKey]:
    calls = [action.try_ for action in decision.actions if isinstance(action, Launch)]
    if not calls:
        return []
    run = runs_before[decision.run.key]
    known_ids = [call.launch_id for call in (run.try_, run.rival) if call is not None]
    return [offer_key(call.placement) for call in calls if call.launch_id not in known_ids]


def _in_flight(runs: Iterable[Run]) -> tuple[Counter[OfferKey], dict[OfferKey, int]]:
    """(create calls without a response so far, the highest priority of their runs), by offer."""
    counts: Counter[OfferKey] = Counter()
    highest: dict[OfferKey, int] = {}
    for run in runs:
        for call in (run.open_try, run.open_rival):
            if call is not None and (run.attempt is None or run.attempt.launch_id != call.launch_id):
                offer = offer_key(call.placement)
                counts[offer] += 1
                highest[offer] = max(highest.get(offer, run.policy.priority), run.policy.priority)
    return counts, highest


def _held(run: Run, record: ZoneRecord, now: float) -> Decision:
    return wait(run, NoOffer(now + HELD_S, Cause(record.cause), record.detail), now)

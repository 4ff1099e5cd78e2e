"""`keep: machine`: the machine of an ended attempt stays with its disks, switched off, for the run's next attempt.

It lies in `retiring` with its own limit (`keep_for_s`), so a sweep expects it and its deletion cannot be forgotten. A
start of it is a try like any other: the row first, then the baton, then the call. The try takes the machine out of
`retiring`; a failed try puts it back. While it is there, nothing else is started for the run: the next attempt is on
this machine, or after its deletion on a new one. So two machines of the run never train at the same time.

The platform's own limit of a machine's time counts only while it runs. A machine that is off is deleted by the rules
here.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import Action, Release, SwitchOff
from supervisor.domain.attempt import Attempt, Kept, Retiring, Try
from supervisor.domain.causes import KEEPS_MACHINE, Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.observation import Observation, Part, Seen, Unknown, World
from supervisor.domain.policies import KeepRule
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, held, new_event
from supervisor.lifecycle.offers.ladder import ladder
from supervisor.wording.figures import age_text, clock_text, money_text

# A machine whose start was requested and has not happened is off too: the listing shows it as ASKED.
OFF = (MachineState.ENDED, MachineState.ASKED)
ON = (MachineState.STARTING, MachineState.UP)


def with_kept(item: Retiring, rule: KeepRule, attempt: Attempt, *, freed: bool, now: float) -> Retiring:
    """The machine of this ended attempt, kept where the run's rule says so and it is as good as before. `freed`: its
    full disk has space again. A machine on which nothing ever ran, for a reason that nobody knows, is not as good."""
    is_good = attempt.cause in KEEPS_MACHINE or (attempt.cause == Cause.DISK_FULL and freed)
    is_good = is_good and (attempt.running_at is not None or attempt.cause != Cause.UNKNOWN)
    if not rule.machine or not is_good:
        return item
    kept = Kept(attempt.placement, off_by=item.until, usd_per_h=attempt.off_usd_per_h)
    return replace(item, until=now + rule.for_s, kept=kept)


def followed(
    run: Run, item: Retiring, kept: Kept, machine: Machine, *, reading: str, now: float
) -> tuple[Retiring, tuple[Event, ...], tuple[Action, ...]]:
    """(the kept machine, events, actions): it is switched off when that is due, and deleted when its time is over.
    `reading`: what a listing shows of it now."""
    events = tuple[Event, ...]()
    if not kept.given_up and (why := _over(run, item, now)):
        item, kept, event = _given_up(item, kept, why, now)
        events = (event,)
    if kept.given_up:
        return item, events, (Release(item.ref, item.launch_id, f"kept no longer: {kept.given_up}", (reading,)),)
    if item.ref.machine_id != (machine.machine_id or None):  # of a machine that is off, or was started again in vain
        item = replace(item, ref=replace(item.ref, machine_id=machine.machine_id or None))
    if kept.off_at is None and machine.state in OFF:
        kept = replace(kept, off_at=now)
        item = replace(item, kept=kept)
        text = f"Machine {item.ref.name} is off and kept{_price_text(kept)}. It is deleted at "
        text += f"{clock_text(item.until, now)} if the run has not used it by then."
        events = (new_event(EventKind.MACHINE_KEPT, text, machine=item.ref.name, until=item.until),)
    if machine.state in ON and now >= kept.off_by:
        return item, events, (SwitchOff(item.ref, (reading,)),)
    return item, events, ()


def _over(run: Run, item: Retiring, now: float) -> str:
    """Why this machine may stay no longer; "" = it may."""
    if now >= item.until:
        return f"it was kept for {age_text(max(0.0, now - item.since))}"
    if run.terminal and run.cause == Cause.BUDGET:
        return "the budget of its run is spent"
    return ""


def _price_text(kept: Kept) -> str:
    if kept.usd_per_h is None:
        return ": the price of its disks is not known"
    return f": its disks cost {money_text(kept.usd_per_h)}/h" if kept.usd_per_h else ""


def _given_up(item: Retiring, kept: Kept, why: str, now: float) -> tuple[Retiring, Kept, Event]:
    kept = replace(kept, given_up=why)
    text = f"The kept machine {item.ref.name} is deleted: {why}."
    event = new_event(EventKind.MACHINE_KEPT, text, machine=item.ref.name, given_up=why)
    return replace(item, until=min(item.until, now), kept=kept), kept, event


def give_up(run: Run, why: str, now: float) -> tuple[Run, tuple[Event, ...]]:
    """The run without its kept machine, which is deleted before anything else is started."""
    if run.kept is None or run.kept[1].given_up:
        return run, ()
    before, kept = run.kept
    after, _, event = _given_up(before, kept, why, now)
    return replace(run, retiring=tuple(after if item is before else item for item in run.retiring)), (event,)


# --- the next attempt -------------------------------------------------------------------------------------------------


def before_start(run: Run, obs: Observation, world: World, now: float) -> Decision | None:
    """What must happen first where the run has a kept machine; None = it has none, or that can be started now."""
    if run.kept is None:
        return None
    item, kept = run.kept
    name, pause_s = item.ref.name, world.knobs.poll_interval_s
    if kept.given_up:
        return held(run, f"the kept machine {name} is deleted first: {kept.given_up}", now, pause_s)
    why = _unusable(run, kept, world, now)
    if why:
        after, events = give_up(run, why, now)
        return Decision(after, events, again=True)
    part = _part(run, item, obs)
    if isinstance(part, Seen) and part.value.state in OFF:
        return None
    state = f"cannot be read: {part.reason}" if isinstance(part, Unknown) else "is not off yet"
    return held(run, f"the kept machine {name} {state}", now, pause_s)


def _part(run: Run, item: Retiring, obs: Observation) -> Part[Machine]:
    parts = zip(run.retiring, obs.retiring, strict=False)
    return next((part for each, part in parts if each.ref.name == item.ref.name), Unknown("not read"))


def _unusable(run: Run, kept: Kept, world: World, now: float) -> str:
    """Why the next attempt needs another machine; "" = it does not. A provider that is not in the settings now, or that
    names no offer at all, says nothing about this machine."""
    rule = run.policy.keep
    if not rule.machine:
        return "its run keeps no machine any more"
    place = kept.placement
    if rule.fallback != "new" or world.lacks(place.provider):
        return ""
    if world.offers.get(place.provider) and all(offer.placement != place for offer in ladder(run, world, now)):
        return f"{place.shape} ({place.market}) in {place.zone} is no choice of this run any more"
    if kept.refused_at is not None and now - kept.refused_at >= rule.wait_s:
        return f"it could not be started within {age_text(rule.wait_s)}: {kept.refusal}"
    return ""


def fallback_at(run: Run, now: float) -> float | None:
    """When the run gives up its kept machine for a new one; None = nothing is due later."""
    rule = run.policy.keep
    if run.kept is None or rule.fallback != "new" or run.kept[1].refused_at is None:
        return None
    at = run.kept[1].refused_at + rule.wait_s
    return at if at > now else None


def started(run: Run, try_: Try, now: float) -> tuple[Run, Try]:
    """(the run without its kept machine, the try that starts it again). Unchanged where there is none."""
    if run.kept is None:
        return run, try_
    item, kept = run.kept
    run = with_disks_billed(run, kept, now)
    own = run.attempt is not None and run.attempt.launch_id == item.launch_id
    if own and run.attempt is not None:  # the machine is not that attempt's any more
        run = replace(run, attempt=replace(run.attempt, gone_at=run.attempt.gone_at or now))
    item = replace(item, kept=replace(kept, off_at=now))
    left = tuple(each for each in run.retiring if each.ref.name != item.ref.name)
    return replace(run, retiring=left), replace(try_, machine_name=item.ref.name, on=item)


def put_back(run: Run, try_: Try, cause: Cause, detail: str, now: float) -> tuple[Run, tuple[Event, ...]]:
    """The run after this try, which did not start its kept machine. A refusal that waiting does not change gives the
    machine up, where the run's rule allows a new one."""
    if try_.on is None or try_.on.kept is None:
        return run, ()
    kept = try_.on.kept
    if cause != Cause.STOP_REQUESTED:
        kept = replace(kept, refused_at=now if kept.refused_at is None else kept.refused_at, refusal=detail)
    after = replace(run, retiring=(*run.retiring, replace(try_.on, kept=kept)))
    if cause == Cause.LAUNCH_REJECTED and run.policy.keep.fallback == "new":
        return give_up(after, f"its start was refused: {detail.rstrip('.')}", now)
    return after, ()


def without_kept(run: Run, kept: Kept, now: float) -> Run:
    """The run whose kept machine is known gone: a pause that its refused start has caused is over."""
    run = with_disks_billed(run, kept, now)
    return run if kept.refused_at is None or run.terminal else replace(run, next_at=None)


def with_disks_billed(run: Run, kept: Kept, now: float) -> Run:
    """The run with the cost of these disks until now among its past costs."""
    is_priced = kept.off_at is None or kept.usd_per_h is not None
    money, more_usd = run.money, kept.disks_usd(now)
    money = replace(money, cost_usd=money.cost_usd + more_usd, disks_usd=money.disks_usd + more_usd)
    return replace(run, money=replace(money, all_known=money.all_known and is_priced))


def is_settled(run: Run) -> bool:
    """Nothing of the run is left that must be gone, or off, before the run may end."""
    return all(item.kept is not None and item.kept.off_at is not None for item in run.retiring)

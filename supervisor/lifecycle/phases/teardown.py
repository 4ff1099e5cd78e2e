"""The machine of a run whose results are verified: who approves its end, and when its bill is known to have ended.

A machine may be kept until a person approves its release (`on_success: ask`) and until the results are pulled
(`require_pull`). Where both apply, both must come. After `ask_limit_s` it is released in any case.

Where machines cannot be had back there is no such limit: nothing but the approval of that machine, after its results
are verified, gives it back. A host is billed until somebody stops it. After the approval the run's own processes are
ended, then the approved verb is carried out, by a command, a webhook or a person. The run stays until a later read, or
a person, confirms that the bill has ended: could not read is not stopped. A host that others use is not given back; the
last run on it asks. Of several that ask, it is the oldest one. A host is handed over only to a run that may ask later;
where others are only leaving, the run waits until it is alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

from supervisor.domain.actions import Action, ReadMeter, StopMeter
from supervisor.domain.attempt import Bill, Retiring
from supervisor.domain.events import AWAITING, Event, EventKind
from supervisor.domain.machines import How, Machine, MachineState
from supervisor.domain.observation import (
    LISTING,
    WRITTEN_OFF,
    Absent,
    HostUser,
    MeterReport,
    Observation,
    Part,
    Seen,
    Unknown,
    World,
    zone_name,
)
from supervisor.domain.run import Approval, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, after_events, moved, new_event, unchanged
from supervisor.lifecycle.ending.machines import reading_text
from supervisor.lifecycle.ending.retiring import gone_for_good
from supervisor.wording.run import status_text

RETRY_S = (60.0, 300.0, 900.0)  # of a verb that failed; then always the last

Host = tuple[str, str]  # provider, zone


def is_precious(run: Run, world: World) -> bool:
    """Its machine cannot be had back, or is billed until somebody stops it: only a person gives it up."""
    return run.attempt is not None and world.meter_at(run.attempt.placement) is not None


def hold_or_complete(run: Run, world: World, now: float) -> Decision:
    """`run` has its outcome and no live attempt: completed (or partial) at once, where nothing keeps its machine."""
    run = _with_new_bill(run, world, now)
    if not run.retiring or not (_needs_approval(run, world) or run.awaits_pull):
        return _complete(run, now)
    note = "awaiting a pull of the results" if run.awaits_pull else "awaiting approval"
    until = now + world.knobs.ask_limit_s
    held = tuple(replace(item, note=note, until=until) if _may_stay(item) else item for item in run.retiring)
    return Decision(moved(_held(replace(run, retiring=held), now), Status.AWAITING_TEARDOWN, now), again=True)


def _held(run: Run, now: float) -> Run:
    """Its last machine stays for a person from now on."""
    attempt = run.attempt
    return run if attempt is None else replace(run, attempt=replace(attempt, held_at=now))


def _may_stay(item: Retiring) -> bool:
    """A machine that lost a race never had anything that a person may need."""
    return item.bill is None and item.lost_until is None


def _with_new_bill(run: Run, world: World, now: float) -> Run:
    """A host is billed although the run's machine on it may be gone. A loss that was accepted before the results were
    verified approves nothing, and `on_success: keep` is a wait for the approval."""
    attempt = run.attempt
    meter = None if attempt is None else world.meter_at(attempt.placement)
    if attempt is None or meter is None:
        return run
    bill, retiring = Bill(meter.how, meter.verb, meter.confirms), list(run.retiring)
    if all(item.launch_id != attempt.launch_id for item in retiring):
        if meter.how is How.RELEASE:
            return run
        retiring.append(Retiring(attempt.ref, attempt.launch_id, now, now))
    retiring = [
        replace(item, until=now, note="awaiting approval", bill=bill, kept=None)
        if item.launch_id == attempt.launch_id
        else item
        for item in retiring
    ]
    return replace(run, retiring=tuple(retiring), kept_until=None, approval=None)


def _needs_approval(run: Run, world: World) -> bool:
    return run.policy.on_success == "ask" or is_precious(run, world)


def await_teardown(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Results are verified; only the release waits. A stop changes nothing here."""
    events: tuple[Event, ...] = ()
    if run.stop is not None:
        run = replace(run, stop=None)
        text = "Stop changes nothing: the work is done and only the release waits."
        events = (new_event(EventKind.STOP_IGNORED, text),)
    if run.billed is not None:
        part = next((part for item, part in zip(run.retiring, obs.retiring, strict=False) if item is run.billed), None)
        return after_events(events, _await_bill(run, part or Unknown("not read"), obs, world, now))
    limit_at = run.status_since + world.knobs.ask_limit_s
    approved = run.approval is not None or (run.policy.require_pull and not _needs_approval(run, world))
    if not run.retiring:
        if run.approval is None:
            events = (*events, new_event(EventKind.MACHINE_RELEASED, "The machine ended by itself."))
        return after_events(events, _complete(run, now))
    if (approved and not run.awaits_pull) or now >= limit_at:
        return after_events(events, _complete(_with_release(run, now), now))
    parts = zip(run.retiring, obs.retiring, strict=False)
    first = next((part for item, part in parts if item.lost_until is None), None)
    if isinstance(first, Seen) and first.value.state == MachineState.ENDED:
        return after_events(events, _complete(run, now))
    return Decision(run, events, check_after=limit_at)


def _with_release(run: Run, now: float) -> Run:
    """A machine that is kept for a person in any case (`on_success: keep`) stays for the rest of its time."""
    until = max(now, run.kept_until or now)
    note = "approved" if run.approval is not None else "not needed any more"
    items = tuple(
        item if item.lost_until is not None else replace(item, until=until, note=note) for item in run.retiring
    )
    return replace(run, retiring=items)


def _complete(run: Run, now: float, more: str = "") -> Decision:
    partial = run.files.outcome is not None and bool(run.files.outcome.missing)
    status, kind = (Status.PARTIAL, EventKind.PARTIAL) if partial else (Status.COMPLETED, EventKind.COMPLETED)
    text = f"Partial: {run.detail}." if partial else "Completed; results verified."
    return Decision(moved(run, status, now), (new_event(kind, text + more),), again=True)


# --- the bill ---------------------------------------------------------------------------------------------------------


def _await_bill(run: Run, part: Part[Machine], obs: Observation, world: World, now: float) -> Decision:
    run = _with_present_meter(run, world)
    item = run.billed
    assert item is not None
    assert item.bill is not None
    others = () if item.bill.done_at is not None else _others(run, item, world)
    heirs = tuple(user.name for user in others if user.waits or user.works)
    if heirs and not run.awaits_pull:
        return _hand_over(run, item, heirs, now)
    if not item.bill.announced and (not others or run.awaits_pull):
        return _ask(run, item, now)
    approval = run.approved_end
    if approval is None or run.awaits_pull:
        return unchanged(run)
    run, events = _noted(run, item, part, obs, now, alone=not others)
    item = run.billed
    assert item is not None
    assert item.bill is not None
    confirmed_by = "" if isinstance(part, Seen) else _confirmed_by(item, approval, obs)
    if confirmed_by:
        return after_events(events, _end_bill(run, item, confirmed_by, now))
    actions, check_after = _next_actions(item, part, approval, world, now, alone=not others)
    return Decision(run, events, actions, check_after=check_after)


def _ask(run: Run, item: Retiring, now: float) -> Decision:
    """Only now, because a run that hands its host over to another one asks nothing."""
    run = _with_bill(run, item, announced=True)
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    awaiting = {AWAITING: "pull" if run.awaits_pull else "approval"}
    event = new_event(EventKind.NEEDS_PERSON, status_text(run, now), usd_per_h=price, **awaiting)
    return Decision(run, (event,), again=True)


def _with_present_meter(run: Run, world: World) -> Run:
    """The settings may have changed since the bill was stored, or since the approval: a verb that is not offered any
    more is asked for again. A host that left the settings keeps what it had."""
    item = run.billed
    assert item is not None
    assert item.bill is not None
    bill, meter, approval = item.bill, world.meters.get((item.ref.provider, item.ref.zone)), run.approved_end
    if meter is None:
        return run
    changes: dict[str, Any] = {}
    if (bill.how, bill.verb, bill.confirms) != (meter.how, meter.verb, meter.confirms):
        changes = {"how": meter.how, "verb": meter.verb, "confirms": meter.confirms}
    if bill.how is not meter.how and bill.done_at is None:  # the tries, or the request to a person, were another way's
        changes |= {"tried_at": None, "tries": 0, "problem": ""}
    is_offered = approval is None or approval.meter_stopped or approval.verb in meter.verbs
    if not is_offered and bill.done_at is None:
        run, changes = replace(run, approval=None), {**changes, "announced": False}
    return _with_bill(run, item, **changes) if changes else run


def _with_bill(run: Run, item: Retiring, **changes: Any) -> Run:
    assert item.bill is not None
    changed = replace(item, bill=replace(item.bill, **changes))
    return replace(run, retiring=tuple(changed if each is item else each for each in run.retiring))


def _noted(
    run: Run, item: Retiring, part: Part[Machine], obs: Observation, now: float, *, alone: bool
) -> tuple[Run, tuple[Event, ...]]:
    """The row with what the reports of the actions say, each once."""
    bill, approval, events = item.bill, run.approved_end, list[Event]()
    assert bill is not None
    assert approval is not None
    host, changes = item.ref.zone, dict[str, Any]()
    is_gone = isinstance(part, Absent) and part.source != WRITTEN_OFF
    if bill.left_at is None and is_gone and bill.how is not How.RELEASE:
        changes["left_at"] = now
        events.append(new_event(EventKind.METER, f"The run's own processes on {host} have ended.", host=host))
    tried = _report(obs.verb, item, approval)
    if tried is not None and (bill.tried_at is None or tried.at > bill.tried_at):
        changes |= {"tried_at": tried.at, "problem": "" if tried.good else tried.text}
        readings = list(tried.readings)
        if tried.good:
            changes |= {"done_verb": tried.verb, "done_at": tried.at, "tries": 0}
            text = f"`{tried.verb}` of {host} was carried out ({tried.text}). Its bill counts until a read confirms it."
            events.append(new_event(EventKind.METER, text, host=host, verb=tried.verb, readings=readings))
        else:
            changes["tries"] = bill.tries + 1
            if not bill.tries:
                text = f"`{tried.verb}` of {host} failed ({tried.text}) and is retried."
                events.append(_needs_person(run, text, host, readings=readings))
    if bill.how is How.ASK and bill.tried_at is None and alone:
        changes["tried_at"] = now
        text = f"Do it now: `{approval.verb}` of {host}, which is billed until then."
        events.append(_needs_person(run, f"{text} Then confirm it: spot approve {run.run_id} --meter-stopped", host))
    read, tried_at = _report(obs.meter, item, approval), changes.get("tried_at", bill.tried_at) or 0.0
    if read is not None and not read.good and read.at > tried_at and bill.problem != read.text:
        changes["problem"] = read.text
    return (_with_bill(run, item, **changes) if changes else run), tuple(events)


def _needs_person(run: Run, text: str, host: str, **data: Any) -> Event:
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    data[AWAITING] = "meter"
    return new_event(EventKind.NEEDS_PERSON, f"Needs a person: {text}", usd_per_h=price, host=host, **data)


def _report(part: Part[MeterReport], item: Retiring, approval: Approval) -> MeterReport | None:
    """A report about another machine, another verb, or from before the approval says nothing."""
    if not isinstance(part, Seen):
        return None
    report = part.value
    fits = (report.machine, report.verb) == (item.ref.name, approval.verb)
    return report if fits and report.at >= approval.at else None


def _is_done(bill: Bill, approval: Approval) -> bool:
    return bill.done_at is not None and bill.done_verb == approval.verb


def _confirmed_by(item: Retiring, approval: Approval, obs: Observation) -> str:
    """Who or what says that the bill has ended; "" = nobody yet."""
    assert item.bill is not None
    if approval.meter_stopped:
        return f"{approval.actor} has seen it"
    read, done = _report(obs.meter, item, approval), _is_done(item.bill, approval)
    if read is None or not read.good or (done and read.at < (item.bill.done_at or 0.0)):
        return ""
    return f"a later read says so ({read.text})"


def _next_actions(
    item: Retiring, part: Part[Machine], approval: Approval, world: World, now: float, *, alone: bool
) -> tuple[tuple[Action, ...], float | None]:
    """Before the verb, a listing must show that the run's processes are gone and who else is there. A late one does not
    show who has come since, and a write-off is no reading."""
    bill, host = item.bill, (item.ref.provider, item.ref.zone)
    assert bill is not None
    done, meter = _is_done(bill, approval), world.meters.get(host)
    if meter is None or isinstance(part, Seen):
        return (), None
    is_read = isinstance(part, Absent) and part.source == LISTING
    if bill.how in (How.COMMAND, How.WEBHOOK) and not done and is_read and alone:
        due_at = 0.0
        if bill.tries and bill.tried_at is not None:
            due_at = min(bill.tried_at, now) + RETRY_S[min(bill.tries, len(RETRY_S)) - 1]
        if now < due_at:
            return (), due_at
        readings = (f"{LISTING}: {reading_text(part)}",)
        return (StopMeter(item.ref, approval.verb, world.knobs.poll_interval_s, readings),), None
    return ((ReadMeter(item.ref, approval.verb),) if bill.confirms else ()), None


def _end_bill(run: Run, item: Retiring, by: str, now: float) -> Decision:
    """A host that is away has no more reading of its machines: the bill has ended, so nothing waits for one."""
    run, _ = gone_for_good(run, item, now)
    left = tuple(each for each in run.retiring if each is not item)
    text = f"The bill of {item.ref.zone} has ended: {by}."
    event = new_event(EventKind.METER, text, host=item.ref.zone)
    return after_events((event,), _complete(replace(run, retiring=left), now))


# --- other users of the host ------------------------------------------------------------------------------------------


def with_host_users(
    world: World, runs: Iterable[Run], machines: Iterable[tuple[str, Machine]], is_held: Callable[[str], bool]
) -> World:
    """The world with everybody who has a machine on a host that is billed until somebody stops it, and without places
    on hosts whose end is approved. `runs`: at least those for which `is_on` is true. `machines`: with their providers,
    of the listings. `is_held`: this run of ours is in this cell, so its row says where it is."""
    if not world.meters:
        return world
    users: dict[Host, list[HostUser]] = {}
    run_ids, closing = set(), set()
    for run in runs:
        run_ids.add(run.run_id)
        billed = run.billed.ref if run.status == Status.AWAITING_TEARDOWN and run.billed is not None else None
        at_work = run.live_attempt.placement if run.live_attempt is not None else None
        for host in hosts_of(run) & world.meters.keys():
            waits = billed is not None and host == (billed.provider, billed.zone)
            works = at_work is not None and host == (at_work.provider, at_work.zone)
            users.setdefault(host, []).append(HostUser(run.run_id, run.key, waits, works))
            if waits and run.approved_end is not None:
                closing.add(zone_name(*host, world.machines_of(host[0])))
    for provider, machine in machines:
        host = (provider, machine.zone)
        ours = machine.supervisor_id == world.knobs.supervisor_id
        if host not in world.meters or machine.state == MachineState.ENDED:
            continue
        if not ours or not (machine.run_id in run_ids or is_held(machine.run_id)):
            name = machine.run_id if ours else f"{machine.name} of another supervisor"
            users.setdefault(host, []).append(HostUser(name, works=machine.state != MachineState.ENDING))
    host_users = {host: tuple(there) for host, there in users.items()}
    return replace(world, host_users=host_users, unread=world.unread | closing, closing=frozenset(closing))


def hosts_of(run: Run) -> set[Host]:
    """Where this run has a machine, or requests one. A machine that is kept for a person counts, one of an ended run
    that is being released does not."""
    return set() if run.terminal and run.kept_until is None else _places_of(run)


def is_on(run: Run, hosts: Container[Host]) -> bool:
    """It has a machine, or requests one, on one of these hosts; also where that is only being released."""
    return any(host in hosts for host in _places_of(run))


def _places_of(run: Run) -> set[Host]:
    hosts = {(item.ref.provider, item.ref.zone) for item in run.retiring}
    for launch in (run.live_attempt, run.open_try):
        if launch is not None:
            hosts.add((launch.placement.provider, launch.placement.zone))
    return hosts


def _others(run: Run, item: Retiring, world: World) -> tuple[HostUser, ...]:
    """Without those that wait for this run."""
    users = world.host_users.get((item.ref.provider, item.ref.zone), ())
    return tuple(user for user in users if user.key != run.key and (not user.waits or user.key < run.key))


def _hand_over(run: Run, item: Retiring, others: tuple[str, ...], now: float) -> Decision:
    """Only the run's own processes are ended."""
    released = replace(item, bill=None, until=now, note=f"the host is used by {', '.join(others)}")
    run = replace(run, retiring=tuple(released if each is item else each for each in run.retiring))
    text = f" {item.ref.zone} is still used by {', '.join(others)}, so its bill goes on."
    return _complete(run, now, text)

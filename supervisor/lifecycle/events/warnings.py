"""Events beside the decision: warnings before a limit, questions to a person and their reminders.

Each is written once. The run's row, written with the event, remembers it, so that neither a restart nor a second tick
repeats it; after a change for the better it may be written again. Nothing here changes what is decided. An event that
is announced also carries the run's account, because its reader may be far from any screen of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from supervisor.contract.beat_telemetry import Disk
from supervisor.domain.events import AWAITING, Event, EventKind, announced
from supervisor.domain.figures import disks_in, has_ample_disks, share_pct
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, new_event
from supervisor.wording.end import loss_accepted
from supervisor.wording.figures import age_text, count_text, money_text, size_text
from supervisor.wording.forecast import live_pulse
from supervisor.wording.run import status_text

BUDGET_SHARE = 0.8
DISK_LOW_PCT = 5.0
DISK_AMPLE_PCT = 10.0  # from here on it may warn again: a disk at its edge does not warn with every file
REMINDERS_S = (900.0, 3600.0)  # after the question; then every REMINDER_S
REMINDER_S = 6 * 3600.0
# For these the run's own sentence says more than the event's: what it has come to, and what to do.
_SAID_IN_FULL = frozenset(
    {EventKind.WAITING, EventKind.COMPLETED, EventKind.PARTIAL, EventKind.FAILED, EventKind.STOPPED}
)

Warned = tuple[Run, Event | None]


def with_warnings(before: Run, decision: Decision, now: float) -> Decision:
    """The decision with its run's warnings, and the run's account in every event that is announced."""
    if decision.wants:
        return decision
    run, events = decision.run, list(decision.events)
    if not run.terminal:
        for rule in _RULES:
            run, event = rule(before, run, now)
            if event is not None:
                events.append(event)
    if run is decision.run and not events:
        return decision
    return replace(decision, run=run, events=tuple(_with_account(event, run, now) for event in events))


def _with_account(event: Event, run: Run, now: float) -> Event:
    if announced(event) is None or event.kind == EventKind.CHECKPOINT_REJECTED:  # which changes no bill
        return event
    account: dict[str, object] = {
        "attempt": run.attempt.number if run.attempt is not None else 0,
        "cost_usd": round(run_cost_usd(run, now), 6),
        "cost_known": run.money.all_known,
        "budget_usd": run.policy.limits.budget_usd,
        "budget_from_usd": round(run.money.budget_from_usd, 6),
    }
    if event.kind in _SAID_IN_FULL:
        account["status_text"] = status_text(run, now)
    return replace(event, data={**account, **event.data})


def _budget(before: Run, run: Run, now: float) -> Warned:
    """Once for each budget of a generation: a budget that was raised warns again at its own share."""
    budget, live = run.policy.limits.budget_usd, run.live_attempt
    if budget is None or live is None or run.stop is not None:
        return run, None
    warn_at = run.money.budget_from_usd + BUDGET_SHARE * budget
    if run.money.budget_warned_usd is not None and run.money.budget_warned_usd >= warn_at:
        return run, None
    cost = run_cost_usd(run, now)
    if not warn_at <= cost < run.money.budget_from_usd + budget:
        return run, None
    spent, price = cost - run.money.budget_from_usd, live.price_usd_per_h
    left = f" At {money_text(price)}/h it is used up in {age_text((budget - spent) / price * 3600.0)}." if price else ""
    text = (
        f"{100 * spent / budget:.0f} % of its budget is spent: {money_text(spent)} of {money_text(budget)}.{left} "
        "Then it saves a checkpoint and ends."
    )
    event = new_event(EventKind.BUDGET_WARNING, text, spent_usd=round(spent, 6), usd_per_h=price)
    return replace(run, money=replace(run.money, budget_warned_usd=warn_at)), event


def _disk(before: Run, run: Run, now: float) -> Warned:
    """By the figures of the newest beat; where they have not changed, nothing has."""
    pulse = live_pulse(run)
    if pulse is None or (before.pulse is not None and before.pulse.telemetry == pulse.telemetry):
        return run, None
    needed = run.files.checkpoint_bytes or 0
    if not run.disk_low and has_ample_disks(pulse.telemetry, DISK_LOW_PCT, needed):
        return run, None
    disks = disks_in(pulse.telemetry)
    least = min(_free_shares(disks), default=None)
    if least is None:
        return run, None
    share, role, left = least
    free = disks["checkpoints"].free_bytes if "checkpoints" in disks else None
    if run.disk_low:
        ample = share >= DISK_AMPLE_PCT and (free is None or free >= 2 * needed)
        return (replace(run, disk_low=False) if ample else run), None
    if share >= DISK_LOW_PCT and (free is None or free >= needed):
        return run, None
    if share >= DISK_LOW_PCT and free is not None:
        share = share_pct(free, disks["checkpoints"].total_bytes) or share
        role, left = "checkpoints", f"{size_text(int(free))} left, where a checkpoint has {size_text(needed)}"
    text = (
        f"The disk of its {role} is nearly full: {left} ({share:.1f} %). Without free space no checkpoint can be saved."
    )
    event = new_event(EventKind.DISK_NEARLY_FULL, text, disk=role, free_pct=round(share, 2))
    return replace(run, disk_low=True), event


def _free_shares(disks: Mapping[str, Disk]) -> Iterator[tuple[float, str, str]]:
    """(free share in percent, role, in words) of bytes and inodes of each disk, as far as it reports them."""
    for role, disk in disks.items():
        for part, whole, words in (
            (disk.free_bytes, disk.total_bytes, "{size} left"),
            (disk.free_inodes, disk.total_inodes, "room for {count} files"),
        ):
            share = share_pct(part, whole)
            if share is not None and part is not None:
                yield share, role, words.format(size=size_text(int(part)), count=count_text(int(part)))


def _question(before: Run, run: Run, now: float) -> Warned:
    """The work is verified, and its machine is kept until a person approves its release. Of a host that is billed until
    somebody stops it, phases/teardown asks: others may use it."""
    if run.status != Status.AWAITING_TEARDOWN or before.status == Status.AWAITING_TEARDOWN or run.billed is not None:
        return run, None
    awaiting = {AWAITING: "pull" if run.awaits_pull else "approval"}
    return run, new_event(EventKind.NEEDS_PERSON, status_text(run, now), usd_per_h=_usd_per_h(run), **awaiting)


def _reminder(before: Run, run: Run, now: float) -> Warned:
    """A machine still waits for a person: what that has cost so far, at growing intervals."""
    asked_at = waits_for_a_person_since(run)
    if asked_at is None or asked_at >= now:
        return run, None
    last = max(asked_at, run.person.reminded_at or asked_at)
    if now < next_reminder_at(asked_at, last):
        return run, None
    price, waited_s = _usd_per_h(run), now - asked_at
    waiting_usd = None if price is None else price * waited_s / 3600.0
    so_far = f" {money_text(waiting_usd)} so far." if waiting_usd else ""
    waits = "Still waiting for you, for" if awaits_answer(run) else "The bill of its host has not ended for"
    event = new_event(
        EventKind.APPROVAL_REMINDER,
        f"{waits} {age_text(waited_s)}.{so_far} {status_text(run, now)}",
        waited_s=round(waited_s, 3),
        waiting_usd=None if waiting_usd is None else round(waiting_usd, 6),
        usd_per_h=price,
    )
    return replace(run, person=replace(run.person, reminded_at=now)), event


def waits_for_a_person_since(run: Run) -> float | None:
    """Since when a kept machine waits for a person, or an approved end of a bill for its confirmation; None = no
    decision is needed, or nothing is billed."""
    if run.status == Status.AWAITING_TEARDOWN:
        if not run.retiring:
            return None
        if not awaits_answer(run) and run.approval is not None:
            return run.approval.at if run.billed is not None else None
        return run.status_since
    waits = run.status == Status.FINISHING and bool(run.person.why) and not loss_accepted(run)
    bills = run.live_attempt is not None and run.live_attempt.price_usd_per_h != 0.0
    return run.person.since if waits and bills else None


def awaits_answer(run: Run) -> bool:
    """Not: approved, and pulled where that is required."""
    approval = run.approval if run.billed is None else run.approved_end
    return approval is None or run.awaits_pull


def next_reminder_at(asked_at: float, last: float) -> float:
    """The first time of the schedule after `last`, which is `asked_at` before the first reminder."""
    for after_s in REMINDERS_S:
        if asked_at + after_s > last:
            return asked_at + after_s
    later = last - asked_at - REMINDERS_S[-1]
    return asked_at + REMINDERS_S[-1] + (int(later // REMINDER_S) + 1) * REMINDER_S


def _usd_per_h(run: Run) -> float | None:
    """Of the machine that is kept; None = its price is unknown."""
    return run.attempt.price_usd_per_h if run.attempt is not None else None


_RULES: tuple[Callable[[Run, Run, float], Warned], ...] = (_budget, _disk, _question, _reminder)

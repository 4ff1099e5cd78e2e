"""The beginning of an attempt: its machine is obtained and billed, and later its training starts."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.attempt import Attempt, Try, attempt_on
from supervisor.domain.causes import Cause
from supervisor.domain.events import SAVED_ON_NOTICE, Event, EventKind
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, new_event
from supervisor.lifecycle.ending.ending import down_since
from supervisor.wording.figures import age_text, step_text


def obtain(run: Run, try_: Try, machine_id: str, now: float) -> Decision:
    """The attempt of this try begins."""
    text = f"Attempt {try_.attempt} has its machine {try_.machine_name} in {try_.placement.zone}."
    event = new_event(EventKind.OBTAINED, text, machine=try_.machine_name, machine_id=machine_id)
    return Decision(begin_attempt(run, try_, machine_id, now), (event,), again=True)


def begin_attempt(run: Run, try_: Try, machine_id: str, now: float) -> Run:
    """The run with its new attempt. The attempt before it stays with its machine, if that is not gone yet."""
    attempt = replace(
        attempt_on(try_, run.generation, machine_id, now),
        code=run.policy.code,
        preempted_at_step=_preempted_at_step(run),
    )
    last = run.attempt
    retiring = tuple(
        replace(item, attempt=last) if last is not None and item.launch_id == last.launch_id else item
        for item in run.retiring
    )
    return replace(
        run,
        attempt=attempt,
        counters=replace(run.counters, attempts=try_.attempt),
        waiting=replace(run.waiting, since=None, reasons=()),
        pulse=None,
        moving=replace(run.moving, refused=0) if try_.placement.spot else run.moving,
        retiring=retiring,
        hold="",  # what the launch waited for is over
    )


def _preempted_at_step(run: Run) -> int | None:
    """Of the last attempt that trained. One that never did has lost nothing more."""
    last = run.attempt
    if last is None or last.generation != run.generation:
        return None
    if last.training_at is None:
        return last.preempted_at_step
    return last.step_last if last.cause == Cause.PREEMPTED else None


def training_event(run: Run, attempt: Attempt, now: float) -> Event:
    """`run` as it was until the first beat of its training: it still contains since when it has not trained."""
    zone = attempt.placement.zone
    if attempt.number == 1:
        return new_event(EventKind.STARTED, f"Training in {zone}.", zone=zone)
    since = down_since(run)
    lost_s = None if since is None else max(0.0, now - since)
    begins = attempt.step_from if attempt.step_from is not None else run.files.checkpoint_step
    resumed = "" if begins is None else f", resumed from {step_text(begins)}"
    after = "" if lost_s is None else f"{'' if resumed else ','} after {age_text(lost_s)}"
    text = f"Training again in {zone}{resumed}{after}."
    event = new_event(EventKind.RECOVERED, text, zone=zone, step_from=begins, lost_s=lost_s and round(lost_s, 3))
    return replace(event, data={**event.data, SAVED_ON_NOTICE: attempt.begins_saved})

"""How an attempt ends: its cause is recorded, the counters move by the table of causes, and the run goes on or fails.

Free and paid failures differ: the table in domain/causes says what each end costs. The machine stays in `retiring`
until it is known gone. So no machine is forgotten, and the next attempt knows when the old holder cannot write.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

from supervisor.contract.heartbeat import Exit
from supervisor.domain.attempt import Retiring, training_s, with_links
from supervisor.domain.causes import (
    FIRST_SIGNAL,
    FREE_LIMITED,
    KNOWN_ERROR,
    LARGER,
    NO_GPU,
    REPAIRED,
    SAME_FAILURE,
    Cause,
    CauseRule,
    Kind,
    rule_for,
)
from supervisor.domain.diagnosis.verdict import Retry, Verdict
from supervisor.domain.events import ASKS, ENDS_THE_RUN, Event, EventKind
from supervisor.domain.ledger import with_bill_of
from supervisor.domain.observation import World
from supervisor.domain.run import Counters, Refusal, Run, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, after_events, failed, moved, new_event
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_end
from supervisor.lifecycle.diagnosis.rules.table import KNOWN_ENDS
from supervisor.lifecycle.ending.keeping import with_kept
from supervisor.lifecycle.ending.retrying import changes_of_the_next, conditions, too_small, used_memory, with_once
from supervisor.lifecycle.living.checkpoints import reached
from supervisor.lifecycle.offers.choosing import NoOffer, choose, refused_lately
from supervisor.lifecycle.offers.ladder import recent, with_preemption
from supervisor.lifecycle.offers.lessons import after_loss
from supervisor.wording.attempt import ended_text, kept_text, ran_s, steps_lost
from supervisor.wording.figures import ended, pruned_text
from supervisor.wording.forecast import asked_text, due_text
from supervisor.wording.why import announced_facts

KEEP = "keep"  # of `on_failure` and `on_success`
NO_PROGRESS_LIMIT = 3
DELETED_WINDOW_S = 3600.0
DELETED_LIMIT = 3
_OF_THE_COMMAND = (Cause.USER_ERROR, Cause.SETUP_FAILED, Cause.DISK_FULL)  # the same failure twice is no accident


@dataclass(frozen=True, slots=True)
class End:
    """Why an attempt ends, the readings this rests on, and how its machine leaves.

    `machine_gone`: it is known gone. `overlap_s`: after a notice the machine may go on for so long. `inferred`: the
    source, where no authority reports the end. `stopped_at`: when the machine stopped, by the platform's clock; None =
    it runs, or nothing reports it. `verdict`: what the rules say; None = the end explains itself. `repaired`: (files,
    bytes) that the agent removed from the run's `scratch`; None = it did not try. `memory_bytes`: the most that the
    machine used, by the platform."""

    cause: Cause
    evidence: str
    readings: tuple[str, ...] = ()
    machine_gone: bool = False
    overlap_s: float = 0.0
    exit: Exit | None = None
    inferred: str = ""
    stopped_at: float | None = None
    verdict: Verdict | None = None
    avoid_zone: bool = False  # whatever the table of causes says
    repaired: tuple[int, int] | None = None
    memory_bytes: float | None = None

    @property
    def freed(self) -> bool:
        """The disk has space again. Where it lacked inodes, empty files count too."""
        files, freed_bytes = self.repaired or (0, 0)
        return freed_bytes > 0 or (files > 0 and self.exit is not None and "inodes" in self.exit.disk_full)


def end_attempt(run: Run, end: End, world: World, now: float) -> Decision:
    """The attempt is over and the run recovers, or fails where the table or a limit says so."""
    assert run.live_attempt is not None
    named = end.exit is not None and end.exit.retry_named
    end = _diagnosed(end)
    holds = conditions(run, end.verdict, newest_checkpoint(run), world, now, freed=end.freed)
    after = close_attempt(run, end, now)
    failure = _failure(after, end)
    is_same = bool(failure) and failure == run.last_failure
    is_newer = _has_newer_checkpoint(run) and not (is_same and end.cause == Cause.DISK_FULL)
    rule = rule_for(end.cause, is_newer, named, holds - {KNOWN_ERROR} if named else holds)
    if rule.only_if == FIRST_SIGNAL and after.attempt is not None:
        after = replace(after, attempt=replace(after.attempt, free=True))
    asks = rule.kind == Kind.ASK and run.policy.on_failure != KEEP  # else the machine is kept for the person
    if asks and after.attempt is not None and end.verdict is not None:
        after = replace(after, attempt=replace(after.attempt, verdict=replace(end.verdict, retry=Retry.ASK)))
    after = replace(
        after,
        counters=replace(_counted(after, run, rule, now), memory_bytes=used_memory(run, end.cause, end.memory_bytes)),
        avoid_zone=run.live_attempt.placement.zone if rule.avoid_zone or end.avoid_zone else "",
        # The checkpoint with which the row of failures began; a newer one begins a new row.
        no_progress_base=after.files.checkpoint_step if rule.no_progress else run.no_progress_base,
        refusals=_refusals(after, end, now) + (too_small(run, world, now, end.evidence) if rule.then == LARGER else ()),
        once=with_once(run, rule, newest_checkpoint(run)),
        last_failure=failure or run.last_failure,
    )
    last = _last_reason(after, end, rule, repeated=is_same and rule.only_if != REPAIRED)
    if last is not None:
        explained = end.verdict is not None and end.verdict.cause == last[0]
        facts = announced_facts(end.verdict) if explained else {}
        decision = failed(after, *last, now, facts=facts)
        decision = replace(decision, run=keep_machine(decision.run, after.policy.on_failure, now))
        decision = after_events((ended_event(after, end, now, last=True),), decision)
    elif asks:
        decision = _ask(after, end, world, now)
    else:
        decision = _recover(after, end, rule, world, now)
        decision = after_events(changes_of_the_next(run, after, end.memory_bytes, rule, world), decision)
    decision = after_events(repaired_events(end), decision)
    lessons = after_loss(run.live_attempt.placement, world, now) if end.cause == Cause.PREEMPTED else ()
    return replace(decision, inferred=end.inferred, lessons=lessons)


def _diagnosed(end: End) -> End:
    """With the verdict about an end that no beat reports: the platform's record, a silence, a limit."""
    if end.verdict is not None:
        return end
    verdict = _verdict_on(end.cause, end.evidence)
    return replace(end, verdict=verdict) if verdict.cause == end.cause else end


@lru_cache(maxsize=1024)
def _verdict_on(cause: Cause, detail: str) -> Verdict:
    """Kept: thousands of runs may end in the same words at once."""
    return diagnose(of_end(cause, detail), KNOWN_ENDS)


def _recover(run: Run, end: End, rule: CauseRule, world: World, now: float) -> Decision:
    run = replace(
        run,
        next_at=now + _backoff_s(run, rule, end.cause, world),
        cause=end.cause,
        detail=end.evidence,
        down_since=down_since(run) or now,
    )
    recovering = moved(run, Status.RECOVERING, now)
    event = ended_event(recovering, end, now, _next_text(recovering, world, now))
    return Decision(recovering, (event,), check_after=recovering.next_at, again=True)


def _ask(run: Run, end: End, world: World, now: float) -> Decision:
    """The run waits without a machine. `retry` lets it go on, a stop ends it; phases/placing judges the limit."""
    since = down_since(run) or now
    asking = replace(
        run, next_at=None, cause=end.cause, detail=end.evidence, down_since=since, waiting=Waiting(since=now)
    )
    asking = moved(asking, Status.WAITING, now)
    ended_now = ended_event(asking, end, now, "The run waits for you")
    question = new_event(
        EventKind.NEEDS_PERSON,
        f"Needs you: {asked_text(asking)} Without an answer it fails {due_text(now + world.knobs.ask_limit_s, now)}.",
        cause=end.cause,
        **announced_facts(end.verdict),
    )
    return Decision(asking, (replace(ended_now, data={**ended_now.data, ASKS: True}), question), again=True)


def close_attempt(run: Run, end: End, now: float) -> Run:
    """The run with its attempt closed and the machine in `retiring`; status and counters stay as they are."""
    attempt, pulse = run.live_attempt, run.pulse
    assert attempt is not None
    last = pulse if pulse is not None and pulse.launch_id == attempt.launch_id else None
    closed = replace(
        attempt,
        ended_at=now,
        gone_at=now if end.machine_gone else None,
        stopped_at=None if end.stopped_at is None else min(max(end.stopped_at, attempt.started_at), now),
        cause=end.cause,
        evidence=end.evidence,
        step_last=reached(last.step, last.checkpoint_step) if last else None,
        step_kept=last.checkpoint_step if last else None,
        progress_at=last.progress_at if last else None,
        kept_at=last.checkpoint_at if last else None,
        stalled_s=last.stalled_s if last else 0.0,
        beat_at=last.beat_at if last else None,
        frozen_s=last.frozen_s if last else 0.0,
        frozen_at=last.frozen_at if last else None,
        saving_s=last.saving_s if last else None,
        exit=end.exit,
        readings=end.readings,
        verdict=end.verdict,
    )
    note = f"attempt {attempt.number} ended: {end.cause}; " + "; ".join(end.readings)
    retiring = Retiring(closed.ref, closed.launch_id, now, now + end.overlap_s, note)
    retiring = with_kept(retiring, run.policy.keep, closed, freed=end.freed, now=now)
    return replace(
        run,
        attempt=closed,
        try_=replace(run.try_, ended_at=now) if run.try_ is not None else None,
        retiring=run.retiring if end.machine_gone else (*run.retiring, retiring),
        training_s=run.training_s + training_s(closed, now),
        chain=with_links(run.chain, closed, last),
        money=with_bill_of(run.money, closed, now),
        files=replace(
            run.files,
            checkpoint_step=newest_checkpoint(run),
            checkpoint_s=run.files.checkpoint_s if last is None or last.save_s is None else last.save_s,
        ),
        reported=run.reported or bool(last and last.first_progress_at is not None),
        from_zero=last.from_zero if last is not None and last.from_zero is not None else run.from_zero,
    )


def newest_checkpoint(run: Run) -> int | None:
    """The newest verified checkpoint step that the row or the beats contain."""
    steps = [run.files.checkpoint_step, run.pulse.checkpoint_step if run.pulse is not None else None]
    return max((step for step in steps if step is not None), default=None)


def keep_machine(run: Run, setting: str, now: float) -> Run:
    """Where `on_success` or `on_failure` says `keep`, the machine may stay for `keep_s`, shown with its price."""
    if setting != KEEP or run.kept is not None or not run.retiring or run.attempt is None:
        return run
    until = now + run.policy.keep_s
    kept = tuple(
        replace(item, until=until, note="kept") if item.launch_id == run.attempt.launch_id else item
        for item in run.retiring
    )
    return replace(run, attempt=replace(run.attempt, held_at=now), retiring=kept, kept_until=until)


def _has_newer_checkpoint(run: Run) -> bool:
    """The live attempt saved one."""
    attempt, pulse = run.attempt, run.pulse
    if attempt is None or pulse is None or pulse.launch_id != attempt.launch_id or pulse.checkpoint_step is None:
        return False
    return attempt.step_from is None or pulse.checkpoint_step > attempt.step_from


def _counted(after: Run, before: Run, rule: CauseRule, now: float) -> Counters:
    counters, cause = after.counters, after.attempt.cause if after.attempt else None
    row_continues = after.files.checkpoint_step == before.no_progress_base
    backs_off = rule.kind in (Kind.INFRA, Kind.PAID, Kind.USER)
    deleted = recent(counters.deleted_at, DELETED_WINDOW_S, now)
    no_progress = counters.no_progress
    if rule.no_progress:
        no_progress = no_progress + 1 if row_continues and no_progress else 1
    free_row, step = counters.free_row, after.files.checkpoint_step
    if rule.kind == Kind.FREE and cause in FREE_LIMITED:
        free_row = free_row + 1 if free_row and step == counters.free_base else 1
    return replace(
        counters,
        free_row=free_row,
        free_base=step if free_row == 1 else counters.free_base,
        preemptions=counters.preemptions + (cause == Cause.PREEMPTED),
        counted=counters.counted + rule.counts,
        user_failures=counters.user_failures + (rule.kind == Kind.USER),
        no_progress=no_progress,
        streak=(1 if _has_newer_checkpoint(before) else counters.streak + 1) if backs_off else 0,
        deleted_at=(*deleted, now) if cause == Cause.MACHINE_DELETED else deleted,
        preempted_at=with_preemption(counters.preempted_at, after.policy, now)
        if cause == Cause.PREEMPTED
        else counters.preempted_at,
        timed_out=counters.timed_out + (cause == Cause.TIME_LIMIT),
        out_of_memory=counters.out_of_memory + (cause == Cause.HOST_OOM),
    )


def _refusals(run: Run, end: End, now: float) -> tuple[Refusal, ...]:
    """An offer whose GPUs do not work is not requested again for an hour."""
    kept = refused_lately(run, now)
    if end.cause not in NO_GPU or run.attempt is None:
        return kept
    place = run.attempt.placement
    return (*kept, Refusal(place.zone, place.shape, place.spot, now, end.cause, end.evidence, place.provider))


def _failure(run: Run, end: End) -> str:
    """What distinguishes one failure of the command from another; "" where it does not count: the user's own retry
    rules request a repeat of it, or its reason lies outside and may be over."""
    if end.exit is None or end.exit.retry_named or end.cause not in _OF_THE_COMMAND:
        return ""
    if end.cause == Cause.SETUP_FAILED and end.verdict is not None and end.verdict.goes_on:
        return ""
    step = run.attempt.step_last if run.attempt is not None else None
    return f"{end.cause} {end.exit.code} {end.exit.signal} {step} {end.exit.last_line}"


def _last_reason(run: Run, end: End, rule: CauseRule, repeated: bool) -> tuple[Cause, str] | None:
    """(cause, detail) when the run ends with this attempt. `repeated`: its last failure was the same."""
    counters, limits = run.counters, run.policy.limits
    if rule.kind == Kind.ASK:
        return (end.cause, end.evidence) if run.policy.on_failure == KEEP else None
    if rule.kind == Kind.FINAL:
        return end.cause, end.evidence
    if repeated:
        return end.cause, f"{end.evidence} ({SAME_FAILURE})"
    if rule.kind == Kind.USER and counters.user_failures >= limits.max_user_failures:
        return end.cause, f"{end.evidence} ({counters.user_failures} such failures, limit {limits.max_user_failures})"
    if len(counters.deleted_at) >= DELETED_LIMIT:
        return Cause.MACHINE_DELETED, (
            f"its machine was removed {len(counters.deleted_at)} times within an hour, the last time: {end.evidence}; "
            "use `spot stop` to stop a run"
        )
    free_row = counters.free_row if rule.kind == Kind.FREE and end.cause in FREE_LIMITED else 0
    if max(counters.no_progress if rule.no_progress else 0, free_row) >= NO_PROGRESS_LIMIT:
        at = "none" if run.files.checkpoint_step is None else f"step {run.files.checkpoint_step}"
        text = f"{max(free_row, counters.no_progress)} attempts without a newer checkpoint than {at}; last: {end.cause}"
        return Cause.NO_PROGRESS, text
    if rule.counts and counters.counted >= limits.max_attempts:
        text = f"{counters.counted} failed attempts, limit {limits.max_attempts}; last: {end.cause}"
        return Cause.LIMIT_REACHED, text
    return None


def _backoff_s(run: Run, rule: CauseRule, cause: Cause, world: World) -> float:
    """0 for free ends; else the backoff, with a jitter that is a pure function of the attempt."""
    if rule.then == "recover at once" or (rule.kind == Kind.FREE and cause != Cause.MACHINE_DELETED):
        return 0.0
    knobs = world.knobs
    doublings = min(max(run.counters.streak, len(run.counters.deleted_at)) - 1, 20)
    backoff_s = min(knobs.recovery_backoff_s * 2.0 ** max(doublings, 0), knobs.recovery_backoff_max_s)
    name = f"{run.run_id}/{run.attempt.number if run.attempt else 0}"
    return backoff_s * (0.8 + 0.4 * hashlib.sha256(name.encode()).digest()[0] / 255.0)


def down_since(run: Run) -> float | None:
    """Since when this generation has not trained; None = it trains, or has lost no attempt yet."""
    since = run.down_since
    return since if since is not None and since >= run.generation_at else None


def _next_text(run: Run, world: World, now: float) -> str:
    """Where the run goes on, as far as that is known before a machine is requested."""
    if run.cause == Cause.YIELDED:
        return "Back in the queue"
    choice = choose(run, world, now)
    if isinstance(choice, NoOffer) and choice.cause in NO_GPU:
        return "No other zone is left to try: the run waits for you"
    if isinstance(choice, NoOffer) and choice.cause == Cause.QUEUED:
        return "Our own machines use all capacity: the run continues when one of them is gone"
    if isinstance(choice, NoOffer) and choice.cause == Cause.QUOTA_HOURS:
        return f"{choice.detail[:1].upper()}{choice.detail[1:]}"
    if isinstance(choice, NoOffer):
        return "No zone has capacity now: the run waits for it"
    where = choice.placement.zone
    soon = run.next_at is None or run.next_at <= now
    return f"Restarting in {where}" if soon else f"Restarting in {where} {due_text(run.next_at, now)}"


def repaired_events(end: End) -> tuple[Event, ...]:
    """What the agent removed from the full disk, before it reported this end."""
    if end.repaired is None or not end.repaired[0]:
        return ()
    files, freed_bytes = end.repaired
    return (
        new_event(
            EventKind.REPAIRED, f"The disk was full: {pruned_text(files, freed_bytes)}.", files=files, bytes=freed_bytes
        ),
    )


def ended_event(run: Run, end: End, now: float, following: str = "", last: bool = False) -> Event:
    """`following`: what comes next, as far as this end decides it. `last`: the run ends with this attempt."""
    attempt = run.attempt
    assert attempt is not None
    saving = end.overlap_s > 0
    lost = steps_lost(attempt, run.files.checkpoint_step)
    kept = kept_text(attempt, run.files.checkpoint_step, saving)
    clauses = [clause for clause in (kept[:1].upper() + kept[1:], following) if clause]
    evidence = f": {end.evidence.rstrip('.')}" if end.evidence else ""
    which = f"Attempt {attempt.number} in {attempt.placement.zone} ended as {end.cause}{evidence}"
    event = new_event(
        EventKind.ATTEMPT_ENDED,
        " ".join(ended(clause) for clause in (which, *clauses)),
        cause=end.cause,
        zone=attempt.placement.zone,
        step_last=attempt.step_last,
        step_kept=attempt.step_kept,
        steps_lost=None if saving else lost,
        steps_at_risk=lost if saving else None,
        ran_s=round(ran_s(attempt, now), 3),
        status_text=" ".join(ended(clause) for clause in (ended_text(attempt, now), *clauses)),
        readings=list(end.readings),
        **announced_facts(end.verdict),
    )
    return replace(event, data={**event.data, ENDS_THE_RUN: True}) if last else event

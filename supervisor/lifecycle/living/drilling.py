"""Drills of a run: when one is due, the order to the agent, what its record proves, and which notice the run survives.

The agent drills within the attempt (agent/life/drilling): no attempt ends, so no drill costs a failure, a preemption or
a retry. The order stands in the row first; the action that writes it into the baton is repeated until a beat shows that
the agent has it. A beat that was not read orders nothing and closes nothing.

A verdict never says "survives" without proof. Each moment that the training knows needs a notice that reached it and a
resume whose first step follows the restored one; whatever is missing makes it "not_drilled", whatever went wrong makes
it "fails". A notice of N seconds is survived where the 95th percentile of the measured times fits into N less SPARE_S:
a machine that shuts down uses some of it. A second upload is counted, because a notice may come while a regular
checkpoint is on its way. Survived means that no step is lost: the newest checkpoint in the store is of the last step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from supervisor.contract import drill
from supervisor.contract.drill import Record, Round
from supervisor.contract.heartbeat import CHECKPOINT, EVALUATION, TRAINING, Beat
from supervisor.domain.actions import OrderDrill
from supervisor.domain.attempt import SPANS_KEPT, DrillFault, Drills, DrillVerdict
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.wording import forecast
from supervisor.wording.forecast import FAILS, NOT_DRILLED, SURVIVES

NOTICES_S = (30.0, 120.0)  # of which a verdict speaks: what clouds give, and the longest that one can ask for
SPARE_S = 5.0
UNTAKEN_S = 900.0
P95 = 0.95
Span = tuple[float, float]


class Drilled(NamedTuple):
    run: Run
    events: tuple[Event, ...] = ()
    actions: tuple[OrderDrill, ...] = ()


# --- the verdict ------------------------------------------------------------------------------------------------------


def judge(record: Record, before: Sequence[Span] = ()) -> DrillVerdict:
    """What this drill proves. `before`: spans of earlier drills of the run."""
    rounds = {each.moment: each for each in record.rounds}
    moments = dict.fromkeys((drill.TRAINING, drill.AGAIN, *record.moments))
    missing = tuple((moment, _why(rounds.get(moment))) for moment in moments if not _is_proven(moment, rounds))
    faults = tuple(fault for each in record.rounds if each.delivered for fault in faults_of(each))
    spans = (*before, *spans_of(record))
    p95_s = percentile([*map(needed_s, spans)]) if spans else None
    if faults:
        return DrillVerdict(FAILS, faults, missing, tuple((notice_s, False) for notice_s in NOTICES_S), p95_s)
    if missing or not spans:
        return DrillVerdict(NOT_DRILLED, (), missing, (), p95_s)
    notices = tuple((notice_s, fits(notice_s, spans)) for notice_s in NOTICES_S)
    fitting = [notice_s for notice_s, survives in notices if survives]
    if not fitting:
        return DrillVerdict(FAILS, (DrillFault(forecast.SLOW, "", p95_s),), (), notices, p95_s)
    ask_s = fitting[0] if fitting[0] > NOTICES_S[0] else None
    return DrillVerdict(SURVIVES, (), (), notices, p95_s, ask_s)


def faults_of(each: Round) -> tuple[DrillFault, ...]:
    """What went wrong in a notice that reached the command."""
    faults: list[tuple[str, float | None]] = []
    if each.killed and each.moment != drill.WARM_UP:
        faults.append((forecast.KILLED, each.leave_s))
    if each.upload_s is None:
        faults.append((forecast.UPLOAD, None))
    if each.step is None or each.saved is None or each.saved < each.step:
        lost = None if each.step is None else float(each.step - (each.saved or 0))
        faults.append((forecast.LOST, lost))
    if each.resumed == drill.ENDED:
        faults.append((forecast.CRASHED, None))
    if each.resumed == drill.LATE:
        faults.append((forecast.LATE, None))
    if each.resumed == drill.STEPPED:
        faults += _of_first_step(each)
    return tuple(DrillFault(word, each.moment, figure) for word, figure in faults)


def _of_first_step(each: Round) -> list[tuple[str, float | None]]:
    """Steps that are counted from 0 may name a checkpoint by the next step: then the first one has its number."""
    faults: list[tuple[str, float | None]] = []
    if each.first is not None and each.restored is not None:
        least = each.restored + (0 if each.from_zero else 1)
        most = each.restored + each.stride
        if each.first < least:
            faults.append((forecast.REPEATED, float(least - each.first)))
        elif each.first > most:
            faults.append((forecast.SKIPPED, float(each.first - most)))
    if each.data_off:
        faults.append((forecast.DATA, each.data_off))
    if each.loss_jumped:
        faults.append((forecast.LOSS, each.loss_after))
    return faults


def _is_proven(moment: str, rounds: dict[str, Round]) -> bool:
    """Its notice was delivered, and the command resumed: with a first step, or up to the notice in its warm-up."""
    each = rounds.get(moment)
    if each is None or not each.delivered or each.leave_s is None:
        return False
    if each.resumed == drill.NEXT and moment != drill.WARM_UP:
        return _is_proven(drill.WARM_UP, rounds)
    return each.resumed == drill.STEPPED and each.first is not None and each.restored is not None


def _why(each: Round | None) -> str:
    return drill.CUT if each is None or each.delivered or not each.why else each.why


def spans_of(record: Record) -> tuple[Span, ...]:
    """Of the notices that were delivered and that nothing cut short. In a warm-up nothing is unsaved, so it may be left
    at any pace."""
    return tuple(
        (each.leave_s, each.upload_s)
        for each in record.rounds
        if each.delivered and not each.killed and each.moment != drill.WARM_UP
        if each.leave_s is not None and each.upload_s is not None
    )


def fits(notice_s: float, spans: Sequence[Span]) -> bool:
    """Leaving and saving fit into such a notice."""
    times = drill.notice_times(max(0.0, notice_s - SPARE_S))
    return percentile([leave_s for leave_s, _ in spans]) <= times.kill_s and (
        percentile([*map(needed_s, spans)]) <= times.save_s
    )


def needed_s(span: Span) -> float:
    leave_s, upload_s = span
    return leave_s + 2 * upload_s


def percentile(values: Sequence[float]) -> float:
    """The 95th, by the nearest rank: of few values it is the largest."""
    return sorted(values)[math.ceil(P95 * len(values)) - 1]


def verdict_of(drills: Drills) -> DrillVerdict | None:
    """Of the last drill that came to its end; None = there was none."""
    record = drill.decode(drills.record)
    if record is None:
        return None
    own = len(spans_of(record))
    return judge(record, drills.spans[: len(drills.spans) - own])


def asked_notice_s(run: Run) -> float | None:
    """The notice that a platform is asked for where it offers a choice; None = its own."""
    verdict = verdict_of(run.drills) if run.drills.record else None
    return None if verdict is None else verdict.ask_s


# --- orders -----------------------------------------------------------------------------------------------------------


def ordered(run: Run, actor: str, now: float) -> Run:
    """The run with an open order for its live attempt."""
    attempt = run.live_attempt
    assert attempt is not None
    drills = replace(run.drills, number=run.drills.number + 1, launch_id=attempt.launch_id, actor=actor, ordered_at=now)
    return replace(run, drills=drills)


def is_drilling(run: Run, beat: Beat) -> bool:
    """`follow_drill` has an order to follow, or this beat has news of a drill."""
    return run.drills.launch_id != "" or beat.drill != (run.pulse.drill if run.pulse is not None else "")


def is_due(run: Run, now: float) -> bool:
    """The spec wants a drill now. `run` has its newest beat."""
    return _reason(run, now) != ""


def follow_drill(run: Run, beat: Beat | None, now: float) -> Drilled:
    """What becomes of the drills of a run whose machine is up. `beat` None: it was not read."""
    attempt, drills = run.live_attempt, run.drills
    if attempt is None or beat is None:
        return Drilled(run)
    if not drills.launch_id:
        reason = _reason(run, now)
        if not reason:
            return Drilled(run)
        run = ordered(run, "supervisor", now)
        text = f"A drill is ordered: {reason}."
        return Drilled(run, (Event(EventKind.DRILL_ORDERED, text, data={"number": run.drills.number}),), _order(run))
    if drills.launch_id != attempt.launch_id:
        return without_order(run, now)
    record = drill.decode(beat.drill)
    if record is None or record.number != drills.number:
        if now - (drills.ordered_at or now) > UNTAKEN_S:
            return _closed(run, "its agent did not take the order; it may be of an older version", run.generation, now)
        return Drilled(run, (), _order(run))
    return _recorded(run, beat.drill, record, now) if record.state == drill.OVER else Drilled(run)


def with_failed_drill(run: Run, beat: Beat, now: float) -> tuple[Run, tuple[Event, ...]]:
    """The run whose command has ended in a drill that failed: no later beat shows its record, and an earlier verdict
    would stay. One that a real end has cut short proves nothing; the next attempt may be drilled anew."""
    attempt, record = run.live_attempt, drill.decode(beat.drill)
    is_last = beat.exit is not None or beat.left is not None
    if attempt is None or record is None or not is_last or record.state != drill.OVER:
        return run, ()
    is_ordered = run.drills.launch_id == attempt.launch_id and run.drills.number == record.number
    if not is_ordered or judge(record, run.drills.spans).word != FAILS:
        return run, ()
    drilled = _recorded(run, beat.drill, record, now)
    return drilled.run, drilled.events


def without_order(run: Run, now: float) -> Drilled:
    """The attempt of its order is over: the order came to nothing."""
    return _closed(run, "its attempt ended before the drill did", run.drills.generation, now)


def _order(run: Run) -> tuple[OrderDrill, ...]:
    return (OrderDrill(run.drills.launch_id, run.drills.number),)


def _reason(run: Run, now: float) -> str:
    """Why the spec wants a drill now; "" = it wants none."""
    policy, drills, pulse, attempt = run.policy.drill, run.drills, run.pulse, run.live_attempt
    if policy.every_s is None and not policy.at_start:
        return ""
    is_young = pulse is None or attempt is None or pulse.launch_id != attempt.launch_id
    if is_young or pulse is None or pulse.first_progress_at is None or drills.launch_id:
        return ""
    if policy.at_start and drills.generation != run.generation and pulse.phase == TRAINING:
        return "its spec wants one at the start"
    if policy.at_start and pulse.phase in (CHECKPOINT, EVALUATION):
        record = drill.decode(drills.record)
        if record is not None and pulse.phase not in record.moments:
            return f"its last drill knew no {pulse.phase}"
    since = drills.over_at if drills.over_at is not None else run.generation_at
    due = policy.every_s is not None and now - since >= policy.every_s
    return "its spec wants one regularly" if due and pulse.phase == TRAINING else ""


def _closed(run: Run, why: str, generation: int, now: float) -> Drilled:
    """The order came to nothing."""
    drills = replace(run.drills, launch_id="", over_at=now, generation=generation)
    data = {"number": run.drills.number, "verdict": NOT_DRILLED}
    return Drilled(replace(run, drills=drills), (Event(EventKind.DRILLED, f"Not drilled: {why}.", data=data),))


def _recorded(run: Run, text: str, record: Record, now: float) -> Drilled:
    spans = (*run.drills.spans, *spans_of(record))[-SPANS_KEPT:]
    drills = replace(
        run.drills, launch_id="", over_at=now, generation=run.generation, record=text, drilled_at=now, spans=spans
    )
    verdict = judge(record, run.drills.spans)
    facts = {"number": record.number, "verdict": verdict.word, "p95_s": verdict.p95_s, "ask_s": verdict.ask_s}
    event = Event(EventKind.DRILLED, forecast.drill_sentence(verdict), data=facts)
    return Drilled(replace(run, drills=drills), (event,))

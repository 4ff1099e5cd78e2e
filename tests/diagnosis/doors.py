"""The other two doors to the rules: the beat, which alone decides what follows an end, and files that a person has.

The same cases as in the corpus, with what fits through each door: a beat has no serial console and no figures of
minutes; a person has the log and a few facts, and no steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from supervisor.contract import beat_telemetry, signs
from supervisor.contract.heartbeat import Beat
from supervisor.contract.signs import Hang, Signs
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Evidence, Source
from supervisor.domain.machines import Machine, MachineRecord, MachineState
from supervisor.domain.observation import NOT_READ, Observation, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.diagnosis.reading import of_beat, of_files
from tests.diagnosis.cases import Case
from tests.diagnosis.makers.documents import NOW
from tests.diagnosis.measuring import DANGERS, judge
from tests.diagnosis.seen import evidence_of
from tests.lifecycle.sample_runs import attempt, pulse, run_in

# What no beat and no record carries, so that such a case cannot come through that door. A metric that stays NaN ends
# the run before its last beat.
ELSEWHERE = (
    "platform.", "session.", "serial.", "results.", "upload.", "card.promised", "card.opened", "container.",
    "metric.lasting",
)  # fmt: skip
Door = Callable[[Case], Evidence | None]


@dataclass(frozen=True)
class Reported:
    """What the supervisor has when a beat reports this end. `stalled`: why it gives the training up; "" = it does
    not."""

    run: Run
    beat: Beat
    observation: Observation
    before: Pulse | None
    stalled: str


def reported(case: Case) -> Reported | None:
    """None: no beat reports this end."""
    evidence, document = evidence_of(case), case.document
    beat = document["beat"]
    left = _text(evidence, "left")
    is_reported = evidence.exit is not None or bool(left) or document["cause"] == Cause.STALLED
    is_elsewhere = any(name.startswith(ELSEWHERE) for name in evidence.items)
    is_rebooted = _text(evidence, "boot.id_start") != _text(evidence, "boot.id_now")
    if beat is None or not is_reported or is_elsewhere or is_rebooted:
        return None
    made = Beat(
        "digits-7", 1, "1.1.1", "m-1", "b-1", beat["sequence"], beat["phase"], step=beat["step"], total=beat["total"],
        checkpoint_step=beat["checkpoint_step"], exit=evidence.exit, left=left or None,
        message=_text(evidence, "left.message")[:300], up_s=_number(evidence, "up.s"),
        telemetry="" if beat["telemetry"] is None else json.dumps(beat["telemetry"]),
        signs=signs.encode(_signs(evidence)),
    )  # fmt: skip
    assert beat_telemetry.decode(made.telemetry) is not None or not made.telemetry
    stalled = document["detail"] if document["cause"] == Cause.STALLED else ""
    run, pulse = _row(evidence, made)
    return Reported(run, made, Observation(machine=_machine(document)), pulse, stalled)


def through_the_beat(case: Case) -> Evidence | None:
    """None: no beat reports this end."""
    seen = reported(case)
    return None if seen is None else of_beat(seen.run, seen.beat, seen.observation, seen.before, seen.stalled)


def through_files(case: Case) -> Evidence | None:
    """The log and the facts as a person would write them down."""
    evidence = evidence_of(case)
    facts: dict[str, Any] = {
        name.replace(".", "_"): items[-1].value
        for name, items in evidence.items.items()
        if name not in ("card.xid", "card.held", "error.pattern")
    }
    facts["xid"] = [list(item.value) for item in evidence.items.get("card.xid", ())] or None
    facts["held"] = next((item.value[1] for item in evidence.items.get("card.held", ())), None)
    end = evidence.exit
    if end is not None:
        facts |= {
            "exit_code": end.code, "signal": end.signal, "sent_by_us": end.sent_by_us, "ran_s": end.ran_s,
            "oom_kills": end.oom_kills, "disk_full": end.disk_full, "after_work": end.after_work,
        }  # fmt: skip
    return of_files(case.log, {name: value for name, value in facts.items() if value not in (None, "")})


DOORS: dict[str, Door] = {"beat": through_the_beat, "files": through_files}


def measured(cases: Iterable[Case]) -> dict[str, dict[str, float]]:
    """Door -> its figures: cases, the share of right causes, certain and wrong ones, and each dangerous mistake."""
    figures = {}
    listed = [case for case in cases if case.expected.cause is not None]
    for name, door in DOORS.items():
        seen = [(case, evidence) for case in listed if (evidence := door(case)) is not None]
        judged = [judge(case, evidence) for case, evidence in seen]
        figures[name] = {
            "cases": len(judged),
            "cause": round(sum(each.cause for each in judged) / max(1, len(judged)), 4),
            "certain_and_wrong": sum(each.certain_and_wrong for each in judged),
            **{danger: sum(map(test, judged)) for danger, test in DANGERS.items()},
        }
    return figures


def _signs(evidence: Evidence) -> Signs:
    xids = [(*_pair(item.value), item.at or 0.0) for item in evidence.items.get("card.xid", ())]
    place = _text(evidence, "hang.place")
    rose, shared = _number(evidence, "oom.rose"), evidence.last("oom.shared")
    return Signs(
        hits=evidence.hits,
        error=evidence.error,
        oom_rose_up_s=rose,
        oom_shared=None if shared is None else bool(shared.value),
        xids=tuple((int(card), int(code), at) for card, code, at in xids),
        held=tuple((int(card), held) for card, held in map(_pair, _values(evidence, "card.held"))),
        hang=Hang(place, _number(evidence, "hang.still_s") or 0.0) if place else None,
        up_s=_number(evidence, "up.s"),
        began=_text(evidence, "error.pattern"),
    )


def _row(evidence: Evidence, beat: Beat) -> tuple[Run, Pulse | None]:
    """The run as its row has it: when the agent started, and the time of the last step that a beat reported."""
    up_s = beat.up_s or 0.0
    ended_at, step_at = _number(evidence, "exit.at"), _number(evidence, "step.at")
    agent_at = (NOW if ended_at is None else ended_at) - up_s
    run = run_in(Status.RUNNING, attempt=attempt(1, agent_at=agent_at))
    if step_at is None:
        return run, None
    before = pulse(launch_id="1.1.1", step=beat.step, up_s=up_s, progress_at=agent_at + step_at)
    return run, before


def _machine(document: dict[str, Any]) -> Any:
    for record in document.get("records", ()):
        kept = MachineRecord(Cause(record["cause"]), record["detail"], record["at"])
        state = MachineState.ENDED
        return Seen(Machine("m-1", "spot-1", "zone", state, "sup-1", "digits-7", "1.1.1", record=kept), 1.0, "listing")
    return NOT_READ


def _values(evidence: Evidence, name: str) -> list[Any]:
    return [item.value for item in evidence.items.get(name, ())]


def _pair(value: Any) -> tuple[float, float]:
    return value[0], value[1]


def _text(evidence: Evidence, name: str) -> str:
    item = evidence.last(name, *(source for source in Source if source != Source.OWN))
    return item.value if item is not None and isinstance(item.value, str) else ""


def _number(evidence: Evidence, name: str) -> float | None:
    item = evidence.last(name)
    return float(item.value) if item is not None and isinstance(item.value, int | float) else None

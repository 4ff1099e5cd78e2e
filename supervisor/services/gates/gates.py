"""The gates of a run as readers see them: every verdict with its fact and fix, from what is known already.

A gate that the run has not come to has no verdicts. A run without a machine has come to no launch, a machine that is
kept for its user to no teardown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.gates.checks import CHECKS, Gate
from supervisor.domain.gates.verdicts import Passage, Verdict, Waiver, may_go_on, standing
from supervisor.domain.profile import Profile
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.gates.judging import Facts, judge
from supervisor.services.gates.kept import as_read, with_kept
from supervisor.services.gates.readings import facts_of, launch_facts, resumed
from supervisor.services.gates.watched import Watched
from supervisor.services.machines.incidents import blocked_now
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopView
from supervisor.services.reading.profiles import next_place, placed_profile
from supervisor.services.reading.queries import Queries
from supervisor.services.reading.teardown import host_meter
from supervisor.services.runs.smoked import by_whom
from supervisor.services.views import formats
from supervisor.wording.gates import GATE_NAMES, gate_text

PASSES_MISSED = 3  # of the loop, before its silence is shown as such; as in /readyz


class WaiverShown(TypedDict):
    check: str
    reason: str
    actor: str
    at: formats.Time


class VerdictShown(TypedDict):
    """`fact`: what was read. `fix`: what to do, "" where nothing is. `code`: the error code of a fail. `at`, `by`: when
    it was read, and by what. `waived`: a person lets the run go on in spite of it."""

    check: str
    state: Annotated[str, Field(description="pass, warn, fail or unknown (could not be read)")]
    fact: str
    fix: str
    code: str
    at: formats.Time
    by: str
    waived: bool


class GateShown(TypedDict):
    """`text`: what it says in one line. `verdicts`: empty where the run has not come to this gate."""

    gate: str
    name: str
    state: Annotated[str, Field(description="passed, waived, warned, unread, open, stopped or not_reached")]
    text: str
    verdicts: list[VerdictShown]


class RunGates(TypedDict):
    """In order, G0 to G6."""

    run_id: str
    provider: str
    gates: list[GateShown]
    waivers: list[WaiverShown]


def show_gates(parts: Parts, queries: Queries, loop: LoopView, run_id: str) -> RunGates:
    """From what is known; no request leaves this server. Raises NotFound, StoreDown."""
    run = queries.fresh(run_id)
    return gates_json(_watched(parts, loop, run))


def _watched(parts: Parts, loop: LoopView, run: Run) -> Watched:
    placement = run.attempt.placement if run.attempt is not None else None
    place = placement or next_place(parts, run)
    provider = run.provider if place is None else place.provider
    machines = parts.providers.get(provider)
    gpus = None if machines is None or placement is None else machines.gpus(placement.shape)
    endpoints = parts.store.endpoints.of_owner(None)
    return Watched(
        run=run,
        spec=parts.store.spec(run.key),
        attempts=parts.store.attempts(run.key),
        traits=parts.traits(provider),
        profile=Profile(provider, provider) if machines is None else placed_profile(machines, run, place),
        store_url=parts.objects.url,
        gpus=gpus,
        alerted=any(each.disabled_at is None and (each.everything or each.owner == run.owner) for each in endpoints),
        tick_age_s=loop().last_tick_age_s,
        tick_every_s=parts.knobs.poll_interval_s * PASSES_MISSED,
        now=parts.clock.now(),
        meter=host_meter(parts, run),
        place=place,
        blocked=blocked_now(parts, run.cell),
    )


def gates_json(watched: Watched) -> RunGates:
    facts, run = facts_of(watched), watched.run
    from_smoke = resumed(watched.attempts)[0] is None
    verdicts = [by_whom(as_read(each, watched), run, watched.spec, from_smoke) for each in _judged(watched, facts)]
    return {
        "run_id": run.run_id,
        "provider": facts.provider,
        "gates": [_gate(gate, verdicts, run.waivers, _passed_at(gate, watched)) for gate in Gate],
        "waivers": [
            {"check": each.check, "reason": each.reason, "actor": each.actor, "at": formats.time_text(each.at)}
            for each in run.waivers
        ],
    }


def _judged(watched: Watched, facts: Facts) -> list[Verdict]:
    gates = reached(watched)
    others = judge(facts, *(gate for gate in gates if gate != Gate.LAUNCH))
    return [*others, *(with_kept(_launch(watched), watched, _launch) if Gate.LAUNCH in gates else ())]


def _launch(watched: Watched) -> tuple[Verdict, ...]:
    launched = launch_facts(watched)
    return judge(Facts(run=watched.run.run_id, provider=watched.provider, at=watched.now, launch=launched), Gate.LAUNCH)


def _passed_at(gate: Gate, watched: Watched) -> float:
    """Until when its verdicts must be young: the smoke when the run began, the others now."""
    return min(watched.now, watched.run.generation_at) if gate == Gate.SMOKE else watched.now


def reached(watched: Watched) -> tuple[Gate, ...]:
    """The gates that the run has come to. A run without a machine has come to no launch."""
    run = watched.run
    gates = [Gate.AUDIT, Gate.ACCESS, Gate.SMOKE]
    if watched.attempt is not None:
        gates += [Gate.LAUNCH, Gate.MONITOR]
        if run.terminal or run.files.outcome is not None or (run.status == Status.FINISHING and run.person.why):
            gates.append(Gate.VERIFY)
        if (run.terminal or run.status == Status.AWAITING_TEARDOWN) and run.kept_until is None:
            gates.append(Gate.TEARDOWN)
    return tuple(gates)


def _gate(gate: Gate, verdicts: Sequence[Verdict], waivers: Sequence[Waiver], now: float) -> GateShown:
    passage, counting = may_go_on(gate, verdicts, waivers, now), standing(verdicts, now)
    of_gate = [verdict for name, verdict in counting.items() if CHECKS[name].gate == gate]
    return {
        "gate": gate,
        "name": GATE_NAMES[gate],
        "state": passage.state,
        "text": gate_text(passage),
        "verdicts": [_verdict(verdict, passage) for verdict in of_gate],
    }


def _verdict(verdict: Verdict, passage: Passage) -> VerdictShown:
    return {
        "check": verdict.check,
        "state": verdict.state,
        "fact": verdict.fact,
        "fix": verdict.fix,
        "code": verdict.code,
        "at": formats.time_text(verdict.at),
        "by": verdict.by,
        "waived": verdict in passage.waived,
    }

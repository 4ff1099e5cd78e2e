"""Doctor: what a person would check first. Each line has a fact, a cause and the cure.

The checks write and delete one small object and commit one empty transaction; with `alert_test` one marked message goes
to the alert address. Nothing else is changed. All run side by side and are told in this order, whatever hangs. What
only the cloud knows is asked by the adapters' own checks (`Surroundings.checks`). It also examines a set-up that no
supervisor serves: then some parts may not be there, and what cannot be asked without them is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.domain.machines.cards import Card
from supervisor.domain.policies import Knobs
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.store import Store
from supervisor.services.doctor import local, state
from supervisor.services.doctor.alerts import Alerts, alerts_line
from supervisor.services.doctor.checkup import DEADLINE_S, answers, report
from supervisor.services.doctor.machines import machines_lines
from supervisor.services.doctor.secrets import secrets_told
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopView, readiness
from supervisor.services.views.run_view import Json

GROUPS = ("local", "google", "alerts", "orphans")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`agent_bundle`: the file that machines are started with; None = this installation carries none. `cards` reads
    the GPUs of this computer (ProviderUnavailable); `gpus_promised`: the most that a shape promises, 0 = none does.
    `checks`: what the adapters want to have looked at. `pushed`: machines reach the supervisor. `settings`: what the
    settings themselves say. `alerts` None: no alert address is set."""

    data_dir: Path
    agent_bundle: Path | None
    cards: Callable[[], Sequence[Card]] = tuple
    gpus_promised: int = 0
    checks: Callable[[], Sequence[Check]] = tuple
    log_chunk_s: float = 300.0
    pushed: bool = True
    settings: tuple[Finding, ...] = ()
    alerts: Alerts | None = None


@dataclass(frozen=True, slots=True)
class Patient:
    """What there is of a set-up. Of one that nobody serves, `store` and `objects` None = not there, and `instead` says
    why; `parts` None = nobody can ask for machines and secrets."""

    clock: Clock
    knobs: Knobs
    objects: ObjectStore | None
    store: Store | None
    parts: Parts | None
    instead: tuple[Finding, ...] = ()


def examine(parts: Parts, around: Surroundings, loop: LoopView, alert_test: bool = False) -> Json:
    """Of the supervisor that runs in this process. Every check, in order; `worst` is the worst result among them.
    Takes DEADLINE_S at most; raises nothing."""
    patient = Patient(parts.clock, parts.knobs, parts.objects, parts.store, parts)
    running = Check("loop", lambda: _loop(parts, loop))
    return _examined(patient, around, [running], alert_test, DEADLINE_S)


def examine_alone(patient: Patient, around: Surroundings, alert_test: bool, deadline_s: float) -> Json:
    """The same of a set-up that is not served by this process."""
    return _examined(patient, around, [], alert_test, deadline_s)


def _examined(
    patient: Patient, around: Surroundings, running: list[Check], alert_test: bool, deadline_s: float
) -> Json:
    google = list(around.checks())
    if patient.objects is not None and state.in_bucket(patient.objects):
        cost = state.beats_cost(patient.knobs, around.log_chunk_s, around.pushed)
        google.append(_one("beats cost", lambda: cost, "google"))
    alerts = _one("alerts", lambda: alerts_line(around.alerts, alert_test, patient.clock.now()), "alerts")
    orphans = []
    if patient.parts is not None:
        parts = patient.parts
        orphans = [Check("orphans", lambda: machines_lines(parts), "orphans", hint="spot ls --machines")]
    checks = [*_local(patient, around), *running, *google, alerts, *orphans]
    found = [*around.settings, *patient.instead, *answers(checks, deadline_s)]
    return report(sorted(found, key=lambda finding: GROUPS.index(finding.group)))


def _local(patient: Patient, around: Surroundings) -> list[Check]:
    """In the order in which they are told."""
    folder, clock, objects, parts = around.data_dir, patient.clock, patient.objects, patient.parts
    store = patient.store
    checks = [
        _one("python", local.python),
        _one("disk", lambda: local.disk(folder)),
        _one("inodes", lambda: local.inodes(folder)),
    ]
    if store is not None:
        checks.append(_one("database", lambda: state.database(store, clock), unanswered=FAIL))
    if objects is not None:
        group = "google" if state.in_bucket(objects) else "local"
        checks.append(_one("objects", lambda: state.objects_line(objects), group, FAIL))
        checks.append(_one("clock", lambda: state.clock_line(objects, clock)))
    checks.append(_one("agent", lambda: local.agent(around.agent_bundle)))
    if store is not None:
        checks.append(_one("cells", lambda: state.cells(store)))
    if parts is not None:
        checks.append(_one("secrets", lambda: _secrets(parts, folder)))
    if around.gpus_promised:
        checks.append(_one("gpus", lambda: local.gpus(around.cards, around.gpus_promised)))
    return checks


def _one(name: str, ask: Callable[[], Finding], group: str = "local", unanswered: str = WARN) -> Check:
    return Check(name, lambda: [ask()], group, unanswered)


def _loop(parts: Parts, loop: LoopView) -> list[Finding]:
    cause, fix = "the loop is not running", "look into the supervisor's log; then start it again: spot up"
    return [
        Finding(one.name, OK, one.fact) if one.ok else Finding(one.name, FAIL, one.fact, cause, fix)
        for one in readiness(parts, loop)
        if one.name in ("lease", "tick")
    ]


def _secrets(parts: Parts, data_dir: Path) -> Finding:
    fact, cause, fix, well = secrets_told(parts, data_dir)
    return Finding("secrets", OK if well else WARN, fact, cause, fix)

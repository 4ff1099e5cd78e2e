"""Doctor: the checks that a person would do first. Each line has a fact, a cause and a fix.

The checks write and delete one small object and commit one empty transaction; with `alert_test` the alert address gets
one marked message. They change nothing else. All checks run in parallel, and their lines come in a fixed order. The
adapters bring their own checks of the cloud (`Surroundings.checks`). The doctor also examines a set-up that no
supervisor serves: then some parts are missing, and the checks that need them are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.contract.cards import Card
from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.domain.policies import Knobs
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.store import Store
from supervisor.services.doctor import state
from supervisor.services.doctor.checkup import DEADLINE_S, DoctorReport, answers, report
from supervisor.services.doctor.credentials import ALERTS, Alerts, alerts_line, secrets_line
from supervisor.services.machines.gc import GROUP as ORPHANS
from supervisor.services.machines.gc import machines_lines
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopView, readiness

HERE = "local"  # group of the lines about this computer


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`agent_bundle`: the agent's file, None = this installation has none. `cards` reads the GPUs of this computer
    (raises ProviderUnavailable); `gpus_promised`: the most that a shape promises, 0 = none. `checks`: of the adapters.
    `pushed`: machines can push beats to the supervisor. `settings`: lines about the settings. `alerts` None: no alert
    address is set. `groups`: group -> title of the lines about each platform that rents machines."""

    data_dir: Path
    agent_bundle: Path | None
    cards: Callable[[], Sequence[Card]] = tuple
    gpus_promised: int = 0
    checks: Callable[[], Sequence[Check]] = tuple
    log_chunk_s: float = 300.0
    pushed: bool = True
    settings: tuple[Finding, ...] = ()
    alerts: Alerts | None = None
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setup:
    """The parts to examine. If no supervisor serves them: `store` and `objects` None = missing, `instead` says why;
    `parts` None = machines and secrets cannot be checked."""

    clock: Clock
    knobs: Knobs
    objects: ObjectStore | None
    store: Store | None
    parts: Parts | None
    instead: tuple[Finding, ...] = ()


def examine(
    parts: Parts, around: Surroundings, loop: LoopView, alert_test: bool = False, more: Sequence[Check] = ()
) -> DoctorReport:
    """Examine the supervisor of this process, with `more` checks. Takes at most DEADLINE_S; raises nothing."""
    setup = Setup(parts.clock, parts.knobs, parts.objects, parts.store, parts)
    running = Check("loop", lambda: _loop(parts, loop))
    return _examined(setup, around, [running, *more], alert_test, DEADLINE_S)


def examine_alone(setup: Setup, around: Surroundings, alert_test: bool, deadline_s: float) -> DoctorReport:
    """The same for a set-up that this process does not serve."""
    return _examined(setup, around, [], alert_test, deadline_s)


def _examined(
    setup: Setup, around: Surroundings, running: list[Check], alert_test: bool, deadline_s: float
) -> DoctorReport:
    rented = list(around.checks())
    if around.groups and setup.objects is not None and state.in_bucket(setup.objects):
        group = next(iter(around.groups))
        cost = state.beats_cost(setup.knobs, around.log_chunk_s, around.pushed, group)
        rented.append(_check("beats cost", lambda: cost, group))
    alerts = _check("alerts", lambda: alerts_line(around.alerts, alert_test, setup.clock.now()), ALERTS)
    orphans = []
    if setup.parts is not None:
        parts = setup.parts
        orphans = [Check("orphans", lambda: machines_lines(parts), ORPHANS, hint="spot ls --machines")]
    checks = [*_local(setup, around), *running, *rented, alerts, *orphans]
    findings = [*around.settings, *setup.instead, *answers(checks, deadline_s)]
    between = dict.fromkeys((*around.groups, *(finding.group for finding in findings)))
    order = [HERE, *(group for group in between if group not in (HERE, ALERTS, ORPHANS)), ALERTS, ORPHANS]
    return report(sorted(findings, key=lambda finding: order.index(finding.group)), around.groups)


def _local(setup: Setup, around: Surroundings) -> list[Check]:
    """In the order of their lines."""
    folder, clock, store, objects, parts = around.data_dir, setup.clock, setup.store, setup.objects, setup.parts
    checks = [
        _check("python", state.python),
        _check("disk", lambda: state.disk(folder)),
        _check("inodes", lambda: state.inodes(folder)),
    ]
    if store is not None:
        checks.append(_check("database", lambda: state.database(store, clock), unanswered=FAIL))
    if objects is not None:
        remote = around.groups if state.in_bucket(objects) else {}
        group, title = next(iter(remote.items()), (HERE, ""))
        checks.append(_check("objects", lambda: state.objects_line(objects, group, title), group, FAIL))
        checks.append(_check("clock", lambda: state.clock_line(objects, clock)))
    checks.append(_check("agent", lambda: state.agent(around.agent_bundle)))
    if store is not None:
        checks.append(_check("cells", lambda: state.cells(store)))
    if parts is not None:
        checks.append(_check("secrets", lambda: secrets_line(parts, folder)))
    if around.gpus_promised:
        checks.append(_check("gpus", lambda: state.gpus(around.cards, around.gpus_promised)))
    return checks


def _check(name: str, ask: Callable[[], Finding], group: str = HERE, unanswered: str = WARN) -> Check:
    return Check(name, lambda: [ask()], group, unanswered)


def _loop(parts: Parts, loop: LoopView) -> list[Finding]:
    cause, fix = "the loop is not running", "look into the supervisor's log; then restart it: spot up"
    return [
        Finding(part.name, OK, part.fact) if part.ok else Finding(part.name, FAIL, part.fact, cause, fix)
        for part in readiness(parts, loop)
        if part.name in ("lease", "tick")
    ]

"""Doctor: what a person would check first. Each line has a fact, a cause and the cure.

The checks write and delete one small object and commit one empty transaction; with `alert_test` one marked message goes
to the alert address. Nothing else is changed. All run side by side and are told in this order, whatever hangs. What
only the cloud knows is asked by the adapters' own checks (`Surroundings.checks`). It also examines a set-up that no
supervisor serves: then some parts may not be there, and what cannot be asked without them is left out.

The doctor's look at this computer: Python, the disk of the data folder, the agent, the GPUs.

Doctor's look at secrets: can references be read at all, and can those of the live runs be read now. Names only.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.domain.machines import Card
from supervisor.domain.policies import Knobs
from supervisor.domain.status import ACTIVE
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.ports.store import RunFilter, Store, StoreDown
from supervisor.services.doctor import state
from supervisor.services.doctor.alerts import Alerts, alerts_line
from supervisor.services.doctor.checkup import DEADLINE_S, answers, report
from supervisor.services.doctor.machines import machines_lines
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopView, readiness
from supervisor.services.views.run_view import Json
from supervisor.wording.figures import gib_text

RUNS_READ = 1000  # of the live ones, the newest
SHOWN = 6
LIVE = tuple(sorted(ACTIVE))

Wanted = tuple[str, str, str, str]  # run id, name of the secret, provider of the run, reference


def secrets_told(parts: Parts, data_dir: Path) -> tuple[str, str, str, bool]:
    """(fact, cause, fix, all is well). Raises nothing; no text holds a value."""
    provider = parts.providers[parts.own_provider]
    on_this_computer = provider.traits.shares_computer
    try:
        probe = _probe(provider, data_dir) if on_this_computer else ""
        wanted = list(_wanted(parts))
        reasons = _checked(parts, wanted)
    except (OSError, ProviderUnavailable, StoreDown) as error:
        return "not checked", str(error), "see the lines about the database and the disk", False
    if probe:
        return "a secret's file cannot be read", probe, f"check the folder {data_dir}", False
    bad = [(run_id, name, why) for run_id, name, place, reference in wanted if (why := reasons[place, reference])]
    if bad:
        causes = "; ".join(f"{name} of {run_id}: {why}" for run_id, name, why in bad[:SHOWN])
        fact = f"{len(bad)} of {len(wanted)} secrets of live runs cannot be read, so their next launch is refused"
        return fact, causes, "mend them; waiting runs then go on by themselves", False
    if not wanted:
        readable = "a secret's file can be read; " if on_this_computer else ""
        return f"{readable}no live run names a secret", "", "", True
    names = sorted({name for _, name, _, _ in wanted})
    shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    return f"all secrets of live runs can be read: {shown}", "", "", True


def _checked(parts: Parts, wanted: Iterable[Wanted]) -> dict[tuple[str, str], str]:
    """(provider, reference) -> why its machines cannot read it; "" = they can. Raises ProviderUnavailable."""
    references: dict[str, set[str]] = {parts.own_provider: set()}
    for _, _, place, reference in wanted:
        references.setdefault(place, set()).add(reference)
    return {
        (place, reference): why
        for place, own in references.items()
        for reference, why in parts.providers[place].check_secrets(own).items()
    }


def _wanted(parts: Parts) -> Iterator[Wanted]:
    before: int | None = None
    read = 0
    while read < RUNS_READ:
        page = parts.store.page(RunFilter(statuses=LIVE), before, 200)
        for run in page.runs:
            if run.provider in parts.providers:
                spec = parts.store.spec(run.key)
                given = spec.get("secrets", {})
                yield from ((run.run_id, name, run.provider, ref) for name, ref in given.items())
        read += len(page.runs)
        before = page.next_key
        if before is None:
            return


def _probe(provider: Provider, data_dir: Path) -> str:
    """Why a file of the right mode cannot be read; "" = it can. The file lives for this call only."""
    path = data_dir.resolve() / f".doctor-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(16).encode())
        reference = f"file:{path}"
        return provider.check_secrets([reference])[reference]
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


DISK_WARN_BYTES, DISK_FAIL_BYTES = 5 * 10**9, 500 * 10**6
INODES_WARN, INODES_FAIL = 100_000, 5_000


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", OK, f"Python {version} at {sys.executable}")


def disk(data_dir: Path) -> Finding:
    try:
        free = shutil.disk_usage(data_dir).free
    except OSError as error:
        return Finding("disk", FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")
    result = FAIL if free < DISK_FAIL_BYTES else WARN if free < DISK_WARN_BYTES else OK
    fact = f"{gib_text(free)} GiB free at {data_dir}"
    if result == OK:
        return Finding("disk", OK, fact)
    return Finding("disk", result, fact, "checkpoints and the database need room", f"du -sh {data_dir}/*")


def inodes(data_dir: Path) -> Finding:
    try:
        stats = os.statvfs(data_dir)
    except OSError as error:
        return Finding("inodes", FAIL, f"{data_dir} cannot be read", str(error), f"ls -ld {data_dir}")
    if stats.f_files == 0:
        return Finding("inodes", OK, "this file system has no limit on files")
    result = FAIL if stats.f_favail < INODES_FAIL else WARN if stats.f_favail < INODES_WARN else OK
    fact = f"{stats.f_favail:,} files can still be made at {data_dir}"
    if result == OK:
        return Finding("inodes", OK, fact)
    fix = f"df -i {data_dir}; du --inodes -s {data_dir}/* shows who has them"
    return Finding("inodes", result, fact, "a disk dies on inodes before bytes", fix)


def agent(bundle: Path | None) -> Finding:
    if bundle is not None and bundle.is_file():
        return Finding("agent", OK, f"{bundle.name}, {bundle.stat().st_size / 1000:.0f} kB")
    cause = "no machine can be started: this checkout has not built it"
    return Finding("agent", FAIL, "the agent's bundle is missing", cause, "make agent")


def gpus(read: Callable[[], Sequence[Card]], promised: int) -> Finding:
    """Each card and who has it. One that a stranger holds, or that is set aside, is not given to any machine."""
    try:
        cards = read()
    except ProviderUnavailable as error:
        return Finding("gpus", FAIL, "the GPUs cannot be read", str(error), "nvidia-smi")
    fact = "; ".join(f"{card.label} ({card.name or 'of unknown kind'}) is {card.state}" for card in cards)
    there = sum(card.index is not None for card in cards)
    aside = [card.uuid for card in cards if card.aside is not None]
    if there < promised and not aside:
        cause = f"a shape promises {promised}, and this computer has {there}"
        return Finding("gpus", FAIL, fact or "no GPU was found", cause, "set local_gpus to what is there")
    if aside:
        cause = "its driver said that it is broken: no run gets it before a person says that it is back"
        return Finding("gpus", WARN, fact, cause, "; ".join(f"spot gpus --back {uuid}" for uuid in aside))
    if any(card.holder and not card.ours for card in cards):
        return Finding("gpus", WARN, fact, "what others hold is not given out, and runs wait", "nvidia-smi")
    return Finding("gpus", OK, fact)


HERE, ALERTS, ORPHANS = "local", "alerts", "orphans"  # groups of lines; those between are of providers


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`agent_bundle`: the file that machines are started with; None = this installation carries none. `cards` reads
    the GPUs of this computer (ProviderUnavailable); `gpus_promised`: the most that a shape promises, 0 = none does.
    `checks`: what the adapters want to have looked at. `pushed`: machines reach the supervisor. `settings`: what the
    settings themselves say. `alerts` None: no alert address is set. `groups`: group -> title of the lines about each
    platform that machines are rented from."""

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
    rented = list(around.checks())
    if around.groups and patient.objects is not None and state.in_bucket(patient.objects):
        group = next(iter(around.groups))
        cost = state.beats_cost(patient.knobs, around.log_chunk_s, around.pushed, group)
        rented.append(_check("beats cost", lambda: cost, group))
    alerts = _check("alerts", lambda: alerts_line(around.alerts, alert_test, patient.clock.now()), "alerts")
    orphans = []
    if patient.parts is not None:
        parts = patient.parts
        orphans = [Check("orphans", lambda: machines_lines(parts), "orphans", hint="spot ls --machines")]
    checks = [*_local(patient, around), *running, *rented, alerts, *orphans]
    findings = [*around.settings, *patient.instead, *answers(checks, deadline_s)]
    between = dict.fromkeys((*around.groups, *(finding.group for finding in findings)))
    order = [HERE, *(group for group in between if group not in (HERE, ALERTS, ORPHANS)), ALERTS, ORPHANS]
    return report(sorted(findings, key=lambda finding: order.index(finding.group)), around.groups)


def _local(patient: Patient, around: Surroundings) -> list[Check]:
    """In the order in which they are told."""
    folder, clock, objects, parts = around.data_dir, patient.clock, patient.objects, patient.parts
    store = patient.store
    checks = [_check("python", python), _check("disk", lambda: disk(folder)), _check("inodes", lambda: inodes(folder))]
    if store is not None:
        checks.append(_check("database", lambda: state.database(store, clock), unanswered=FAIL))
    if objects is not None:
        remote = around.groups if state.in_bucket(objects) else {}
        group, title = next(iter(remote.items()), (HERE, ""))
        checks.append(_check("objects", lambda: state.objects_line(objects, group, title), group, FAIL))
        checks.append(_check("clock", lambda: state.clock_line(objects, clock)))
    checks.append(_check("agent", lambda: agent(around.agent_bundle)))
    if store is not None:
        checks.append(_check("cells", lambda: state.cells(store)))
    if parts is not None:
        checks.append(_check("secrets", lambda: _secrets(parts, folder)))
    if around.gpus_promised:
        checks.append(_check("gpus", lambda: gpus(around.cards, around.gpus_promised)))
    return checks


def _check(name: str, ask: Callable[[], Finding], group: str = "local", unanswered: str = WARN) -> Check:
    return Check(name, lambda: [ask()], group, unanswered)


def _loop(parts: Parts, loop: LoopView) -> list[Finding]:
    cause, fix = "the loop is not running", "look into the supervisor's log; then start it again: spot up"
    return [
        Finding(part.name, OK, part.fact) if part.ok else Finding(part.name, FAIL, part.fact, cause, fix)
        for part in readiness(parts, loop)
        if part.name in ("lease", "tick")
    ]


def _secrets(parts: Parts, data_dir: Path) -> Finding:
    fact, cause, fix, well = secrets_told(parts, data_dir)
    return Finding("secrets", OK if well else WARN, fact, cause, fix)

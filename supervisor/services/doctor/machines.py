"""The doctor's look for machines that bill for nobody: ours without a run, and those of another supervisor.

A machine of ours that serves nobody is released by the loop within minutes; where it is seen here, the loop does not
run or may not. One with another supervisor's id is never touched by us: it may serve somebody, or be left over from a
database that was lost, and only a person can tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.domain.errors import Unavailable
from supervisor.domain.findings import OK, WARN, Finding
from supervisor.lifecycle.sweeping import Use
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.services.machines.machines import SeenMachine, look
from supervisor.services.parts import Parts

GROUP, SHOWN = "orphans", 5


def machines_lines(parts: Parts) -> list[Finding]:
    try:
        sight = look(parts)
    except (Unavailable, ProviderUnavailable, StoreDown) as error:
        cause = str(error.__cause__ or error)
        return [_finding("orphans", WARN, "not looked for", cause, "spot ls --machines, once the lines above are well")]
    orphans = [seen for seen in sight.machines if seen.verdict.use is Use.ORPHAN and seen.verdict.release]
    foreign = [seen for seen in sight.machines if seen.verdict.use is Use.FOREIGN and seen.machine.supervisor_id]
    away = f"; not read: {', '.join(sight.unread_zones)}" if sight.unread_zones else ""
    return [
        _orphans(orphans, sum(seen.ours for seen in sight.machines), away),
        _foreign(foreign, _project(parts) if foreign else "", parts.traits(parts.own_provider).removal),
    ]


def _orphans(machines: Sequence[SeenMachine], ours: int, away: str) -> Finding:
    if not machines:
        return _finding("orphans", OK, f"every machine of ours serves a run ({ours} seen){away}")
    fact = f"{_count(machines)} of ours and no run: {_names(machines)}{away}"
    cause = "they are billed and train nothing; the loop releases them at its next sweep where it runs"
    return _finding("orphans", WARN, fact, cause, "spot gc")


def _foreign(machines: Sequence[SeenMachine], project: str, removal: str) -> Finding:
    if not machines:
        return _finding("foreign", OK, "no machine carries another supervisor's id")
    ids = ", ".join(sorted({seen.machine.supervisor_id for seen in machines})[:SHOWN])
    fact = f"{_count(machines)} of another supervisor ({ids}): {_names(machines)}"
    cause = "another supervisor works in this project, or its database was lost; we never touch them"
    first = machines[0].machine
    fix = "spot ls --machines --all"
    if project and removal:
        fix += "; one that nobody needs: " + removal.format(name=first.name, zone=first.zone, account=project)
    return _finding("foreign", WARN, fact, cause, fix)


def _project(parts: Parts) -> str:
    """Empty: machines are on this computer, or the cloud does not say."""
    try:
        return "" if parts.traits(parts.own_provider).shares_computer else parts.platform.account().name
    except ProviderUnavailable:
        return ""


def _count(machines: Sequence[SeenMachine]) -> str:
    return "1 machine" if len(machines) == 1 else f"{len(machines)} machines"


def _names(machines: Sequence[SeenMachine]) -> str:
    names = [f"{seen.machine.name} in {seen.machine.zone}" for seen in machines[:SHOWN]]
    return ", ".join(names) + (f" and {len(machines) - SHOWN} more" if len(machines) > SHOWN else "")


def _finding(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, GROUP)

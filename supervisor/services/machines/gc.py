"""Machines that serve no run: the doctor's lines about them, and their release on a user's request.

The loop releases a machine of ours that serves no run within minutes; if the doctor sees one, the loop does not run, or
may not release it. We never touch a machine with another supervisor's id: it may serve a run there, or be left over
from a lost database, and only a person can decide.

On request, the replica that receives it releases the machines itself instead of handing them to the leader's loop. That
is safe because an unused machine stays unused: the listing is read before the rows, a row is committed before its
machine is requested, and attempt numbers are never reused. A slow replica names the machine by its id, so it cannot
release another one. The loop's sweep does the same in every fourth tick; both together are one release. The user
overrides only the limit on many releases at once, because the supervisor cannot tell whether it is wrong. The minimum
age still applies, and machines in a zone that was not read are never touched. The event with its readings is written
before the release.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.domain.errors import Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.findings import OK, WARN, Finding
from supervisor.domain.machines import MachineRef
from supervisor.lifecycle.sweeping import Use
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.services.machines.machines import (
    AccountJson,
    SeenMachine,
    SeenMachineJson,
    account_json,
    look,
    seen_json,
    usd_now,
)
from supervisor.services.parts import Parts
from supervisor.services.views.formats import usd
from supervisor.telemetry import logs as telemetry
from supervisor.wording.figures import plural

log = logging.getLogger(__name__)

THREADS = 8
MOST = 500  # releases in one request
START_WITHIN_S = 20.0  # later releases are left for the next request, because a client waits 30 s
SHOWN = 1000
GROUP, NAMED = "orphans", 5  # of the doctor's lines


class Collected(TypedDict):
    """`released`: the machines whose release the platform accepted; with `dry_run` the machines that would be released.
    `left`: machines of this supervisor that are not released now. `serving`: how many machines are in use."""

    dry_run: bool
    account: AccountJson
    released: list[SeenMachineJson]
    left: list[SeenMachineJson]
    foreign: int
    serving: int
    usd_per_h: float
    unpriced: int
    unread_zones: list[str]


def collect(parts: Parts, dry_run: bool, caller: Caller) -> Collected:
    """`released`: the platform accepted the release, or would be asked to (`dry_run`). `left`: ours, not released now,
    each with `why`. Raises Unavailable if the machines cannot be read, StoreDown."""
    sight = look(parts)
    ours = [seen for seen in sight.machines if seen.verdict.use in (Use.ORPHAN, Use.ELSEWHERE)]
    due = [seen for seen in ours if seen.verdict.release]
    left = [(seen, seen.verdict.why) for seen in ours if not seen.verdict.release]
    if dry_run:
        done = due
    else:
        done, undone = _release(parts, due, caller)
        left += undone
    prices = [usd_now(seen) for seen in done]
    return {
        "dry_run": dry_run,
        "account": account_json(parts),
        "released": [seen_json(seen, sight.at) for seen in done[:SHOWN]],
        "left": [{**seen_json(seen, sight.at), "why": why} for seen, why in left[:SHOWN]],
        "foreign": sum(not seen.ours for seen in sight.machines),
        "serving": sum(seen.verdict.use in (Use.SERVES, Use.RETIRING, Use.KEPT) for seen in sight.machines),
        "usd_per_h": usd(sum(price for price in prices if price is not None)),
        "unpriced": sum(price is None for price in prices),
        "unread_zones": list(sight.unread_zones),
    }


def _release(
    parts: Parts, due: Sequence[SeenMachine], caller: Caller
) -> tuple[list[SeenMachine], list[tuple[SeenMachine, str]]]:
    """(accepted, not accepted with the reason). The events come first: an interrupted request leaves them."""
    if not due:
        return [], []
    monotonic = parts.clock.monotonic
    now, until = parts.clock.now(), monotonic() + START_WITHIN_S
    parts.store.add_events(None, [_event(seen, caller) for seen in due[:MOST]], now)

    def release(seen: SeenMachine) -> str:
        if monotonic() > until or parts.closing.is_set():
            return "there was no time left to release it; repeat the request"
        return _release_one(parts, seen)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="gc") as threads:
        reasons = list(threads.map(release, due[:MOST]))
    accepted = [seen for seen, why in zip(due, reasons, strict=False) if not why]
    refused = [(seen, why) for seen, why in zip(due, reasons, strict=False) if why]
    return accepted, refused + [(seen, "too many at once; repeat the request") for seen in due[MOST:]]


def _release_one(parts: Parts, seen: SeenMachine) -> str:
    """Why it was not released; "" = the platform has accepted."""
    machine = seen.machine
    fields = {telemetry.ACTION: "release", telemetry.MACHINE: machine.name, telemetry.RUN_ID: machine.run_id}
    log.info("release", extra={**fields, telemetry.REASON: f"gc: {seen.verdict.why}"})
    ref = MachineRef(seen.provider, machine.zone, machine.name, machine.machine_id or None)
    try:
        parts.providers[seen.provider].release(ref)
    except ProviderUnavailable as error:
        log.warning("not released", extra={**fields, telemetry.ERROR: str(error)})
        return "the platform did not accept the request; it may be repeated"
    return ""


def _event(seen: SeenMachine, caller: Caller) -> Event:
    machine = seen.machine
    text = (
        f"Machine {machine.name} in {machine.zone} {seen.verdict.why} (labelled {machine.run_id or 'with no run'}, "
        f"launch {machine.launch_id or 'none'}): {caller.actor} requests its release."
    )
    data = {
        "machine": machine.name,
        "machine_id": machine.machine_id,
        "zone": machine.zone,
        "run_id": machine.run_id,
        "launch_id": machine.launch_id,
        "readings": [f"listing: {machine.state}"],
    }
    values = {"state": machine.state}, {"state": "release requested"}
    return caller.changed(EventKind.MACHINE_LEAKED, text, *values, data)


def machines_lines(parts: Parts) -> list[Finding]:
    try:
        sight = look(parts)
    except (Unavailable, ProviderUnavailable, StoreDown) as error:
        cause = str(error.__cause__ or error)
        return [_finding("orphans", WARN, "not checked", cause, "spot ls --machines, once the lines above are ok")]
    orphans = [seen for seen in sight.machines if seen.verdict.use is Use.ORPHAN and seen.verdict.release]
    foreign = [seen for seen in sight.machines if seen.verdict.use is Use.FOREIGN and seen.machine.supervisor_id]
    away = f"; not read: {', '.join(sight.unread_zones)}" if sight.unread_zones else ""
    return [
        _orphans(orphans, sum(seen.ours for seen in sight.machines), away),
        _foreign(foreign, _project(parts) if foreign else "", parts.traits(parts.own_provider).removal),
    ]


def _orphans(machines: Sequence[SeenMachine], ours: int, away: str) -> Finding:
    if not machines:
        return _finding("orphans", OK, f"every machine of ours serves a run ({ours} listed){away}")
    fact = f"{plural(len(machines), 'machine')} of ours without a run: {_names(machines)}{away}"
    cause = "they are billed and train nothing; a running loop releases them at its next sweep"
    return _finding("orphans", WARN, fact, cause, "spot gc")


def _foreign(machines: Sequence[SeenMachine], project: str, removal: str) -> Finding:
    if not machines:
        return _finding("foreign", OK, "no machine has another supervisor's id")
    ids = ", ".join(sorted({seen.machine.supervisor_id for seen in machines})[:NAMED])
    fact = f"{plural(len(machines), 'machine')} of another supervisor ({ids}): {_names(machines)}"
    cause = "another supervisor uses this project, or its database was lost; we never touch its machines"
    first = machines[0].machine
    fix = "spot ls --machines --all"
    if project and removal:
        fix += "; to remove an unused machine: " + removal.format(name=first.name, zone=first.zone, account=project)
    return _finding("foreign", WARN, fact, cause, fix)


def _project(parts: Parts) -> str:
    """Empty: the machines are on this computer, or the cloud does not respond."""
    try:
        return "" if parts.traits(parts.own_provider).shares_computer else parts.platform.account().name
    except ProviderUnavailable:
        return ""


def _names(machines: Sequence[SeenMachine]) -> str:
    names = [f"{seen.machine.name} in {seen.machine.zone}" for seen in machines[:NAMED]]
    return ", ".join(names) + (f" and {len(machines) - NAMED} more" if len(machines) > NAMED else "")


def _finding(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, GROUP)

"""A person asks for the end of machines of ours that serve nobody; what is released, and what is left and why.

The release is asked for here, in the request, on whatever replica it came to, and not handed to the leader's loop.
That is safe because a leftover stays one: the listing is read before the rows, rows are committed before their machine
is asked for, and attempt numbers are never used twice, so what serves nobody by that order never will again. A replica
that wakes late names the machine by its id, and so cannot hit another. The loop's sweep does the same by itself at
every fourth look; both at once is one release. What a person lifts is the brake on "too many at once": nobody else
could tell whether we are wrong. The floor of age stays, and what is not ours, or in a zone that was not read, is never
touched. The history says so before the call is made, with what it rests on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from supervisor.domain.callers import Caller
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import MachineRef
from supervisor.lifecycle.sweeping import Use
from supervisor.ports.provider import ProviderUnavailable
from supervisor.services.machines.machines import SeenMachine, account_json, look, seen_json, usd_now
from supervisor.services.parts import Parts
from supervisor.services.views.run_view import Json, usd
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

THREADS = 8
MOST = 500  # releases in one request
BEGIN_WITHIN_S = 20.0  # what is not begun by then is left for the next request: a client waits 30 s
SHOWN = 1000


def collect(parts: Parts, dry_run: bool, caller: Caller) -> Json:
    """`released`: asked for and accepted, or with `dry_run` what would be; `left`: of ours, not released now, each with
    `why`. Raises Unavailable when the machines cannot be read, StoreDown."""
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
    """(accepted, those that were not and why). The event comes first: one that is cut off is told of."""
    if not due:
        return [], []
    monotonic = parts.clock.monotonic
    now, until = parts.clock.now(), monotonic() + BEGIN_WITHIN_S
    parts.store.add_events(None, [_event(seen, caller) for seen in due[:MOST]], now)

    def ask(seen: SeenMachine) -> str:
        if monotonic() > until or parts.closing.is_set():
            return "it was not asked for in time; repeat the request"
        return _ask(parts, seen)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="gc") as threads:
        answers = list(threads.map(ask, due[:MOST]))
    accepted = [seen for seen, why in zip(due, answers, strict=False) if not why]
    refused = [(seen, why) for seen, why in zip(due, answers, strict=False) if why]
    return accepted, refused + [(seen, "too many at once; repeat the request") for seen in due[MOST:]]


def _ask(parts: Parts, seen: SeenMachine) -> str:
    """Why it was not released; "" = the platform has accepted."""
    machine = seen.machine
    fields = {telemetry.ACTION: "release", telemetry.MACHINE: machine.name, telemetry.RUN_ID: machine.run_id}
    log.info("release", extra={**fields, telemetry.REASON: f"gc: {seen.verdict.why}"})
    ref = MachineRef(seen.provider, machine.zone, machine.name, machine.machine_id or None)
    try:
        parts.providers[seen.provider].release(ref)
    except ProviderUnavailable as error:
        log.warning("not released", extra={**fields, telemetry.ERROR: str(error)})
        return "the platform did not take the request; it may be repeated"
    return ""


def _event(seen: SeenMachine, caller: Caller) -> Event:
    machine = seen.machine
    text = (
        f"Machine {machine.name} in {machine.zone} {seen.verdict.why} (labelled {machine.run_id or 'with no run'}, "
        f"launch {machine.launch_id or 'none'}): {caller.actor} asks for its release."
    )
    data = {
        "machine": machine.name,
        "machine_id": machine.machine_id,
        "zone": machine.zone,
        "run_id": machine.run_id,
        "launch_id": machine.launch_id,
        "readings": [f"listing: {machine.state}"],
    }
    values = {"state": machine.state}, {"state": "release asked for"}
    return caller.changed(EventKind.MACHINE_LEAKED, text, *values, data)

"""Waivers: a person lets a run go on in spite of a warning or a fail of one check.

A waiver is kept with the run, over restarts and generations, and stands in its history. In G5 and G6 nothing is waived:
`spot approve` decides there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervisor.domain.callers import Caller
from supervisor.domain.errors import CheckNotWaivable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.gates.checks import CHECKS
from supervisor.domain.gates.verdicts import Waiver, may_be_waived
from supervisor.domain.run import Run
from supervisor.services.runs.changing import Action
from supervisor.wording.gates import GATE_NAMES, waived_text


@dataclass(frozen=True, slots=True)
class WaiveRequest:
    """The id of one check and the reason, as a person gives them."""

    check: str
    reason: str


def waive(request: WaiveRequest, caller: Caller) -> Action:
    """Record a waiver; the same check with the same reason changes nothing. Raises CheckNotWaivable."""
    check_waivable(request.check, "#/check")

    def update(run: Run, now: float) -> tuple[Run, Event] | None:
        after = with_waivers(run, (request,), caller, now)
        return None if after is run else (after, waived_event(run, after, caller))

    return Action(update, "nothing was waived")


def waived_event(before: Run, after: Run, caller: Caller) -> Event:
    """For the waivers that differ."""
    earlier = {each.check: each.reason for each in before.waivers}
    new = [each for each in after.waivers if earlier.get(each.check) != each.reason]
    text = waived_text(caller.actor, new)
    old_values = {f"waivers.{each.check}": earlier.get(each.check) for each in new}
    new_values = {f"waivers.{each.check}": each.reason for each in new}
    return caller.changed(
        EventKind.CHECK_WAIVED, text, old_values, new_values, {"checks": [each.check for each in new]}
    )


def with_waivers(run: Run, requests: Sequence[WaiveRequest], caller: Caller, now: float) -> Run:
    """The run with these waivers; a later one for the same check replaces the earlier one."""
    waivers = {each.check: each for each in run.waivers}
    for request in requests:
        earlier = waivers.get(request.check)
        if earlier is None or earlier.reason != request.reason:
            waivers[request.check] = Waiver(request.check, request.reason, caller.actor, now)
    after = tuple(waivers.values())
    return run if after == run.waivers else replace(run, waivers=after)


def check_waivable(name: str, pointer: str) -> None:
    """`name`: of a check. `pointer`: of the name in the request. Raises CheckNotWaivable."""
    check = CHECKS[name]
    if not may_be_waived(check):
        raise CheckNotWaivable(
            f"{name} belongs to {check.gate} ({GATE_NAMES[check.gate]}), which no waiver passes. Nothing was changed. "
            "`spot approve RUN` approves the release; with --accept-loss REASON it gives the results up.",
            {"check": name, "gate": str(check.gate)},
            [(pointer, f"a check of {check.gate} cannot be waived")],
        )

"""Which machines of ours serve nobody: the plan is pure, made on the tick's own listing.

A machine is ours only if it carries the supervisor id of this database; any other is reported, never touched. The
listing was read before the rows, and a row is committed before its machine is asked for: so a machine of ours without
a row is a leftover, not one that is being born. More than three and over 20 % of ours at once means that we are wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from supervisor.domain.machines.machine import Machine, MachineListing

AGE_FLOOR_S = 30.0
REFUSE_OVER = 3
REFUSE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class SweepPlan:
    release: tuple[Machine, ...] = ()
    refused: tuple[Machine, ...] = ()  # too many at once: none is released, somebody is told
    foreign: int = 0


def plan(listing: MachineListing, supervisor_id: str, expected: Collection[str], now: float) -> SweepPlan:
    """`expected`: names of all machines that a live try, a retiring or a kept machine of any unsettled run has."""
    ours = [machine for machine in listing.machines if machine.supervisor_id == supervisor_id]
    leaked = tuple(machine for machine in ours if machine.name not in expected and _old_enough(machine, now))
    foreign = len(listing.machines) - len(ours)
    if len(leaked) > REFUSE_OVER and len(leaked) > REFUSE_SHARE * len(ours):
        return SweepPlan(refused=leaked, foreign=foreign)
    return SweepPlan(release=leaked, foreign=foreign)


def _old_enough(machine: Machine, now: float) -> bool:
    # The floor is a belt over the braces of "row before call"; a platform that tells no age has none to give.
    return machine.created_at is None or now - machine.created_at >= AGE_FLOOR_S

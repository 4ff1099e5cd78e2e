"""Runs, machines and beats for tests by example: a fixed now, and parts with sensible defaults."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState, Placement
from supervisor.domain.observation import BEATS, MACHINES, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status

NOW = datetime(2025, 11, 21, 12, 0, tzinfo=UTC).timestamp()
H, MIN = 3600.0, 60.0
ZONES = ("us-east1-b", "us-east1-c", "us-east1-d")
WORLD = World(Knobs("the-supervisor"), fresh=frozenset({BEATS, MACHINES}))


def place(zone: str = "us-east1-c") -> Placement:
    return Placement("gce", "us-east1", zone, "g2-standard-8", True)


def run_in(status: Status, **fields: object) -> Run:
    base = Run(
        key=1, run_id="digits-7", owner="local", cell="c", provider="gce", generation=1, status=status,
        policy=Policy(zones=ZONES, shapes=("g2-standard-8",)), created_at=NOW - 4, generation_at=NOW - 4,
        status_since=NOW - 4,
    )  # fmt: skip
    return replace(base, **fields)


def attempt(number: int = 4, zone: str = "us-east1-d", **fields: object) -> Attempt:
    base = Attempt(
        number=number, generation=1, launch_id=f"1.{number}.1", machine_name="spot-0badcafe-a4-t1", machine_id="m",
        placement=place(zone), requested_at=NOW - 8000, started_at=NOW - 7900, price_usd_per_h=0.5,
    )  # fmt: skip
    return replace(base, **fields)


def ended(cause: Cause, ran_s: float, zone: str = "us-east1-c", **fields: object) -> Attempt:
    base = attempt(zone=zone, cause=cause, ended_at=NOW, gone_at=NOW, price_usd_per_h=None)
    return replace(base, **{"started_at": NOW - ran_s, **fields})


def pulse(phase: str = "training", **fields: object) -> Pulse:
    base = Pulse("1.4.1", sequence=9, phase=phase, phase_since=NOW - 100, beat_at=NOW - 8)
    return replace(base, **fields)


def open_try(zone: str = "us-east1-c", attempt_number: int = 3, number: int = 1) -> Try:
    return Try(attempt_number, number, f"1.{attempt_number}.{number}", "spot-0badcafe-a3-t1", place(zone), NOW - 4)


def failed_try(cause: Cause, number: int, detail: str = "") -> Try:
    return replace(open_try(number=number), ended_at=NOW, outcome=cause, detail=detail)


def machine_of(launch: Attempt | Try, **fields: object) -> Machine:
    """The machine of this attempt or try, up."""
    zone, launch_id = launch.placement.zone, launch.launch_id
    base = Machine("m", launch.machine_name, zone, MachineState.UP, "the-supervisor", "digits-7", launch_id)
    return replace(base, **fields)


def beat_of(launch: Attempt | Try, sequence: int, phase: str = "training", **fields: object) -> Beat:
    number = launch.number if isinstance(launch, Attempt) else launch.attempt
    return Beat("digits-7", number, launch.launch_id, "m", "boot", sequence, phase, **fields)

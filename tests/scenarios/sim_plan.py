"""Properties of the machines and trainings of one run, and what a simulated agent can reach."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from supervisor.contract.heartbeat import Exit
from tests.fakes.provider import FakeMachine
from tests.scenarios.fault_points import StoreAccess

NEVER = math.inf
RETRY_S = 5.0


class NotReached(Exception):
    """A push that no supervisor received."""


@dataclass
class Plan:
    """Times in seconds, `rate` in steps per second. `after`: what happens to the machine when its agent has left:
    gone, ended (stopped but still there), or stays (up, as after a self-delete that failed)."""

    steps: int = 1000
    rate: float = 1.0
    checkpoint: int = 100  # steps between two of them; 0 = none
    boot: float = 20.0
    restore: float = 5.0
    finish: float = 5.0
    save: float = 1.0
    drill: float = 180.0  # how long a drill takes; 0 = its agent knows no drills
    reports: bool = True
    push: bool = True
    carries: bool = True  # its beats carry recent points; False = an agent of an older build
    ignores: bool = False  # its training starts over beside a restored checkpoint, and its agent ends it
    starts: bool = True  # the agent comes up at all
    uploads: bool = True  # the results reach the store
    results: tuple[str, ...] = ("model.bin",)
    after: str = "gone"
    exits: tuple[Exit, float] | None = None  # (how, seconds after its training began)


@dataclass
class Reach:
    """What an agent can reach: the store by its own access, the supervisor, its machine."""

    objects: StoreAccess
    monotonic: Callable[[], float]
    push: Callable[[str, bytes], Any]  # the response; raises NotReached
    machine: Callable[[], FakeMachine | None]  # None = it is gone
    leave_machine: Callable[[str], None]  # called with Plan.after

"""The weather over Google Cloud: each deed is one misfortune, ordered of the tests' cloud, most of them for a while.

A deed takes the weather, strikes, and tells in a few words what it did; "" when there was nothing to strike. What it
knows that nobody inside can know (which machine was really struck, what could be read when) it notes for the watch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from supervisor.domain.machines import SUPERVISOR_LABEL
from tests.acceptance.weather_house import WeatherHouse
from tests.cloud.cloud import ZONES

SETTLES_S = 300.0  # after the clouds have gone, before what could be read then counts as read


class Weather:
    """`struck`: machine id -> what befell it, in order. `blind`: until when, by the cloud's clock, nothing, or a zone,
    or a machine by name, or the agents' way to the store, could be relied on. `newborn`: zone -> since when and until
    when machines that are made there are preempted soon."""

    def __init__(self, house: WeatherHouse, runs: tuple[str, ...], chance: random.Random) -> None:
        self.house, self.runs, self.chance = house, runs, chance
        self.struck: dict[str, list[str]] = {}
        self.blind: dict[str, float] = {}
        self.newborn: dict[str, tuple[float, float]] = {}
        self.undo: list[tuple[float, Callable[[], None]]] = []
        self.foreign: list[Any] = []
        self.stopped: dict[str, int] = {}  # run -> the generation that somebody stopped

    @property
    def now(self) -> float:
        return self.house.now()

    def pass_by(self) -> None:
        """What was ordered for a while, and is over."""
        due = [one for one in self.undo if one[0] <= self.now]
        self.undo = [one for one in self.undo if one[0] > self.now]
        for _, end in due:
            end()
        house = self.house
        if house.supervisor is None and not any(end == house.start for _, end in self.undo):
            self.undo.append((self.now + self.chance.choice((0.0, 60.0, 600.0)), house.start))

    def strike(self) -> str:
        name, deed = self.chance.choice(DEEDS)
        told = deed(self)
        return f"{name} {told}".rstrip() if told is not None else ""

    # --- for the deeds ------------------------------------------------------------------------------------------------

    def a_while(self, end: Callable[[], None] | None = None, *blinded: str, longest_s: float = 1800.0) -> float:
        """Seconds; `end` is called after them. `blinded`: see `blind`; "" = everything."""
        seconds = self.chance.choice((20.0, 90.0, 300.0, longest_s))
        if end is not None:
            self.undo.append((self.now + seconds, end))
        for what in blinded:
            until = self.now + seconds + SETTLES_S
            self.blind[what] = max(self.blind.get(what, 0.0), until)
        return seconds

    def zone(self) -> str:
        return self.chance.choice(ZONES)

    def run(self) -> str:
        return self.chance.choice(self.runs)

    def ours(self, *statuses: str) -> list[Any]:
        mine = self.house.rows.supervisor_id
        found = [vm for vm in self.house.cloud.instances() if vm.labels.get(SUPERVISOR_LABEL) == mine]
        return [vm for vm in found if not statuses or vm.status in statuses]

    def befalls(self, vm: Any, what: str) -> str:
        self.struck.setdefault(vm.id, []).append(what)
        return f"{vm.name} {what}"

    def stranger(self, name: str, zone: str, labels: dict[str, str]) -> None:
        """A machine of somebody else."""
        self.house.add(name, zone, labels)
        self.foreign.append(self.house.compute.instances[(zone, name)])

    def agent(self) -> Any:
        alive = [one for one in self.house.agents if not one.over and one.reach.machine() is not None]
        return self.chance.choice(alive) if alive else None


Deed = Callable[[Weather], "str | None"]
DEEDS: list[tuple[str, Deed]] = []


def deed(times: int = 1) -> Callable[[Deed], Deed]:
    """`times`: how likely, against the others."""

    def add(function: Deed) -> Deed:
        DEEDS.extend([(function.__name__, function)] * times)
        return function

    return add

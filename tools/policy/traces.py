"""The measured traces of `data/`, and the cases of the public benchmark that are cut from them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
TICK_S = 600.0
H = 3_600.0
REQUESTS = 16  # of the H100 data, in each zone and round

# The benchmark: every machine has the prices of one V100 in us-west-2, whatever it is.
ON_DEMAND_USD, SPOT_USD = 3.06, 0.9731
WORK_S = 48 * H
DEADLINES_H = (52, 70)
CHANGEOVERS_H = (0.02, 0.05, 0.1)


class Case(NamedTuple):
    """`up`: for each tick until the deadline, whether spot can be had in it."""

    machine: str
    deadline_h: int
    changeover_h: float
    up: tuple[bool, ...]

    @property
    def cell(self) -> tuple[str, int, float]:
        return self.machine, self.deadline_h, self.changeover_h


class Zone(NamedTuple):
    """`up`: for each tick, whether a machine could be had. `granted`: how many of `REQUESTS` were."""

    name: str
    spot_usd: float
    on_demand_usd: float
    up: tuple[bool, ...]
    granted: tuple[int, ...] = ()

    @property
    def region(self) -> str:
        return self.name.rpartition("-")[0]


def cases() -> Iterator[Case]:
    """The 1,080 of `cant_be_late`."""
    first, *lines = (DATA / "aws-2022.txt").read_text(encoding="utf-8").splitlines()
    starts = [int(word) for word in first.split()[1:]]
    for line in lines:
        machine, *lengths = line.split()
        trace = _ticks(lengths)
        for deadline_h in DEADLINES_H:
            for changeover_h in CHANGEOVERS_H:
                for start in starts:
                    yield Case(machine, deadline_h, changeover_h, trace[start : start + deadline_h * 6])


def zones() -> tuple[Zone, ...]:
    """The 13 of October 2025."""
    lines = (DATA / "h100-2025.txt").read_text(encoding="utf-8").splitlines()
    return tuple(_zone(*line.split()) for line in lines)


def _zone(name: str, spot_usd: str, on_demand_usd: str, counts: str) -> Zone:
    granted = tuple(int(count, REQUESTS + 1) for count in counts)
    return Zone(name, float(spot_usd), float(on_demand_usd), tuple(count > 0 for count in granted), granted)


def _ticks(lengths: list[str]) -> tuple[bool, ...]:
    return tuple(up for up, length in zip(cycle((False, True)), lengths, strict=False) for _ in range(int(length)))

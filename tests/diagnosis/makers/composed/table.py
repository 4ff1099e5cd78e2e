"""All composed cases: `family/name` -> a function that writes it into a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.diagnosis.makers.composed import (
    alive,
    apart,
    boot,
    cards,
    code,
    disks,
    gone,
    hangs,
    memory,
    ours,
    results,
    slow,
    third,
    unseen,
)
from tests.diagnosis.makers.situations import cases_of

_FAMILIES = {
    "memory": memory.MECHANISMS,
    "cards": cards.MECHANISMS,
    "disks": disks.MECHANISMS,
    "gone": gone.MECHANISMS,
    "boot": boot.MECHANISMS,
    "code": code.MECHANISMS,
    "results": results.MECHANISMS,
    "hangs": hangs.MECHANISMS,
    "ours": ours.MECHANISMS,
    "apart": (*apart.MECHANISMS, *unseen.MECHANISMS, *third.MECHANISMS),
    "slow": slow.MECHANISMS,
    "alive": alive.MECHANISMS,
}
COMPOSED_CASES: dict[str, Callable[[Path], None]] = {
    name: maker for family, mechanisms in _FAMILIES.items() for name, maker in cases_of(family, mechanisms).items()
}

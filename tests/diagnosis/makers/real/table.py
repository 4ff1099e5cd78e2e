"""All real cases: `family/name` -> how it is lived."""

from __future__ import annotations

from tests.diagnosis.makers.lives import Live
from tests.diagnosis.makers.real import code, disks, gone, hangs, memory, results

_FAMILIES = {
    "memory": memory.CASES,
    "disks": disks.CASES,
    "gone": gone.CASES,
    "code": code.CASES,
    "hangs": hangs.CASES,
    "results": results.CASES,
}
REAL_CASES: dict[str, Live] = {f"{family}/{live.name}": live for family, cases in _FAMILIES.items() for live in cases}

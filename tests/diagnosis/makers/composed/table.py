"""All composed cases: `family/name` -> a function that writes it into a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.diagnosis.makers.composed import memory
from tests.diagnosis.makers.situations import cases_of

_FAMILIES = {"memory": memory.MECHANISMS}
COMPOSED_CASES: dict[str, Callable[[Path], None]] = {
    name: maker for family, mechanisms in _FAMILIES.items() for name, maker in cases_of(family, mechanisms).items()
}

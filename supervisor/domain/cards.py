"""The GPUs of the supervisor's own computer, as a launch and the doctor see them: each is free or has a holder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """`holder`: who has it, as words that follow "GPU 0 is "; empty = free. `ours`: a machine of ours has it."""

    index: int
    uuid: str
    name: str
    holder: str = ""
    ours: bool = False

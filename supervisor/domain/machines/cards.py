"""The GPUs of the supervisor's own computer, as a launch and the doctor see them: each is free, has a holder, or is set
aside because its driver says that it is broken.

A card that is set aside is given to no run until a person says that it is back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Aside:
    """`why`: what the driver said of the card. `machine` and `run_id`: where that was seen, at epoch seconds `at`."""

    why: str
    machine: str
    run_id: str
    at: float

    @property
    def text(self) -> str:
        """As words that follow "GPU 0 is "."""
        moment = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"set aside: {self.why} (seen by machine {self.machine} of run {self.run_id}, {moment})"


@dataclass(frozen=True, slots=True)
class Card:
    """`holder`: who has it, as words that follow "GPU 0 is "; empty = nobody. `ours`: a machine of ours has it. `index`
    None: the driver does not show this card."""

    index: int | None
    uuid: str
    name: str
    holder: str = ""
    ours: bool = False
    aside: Aside | None = None

    @property
    def free(self) -> bool:
        return not self.holder and self.aside is None

    @property
    def label(self) -> str:
        return self.uuid if self.index is None else f"GPU {self.index}"

    @property
    def state(self) -> str:
        """As words that follow "GPU 0 is "."""
        words = [self.holder] if self.holder else []
        if self.aside is not None:
            words.append(self.aside.text)
        if self.index is None:
            words.append("not shown by the driver")
        return ", and ".join(words) or "free"

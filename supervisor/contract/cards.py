"""The GPUs of one computer, as the code beside them reports them: each is free, has a holder, or is set aside because
its driver reports a fault. No run gets a card that is set aside until a person says that it works again.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional


class Aside(NamedTuple):
    """Why a card is set aside. `why`: the fault as the driver reports it. `machine`, `run_id`: where it was seen, at
    epoch seconds `at`."""

    why: str
    machine: str
    run_id: str
    at: float

    @property
    def text(self) -> str:
        """The words after "GPU 0 is "."""
        from datetime import datetime, timezone  # late: a command on a host needs it for a card with a fault only

        moment = datetime.fromtimestamp(self.at, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        return f"set aside: {self.why} (seen by machine {self.machine} of run {self.run_id}, {moment})"


class Card(NamedTuple):
    """A GPU. `holder`: what uses it, as the words after "GPU 0 is "; "" = nothing. `ours`: a machine of ours uses it.
    `index` None: the driver does not show this card."""

    index: Optional[int]  # type: ignore[assignment] # a card is nowhere used as a tuple
    uuid: str
    name: str
    holder: str = ""
    ours: bool = False
    aside: Optional[Aside] = None

    @property
    def free(self) -> bool:
        return not self.holder and self.aside is None

    @property
    def label(self) -> str:
        return self.uuid if self.index is None else f"GPU {self.index}"

    @property
    def state(self) -> str:
        """The words after "GPU 0 is "."""
        words = [self.holder] if self.holder else []
        if self.aside is not None:
            words.append(self.aside.text)
        if self.index is None:
            words.append("not shown by the driver")
        return ", and ".join(words) or "free"


def card_values(card: Card) -> Dict[str, Any]:
    """As JSON."""
    return {**card._asdict(), "aside": None if card.aside is None else card.aside._asdict()}


def card_of(data: Mapping[str, Any]) -> Card:
    """From `card_values` of a card, also after JSON. KeyError, TypeError, ValueError for anything else."""
    aside = data["aside"]
    return Card(**{**data, "aside": None if aside is None else Aside(**aside)})

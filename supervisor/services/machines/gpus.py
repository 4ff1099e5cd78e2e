"""The GPUs of this computer: the user of each, which are set aside, and the request of a person to put one back.

A GPU that its own driver calls broken is given to no run. Only a person who has fixed it, or has rebooted the computer,
puts it back: a driver without errors now proves little.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract.cards import Aside, Card
from supervisor.domain.callers import Caller
from supervisor.domain.errors import InvalidRequest, NotSupportedHere, Unavailable
from supervisor.domain.events import EventKind
from supervisor.ports.provider import OwnCards, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.views import formats


class SetAside(TypedDict):
    """`why`: what the driver reported of this GPU. `machine`, `run_id`: where that was seen."""

    why: str
    machine: str
    run_id: str
    since: formats.Time


class GpuShown(TypedDict):
    """`ours`: a machine of this supervisor uses it. `state`: the same in words, which follow "GPU 0 is"."""

    uuid: str
    index: Annotated[int | None, Field(description="null: the driver does not show it now")]
    name: Annotated[str | None, Field(description="null: not known")]
    holder: Annotated[str | None, Field(description="what uses it, in words; null: it is not in use")]
    ours: bool
    set_aside: Annotated[SetAside | None, Field(description="null: runs may use it when it is free")]
    state: str


class GpuList(TypedDict):
    gpus: list[GpuShown]


class GpuBack(TypedDict):
    gpu: str


class Gpus:
    """`cards` None: the machines of this supervisor are elsewhere."""

    def __init__(self, parts: Parts, cards: OwnCards | None) -> None:
        self._parts, self._own = parts, cards

    def listed(self) -> GpuList:
        """Asks the driver's tools. Raises NotSupportedHere, Unavailable."""
        try:
            cards = self._cards.cards()
        except ProviderUnavailable as error:
            raise Unavailable(f"The GPUs cannot be read now: {error}.") from error
        return {"gpus": [_card(card) for card in cards]}

    def bring_back(self, uuid: str, caller: Caller) -> GpuBack:
        """Raises NotSupportedHere, InvalidRequest (it is not set aside), Unavailable."""
        try:
            was_aside = self._cards.bring_back(uuid)
        except ProviderUnavailable as error:
            raise Unavailable(f"The GPU was not brought back: {error}.") from error
        if not was_aside:
            raise InvalidRequest(
                "This GPU is not set aside. `spot gpus` shows those that are, by their UUID.",
                {"gpu": uuid},
                [("#/gpu", "not set aside")],
            )
        text = f"{caller.actor} said that {uuid} works again: runs may have it."
        event = caller.event(EventKind.GPU_BACK, text, {"gpu": uuid})
        self._parts.store.add_events(None, [event], self._parts.clock.now())
        return {"gpu": uuid}

    @property
    def _cards(self) -> OwnCards:
        if self._own is None:
            raise NotSupportedHere("The machines of this supervisor are elsewhere: it gives out no GPUs itself.")
        return self._own


def _card(card: Card) -> GpuShown:
    return {
        "uuid": card.uuid,
        "index": card.index,
        "name": card.name or None,
        "holder": card.holder or None,
        "ours": card.ours,
        "set_aside": None if card.aside is None else _set_aside(card.aside),
        "state": card.state,
    }


def _set_aside(aside: Aside) -> SetAside:
    return {"why": aside.why, "machine": aside.machine, "run_id": aside.run_id, "since": formats.time_text(aside.at)}

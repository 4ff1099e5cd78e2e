"""The GPUs of this computer: who has each, which are set aside, and the word of a person that one is back.

A card that its own driver calls broken is given to no run, for the sake of all runs. Whoever has mended it, or has
booted the computer again, says so here: nothing else brings it back, for a driver that is quiet now proves little.
"""

from __future__ import annotations

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import InvalidRequest, NotSupportedHere, Unavailable
from supervisor.domain.events import EventKind
from supervisor.domain.machines.cards import Card
from supervisor.ports.provider import OwnCards, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json


class Gpus:
    """`cards` None: the machines of this supervisor are elsewhere."""

    def __init__(self, parts: Parts, cards: OwnCards | None) -> None:
        self._parts, self._own = parts, cards

    def listed(self) -> Json:
        """Asks the driver's tools. Raises NotSupportedHere, Unavailable."""
        try:
            cards = self._cards.cards()
        except ProviderUnavailable as error:
            raise Unavailable(f"The GPUs cannot be read now: {error}.") from error
        return {"gpus": [_card(card) for card in cards]}

    def bring_back(self, uuid: str, caller: Caller) -> Json:
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
            raise NotSupportedHere(
                "The machines of this supervisor are elsewhere: it gives out no GPUs itself."
            )
        return self._own


def _card(card: Card) -> Json:
    aside = card.aside
    return {
        "uuid": card.uuid,
        "index": card.index,
        "name": card.name or None,
        "holder": card.holder or None,
        "ours": card.ours,
        "set_aside": None
        if aside is None
        else {
            "why": aside.why,
            "machine": aside.machine,
            "run_id": aside.run_id,
            "since": rfc3339.text(aside.at),
        },
        "state": card.state,
    }

"""Google's advice on which zones have capacity now: it reorders the offers and removes none.

It is requested in the background, at most every ten minutes, and only while machines are launched. A zone is good, fair
or poor by its obtainability; within a class the order of the settings stays. The rank of zones also uses the number
itself, beside our own calls (lifecycle/offers/ranking). The API is new: where it does not respond,
one line in the log says so, and the order of the settings counts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from supervisor.domain.machines import Offer, OfferKey, offer_key
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import GceConfig
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

EVERY_S = 600.0
TOO_OLD_S = 1800.0  # older advice does not count
GOOD, FAIR, POOR = 0, 1, 2
GOOD_FROM, FAIR_FROM = 0.7, 0.4  # obtainability, 0 to 1
THREADS = 8
OFF = frozenset({403, 404, 501})  # this project cannot use the API, or the API does not exist


class CapacityAdvice:
    """`offers`: the API advises on the spot offers only."""

    def __init__(
        self,
        config: GceConfig,
        offers: Sequence[Offer],
        compute: Compute,
        threads: Executor,
        monotonic: Callable[[], float],
    ) -> None:
        self._config, self._offers, self._compute = config, tuple(offers), compute
        self._threads, self._monotonic = threads, monotonic
        self._lock = threading.Lock()
        self._on = config.capacity_advice
        self._requested_at: float | None = None
        self._advised: tuple[Offer, ...] = ()  # (): no advice
        self._refreshed_at = 0.0

    def ordered(self) -> tuple[Offer, ...]:
        """All offers; within one shape and market the better zones first."""
        if not self._advised or self._monotonic() - self._refreshed_at > TOO_OLD_S:
            return self._offers
        return self._advised

    def refresh_soon(self) -> None:
        """A machine is being launched: refresh in the background if the advice is old. Returns at once."""
        now = self._monotonic()
        with self._lock:
            due = self._on and (self._requested_at is None or now - self._requested_at >= EVERY_S)
            if due:
                self._requested_at = now
        if due:
            self._threads.submit(self.refresh)

    def refresh(self) -> None:
        """Request the advice on every spot offer. Never raises: an offer without advice counts as fair."""
        advised: dict[OfferKey, float | None] = {}
        for offer in self._offers:
            try:
                if offer.placement.spot:
                    advised[offer_key(offer.placement)] = obtainability(self._config, self._compute, offer)
            except ApiError as error:
                if error.status != 400:  # 400: there is no advice on this shape; there may be on the others
                    self._note_failure(error)
                    break
        if advised:
            self._advised, self._refreshed_at = self._with(advised), self._monotonic()

    def _with(self, advised: Mapping[OfferKey, float | None]) -> tuple[Offer, ...]:
        groups: dict[tuple[str, str], list[Offer]] = {}
        for offer in self._offers:
            chance = advised.get(offer_key(offer.placement))
            kind = offer.placement.market, offer.placement.shape
            groups.setdefault(kind, []).append(replace(offer, chance=chance))
        for group in groups.values():
            group.sort(key=lambda offer: _class_of(offer.chance))
        return tuple(offer for group in groups.values() for offer in group)

    def _note_failure(self, error: ApiError) -> None:
        if error.status in OFF:
            self._on = False
        log.warning(
            "no capacity advice: zones are tried in the order of the settings",
            extra={telemetry.ACTION: "advice", telemetry.ERROR: str(error)},
        )


def _class_of(chance: float | None) -> int:
    if chance is None:
        return FAIR
    return GOOD if chance >= GOOD_FROM else FAIR if chance >= FAIR_FROM else POOR


def obtainability(config: GceConfig, compute: Compute, offer: Offer) -> float | None:
    """How likely Google has one such spot machine now, 0 to 1; None = Google does not judge it. ApiError."""
    advice = compute.post(f"regions/{offer.placement.region}/advice/capacity", question(config, offer))
    scores = ((part.get("scores") or {}).get("obtainability") for part in advice.get("recommendations") or ())
    return max((float(score) for score in scores if score is not None), default=None)


def chances(config: GceConfig, compute: Compute, offers: Sequence[Offer]) -> dict[OfferKey, float]:
    """The same for all spot offers among these, requested side by side; an offer that Google does not judge is left
    out. ApiError where Google judges none of them and refuses one."""
    errors: list[ApiError] = []

    def score(offer: Offer) -> float | None:
        try:
            return obtainability(config, compute, offer)
        except ApiError as error:
            errors.append(error)
            return None

    spot_offers = [offer for offer in offers if offer.placement.spot]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="chances") as threads:
        scores = zip(spot_offers, threads.map(score, spot_offers), strict=True)
        judged = {offer_key(offer.placement): value for offer, value in scores if value is not None}
    if errors and not judged:
        raise errors[0]
    return judged


def question(config: GceConfig, offer: Offer) -> dict[str, Any]:
    """The body of advice.capacity: one machine of that shape in that zone."""
    place, shape = offer.placement, config.shapes[offer.placement.shape]
    selection: dict[str, Any] = {"machineTypes": [shape.machine_type]}
    if shape.gpu_type:
        selection["guestAccelerators"] = [{"acceleratorType": shape.gpu_type, "acceleratorCount": shape.gpus}]
    return {
        "size": 1,
        "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
        "instanceFlexibilityPolicy": {"instanceSelections": {"one": selection}},
        "distributionPolicy": {"targetShape": "ANY", "zones": [{"zone": f"zones/{place.zone}"}]},
    }

"""Google's advice on where there is room now: it reorders the offers and overrules nothing.

Asked in the background, at most every ten minutes, and only while machines are being asked for. A zone is good, fair or
poor by its obtainability; within a class the order of the settings stays. The API is new: where it does not answer, one
line in the log says so, and the order is that of the settings.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from supervisor.domain.machines import Offer, OfferKey, offer_key
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import GceConfig
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

EVERY_S = 600.0
TOO_OLD_S = 1800.0  # then it is no advice any more
GOOD, FAIR, POOR = 0, 1, 2
GOOD_FROM, FAIR_FROM = 0.7, 0.4  # obtainability, 0 to 1
AT_ONCE = 8
OFF = frozenset({403, 404, 501})  # not for this project, or not at all


class Advice:
    """`offers`: spot ones are asked about, as the API advises on no others."""

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
        self._asked_at: float | None = None
        self._classes: Mapping[OfferKey, int] = {}
        self._learnt_at = 0.0

    def ordered(self) -> tuple[Offer, ...]:
        """All offers: within the same shape and market the better zones first."""
        classes = self._classes
        if not classes or self._monotonic() - self._learnt_at > TOO_OLD_S:
            return self._offers
        groups: dict[tuple[bool, str], list[Offer]] = {}
        for offer in self._offers:
            groups.setdefault((offer.placement.spot, offer.placement.shape), []).append(offer)
        ranked = (
            sorted(group, key=lambda offer: classes.get(offer_key(offer.placement), FAIR)) for group in groups.values()
        )
        return tuple(offer for group in ranked for offer in group)

    def wanted(self) -> None:
        """A machine is being asked for: look again where it is time. Returns at once."""
        now = self._monotonic()
        with self._lock:
            due = self._on and (self._asked_at is None or now - self._asked_at >= EVERY_S)
            if due:
                self._asked_at = now
        if due:
            self._threads.submit(self.refresh)

    def refresh(self) -> None:
        """Ask about every spot offer. Never raises: what is not known leaves its offer where it was."""
        found: dict[OfferKey, int] = {}
        for offer in self._offers:
            try:
                if offer.placement.spot:
                    found[offer_key(offer.placement)] = self._class_of(offer)
            except ApiError as error:
                if error.status != 400:  # of this shape nothing can be said; of the others perhaps
                    self._gone(error)
                    break
        if found:
            self._classes, self._learnt_at = found, self._monotonic()

    def _gone(self, error: ApiError) -> None:
        if error.status in OFF:
            self._on = False
        log.warning(
            "no capacity advice: zones are tried in the order of the settings",
            extra={telemetry.ACTION: "advice", telemetry.ERROR: str(error)},
        )

    def _class_of(self, offer: Offer) -> int:
        best = obtainability(self._config, self._compute, offer)
        if best is None:
            return FAIR
        return GOOD if best >= GOOD_FROM else FAIR if best >= FAIR_FROM else POOR


def obtainability(config: GceConfig, compute: Compute, offer: Offer) -> float | None:
    """How likely one such spot machine is to be had now, 0 to 1; None = Google does not judge it. ApiError."""
    answer = compute.post(f"regions/{offer.placement.region}/advice/capacity", question(config, offer))
    scores = [
        float(score)
        for one in answer.get("recommendations") or ()
        if (score := (one.get("scores") or {}).get("obtainability")) is not None
    ]
    return max(scores, default=None)


def chances(config: GceConfig, compute: Compute, offers: Sequence[Offer]) -> dict[OfferKey, float]:
    """The same of all spot offers among these, asked side by side; what Google does not judge is left out. ApiError
    where it judges none and refuses one."""
    asked = [offer for offer in offers if offer.placement.spot]
    found: dict[OfferKey, float] = {}
    refused: list[ApiError] = []

    def ask(offer: Offer) -> None:
        try:
            score = obtainability(config, compute, offer)
        except ApiError as error:
            refused.append(error)
        else:
            found.update({} if score is None else {offer_key(offer.placement): score})

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="chances") as threads:
        list(threads.map(ask, asked))
    if refused and not found:
        raise refused[0]
    return found


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

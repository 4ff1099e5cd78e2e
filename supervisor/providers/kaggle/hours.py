"""The weekly hours of an account: read beside the listing, before a launch, and at the claim of a session.

What could not be read refuses nothing: then Kaggle itself refuses. The last good reading stays, with its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from supervisor.domain.machines import Quota
from supervisor.ports.provider import HoursUsedUp, ProviderUnavailable
from supervisor.providers.kaggle.api import Api, Hours, Weekly
from supervisor.providers.kaggle.profile import NAMES, hours_text
from supervisor.providers.kaggle.settings import CPU, GPU, TPU, KaggleSettings, accelerator_of
from supervisor.wording.figures import clock_text

EVERY_S = 600.0  # between two readings beside the listing
LEAST_S = 900.0  # less is not worth a session


class WeeklyHours:
    """Safe to use from every thread. `last`: (epoch seconds, the last good reading or None)."""

    def __init__(self, api: Api, s: KaggleSettings, now: Callable[[], float]) -> None:
        self._api, self._now = api, now
        every = {shape: accelerator_of(s, shape) for shape in s.kaggle_shapes}
        self._zones = {shape: each.zone for shape, each in every.items() if each is not None and each.zone != CPU}
        self._tried_at = -math.inf
        self.last: tuple[float, Weekly | None] = (-math.inf, None)

    def read(self) -> Weekly:
        """Raises ProviderUnavailable."""
        weekly = self._api.quota()
        self.last = (self._now(), weekly)
        return weekly

    def follow(self) -> None:
        """Beside each listing."""
        now = self._now()
        if self._zones and now - self._tried_at >= EVERY_S:
            self._tried_at = now
            with suppress(ProviderUnavailable):
                self.read()

    def by_shape(self) -> Mapping[str, Quota]:
        """Sends no request."""
        read_at, weekly = self.last
        quotas: dict[str, Quota] = {}
        for shape, zone in self._zones.items():
            hours = None if weekly is None else hours_of(weekly, zone)
            if weekly is None or hours is None:
                continue
            left_s = left_of(hours)
            quotas[shape] = Quota(
                f"weekly {NAMES[zone]} hours",
                read_at,
                None if left_s is None else max(0.0, left_s) / 3600,
                weekly.resets_at,
                None if hours.allowed_s is None else hours.allowed_s / 3600,
            )
        return quotas

    def need(self, zone: str) -> None:
        """Raises HoursUsedUp."""
        if zone == CPU:
            return
        try:
            weekly = self.read()
        except ProviderUnavailable:
            return
        left_s = left_of(hours_of(weekly, zone))
        if left_s is not None and left_s < LEAST_S:
            raise HoursUsedUp(f"{hours_text(zone, hours_of(weekly, zone))}; {self._reset_text(weekly)}")

    def refused(self, words: str) -> HoursUsedUp:
        """After Kaggle has refused a session for them."""
        weekly = None
        with suppress(ProviderUnavailable):
            weekly = self.read()
        return HoursUsedUp(f"Kaggle refuses the session: {words}; {self._reset_text(weekly)}")

    def left_s(self, zone: str) -> float:
        """For a session that runs already: reserved hours are its own. Infinite where that is not known."""
        if zone == CPU:
            return math.inf
        try:
            hours = hours_of(self.read(), zone)
        except ProviderUnavailable:
            return math.inf
        if hours is None or hours.allowed_s is None:
            return math.inf
        return max(LEAST_S, hours.allowed_s - hours.used_s)

    def _reset_text(self, weekly: Weekly | None) -> str:
        if weekly is None or weekly.resets_at is None:
            return "when they begin anew is not known"
        return f"they begin anew at {clock_text(weekly.resets_at, self._now())}"


def hours_of(weekly: Weekly, zone: str) -> Hours | None:
    return weekly.gpu if zone == GPU else weekly.tpu if zone == TPU else None


def left_of(hours: Hours | None) -> float | None:
    """Seconds. None = not known."""
    return None if hours is None or hours.allowed_s is None else hours.allowed_s - hours.used_s - hours.reserved_s

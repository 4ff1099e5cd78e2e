"""The platforms of several providers as one platform: a request about a machine or an offer goes to its own platform.

A request to all platforms returns their responses in order. A platform that does not support it is left out; only if
none supports it, NotSupported is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.ports.platform import (
    Account,
    ConsolePart,
    DataPlace,
    Login,
    PlanQuestion,
    Platform,
    PlatformEvent,
    ShapePrice,
)
from supervisor.ports.provider import LaunchRequest, NotSupported, ProviderUnavailable

T = TypeVar("T")


class Platforms:
    """`account`: of the first platform, which names the cell."""

    def __init__(self, platforms: Mapping[str, Platform]) -> None:
        self._platforms = platforms
        self._first = next(iter(platforms.values()))
        services = (platform.log_service for platform in platforms.values())
        self.log_service = next((service for service in services if service), "")

    def account(self) -> Account:
        return self._first.account()

    def account_so_far(self) -> Account:
        return self._first.account_so_far()

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return self._of(request.placement.provider).preview(request)

    def login(self, ref: MachineRef) -> Login:
        return self._of(ref.provider).login(ref)

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return tuple(
            finding
            for platform, offers in self._by_platform(question.offers)
            for finding in platform.advise(replace(question, offers=offers))
        )

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        responses = _supported([partial(platform.chances, own) for platform, own in self._by_platform(offers)])
        return {key: chance for response in responses for key, chance in response.items()}

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        places = (platform.data_places(regions, image, ask) for platform in self._platforms.values())
        return tuple(dict.fromkeys(chain.from_iterable(places)))

    def prices(self) -> tuple[ShapePrice, ...]:
        return tuple(price for platform in self._platforms.values() for price in platform.prices())

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        _supported([platform.refresh_prices for platform in self._platforms.values()])
        return self.prices()

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        by_provider: dict[str, list[MachineRef]] = {}
        for ref in refs:
            by_provider.setdefault(ref.provider, []).append(ref)
        events = [event for name, own in by_provider.items() for event in self._of(name).history(own, since)]
        return tuple(sorted(events, key=lambda event: event.at))

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        return self._of(ref.provider).console_after(ref, start, max_bytes)

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        return self._of(ref.provider).console_archive(ref, since, max_lines)

    def _of(self, name: str) -> Platform:
        platform = self._platforms.get(name)
        if platform is None:
            raise ProviderUnavailable(f"provider {name} is not in the settings")
        return platform

    def _by_platform(self, offers: Sequence[Offer]) -> Iterator[tuple[Platform, tuple[Offer, ...]]]:
        for name, platform in self._platforms.items():
            own = tuple(offer for offer in offers if offer.placement.provider == name)
            if own:
                yield platform, own


def _supported(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of the calls that are supported. Raises NotSupported if none is."""
    results, refusals = [], []
    for call in calls:
        try:
            results.append(call())
        except NotSupported as error:
            refusals.append(error)
    if refusals and not results:
        raise refusals[0]
    return results

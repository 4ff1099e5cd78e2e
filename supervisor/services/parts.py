"""What the use cases share: the parts that they use, and a way to query several parts within one deadline.

`Parts` is made once, at the start, and is the first argument of each use case. A run's cell, the scope that one leader
sweeps, is fixed at the run's first submit; `Parts.cells` names it for each provider.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.domain.errors import DataElsewhere, Unavailable
from supervisor.domain.machines import Offer, Placement
from supervisor.domain.policies import Knobs, Limits, StallLimits
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.notifier import Courier, NoCourier
from supervisor.ports.objectstore import ObjectReader, ObjectStore
from supervisor.ports.platform import Bills, Platform
from supervisor.ports.provider import DiskImages, Provider, ProviderUnavailable
from supervisor.ports.store import Store
from supervisor.ports.traits import Traits


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for a run that sets none. `gpu_timeout_s`: provider -> how long its machines may wait for their GPU.
    `store_usd_per_gib_month`: None = not set. `image`: for providers that need an image."""

    limits: Limits = field(default_factory=Limits)
    stall: StallLimits = field(default_factory=StallLimits)
    stop_grace_s: float = 120.0
    gpu_timeout_s: Mapping[str, float] = field(default_factory=dict)
    store_usd_per_gib_month: float | None = None
    image: str = ""


def _nowhere(url: str) -> AbstractContextManager[ObjectReader]:
    raise ValueError("this supervisor reads no other store than its own")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stores that are not ours, for reading. `open(url)` raises ValueError for a store that cannot be read from here.
    `scratch`: a folder for copies in transfer. `account()`: the account that reads, "" = no named account; it may
    query the cloud. `busy`: runs that are being imported, protected by `guard`."""

    open: Callable[[str], AbstractContextManager[ObjectReader]] = _nowhere
    scratch: Path | None = None
    account: Callable[[], str] = lambda: ""
    guard: threading.Lock = field(default_factory=threading.Lock)
    busy: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Parts:
    """`providers` and `cells` have the same keys, the supervisor's own provider first. `closing`: set when long work
    must stop. `platforms`: by provider, where there are several. `impatient`: our object store with short timeouts, for
    what a page of a run reads there; None = no provider relays. `images`: of those providers that make images of
    disks. `bills`: of those whose platform's bill is read."""

    store: Store
    objects: ObjectStore
    clock: Clock
    wake: Wake
    providers: Mapping[str, Provider]
    cells: Mapping[str, str]
    knobs: Knobs
    platform: Platform
    defaults: Defaults = field(default_factory=Defaults)
    closing: threading.Event = field(default_factory=threading.Event)
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    courier: Courier = field(default_factory=NoCourier)
    platforms: Mapping[str, Platform] = field(default_factory=dict)
    impatient: ObjectStore | None = None
    images: Mapping[str, DiskImages] = field(default_factory=dict)
    bills: Mapping[str, Bills] = field(default_factory=dict)
    own_provider: str = field(init=False)  # of a run that names none

    def __post_init__(self) -> None:
        object.__setattr__(self, "own_provider", next(iter(self.providers)))

    def platform_of(self, provider: str) -> Platform:
        return self.platforms.get(provider, self.platform)

    def gpu(self, placement: Placement) -> str | None:
        """The GPUs of a machine there, in words; None = no GPU, or not known because the provider is not in use."""
        provider = self.providers.get(placement.provider)
        return None if provider is None else provider.gpus(placement.shape) or None

    def traits_of(self, run: Run) -> tuple[Traits, ...]:
        """Of each provider that the run may use."""
        return tuple(map(self.traits, run.providers))

    def traits(self, provider: str) -> Traits:
        """For a provider that is not in use any more: the traits of our own."""
        return (self.providers.get(provider) or self.providers[self.own_provider]).traits


@dataclass(frozen=True, slots=True)
class Answer:
    """`error`: raised instead of a value. `late`: neither came in time."""

    value: Any = None
    error: Exception | None = None
    late: bool = False

    @property
    def good(self) -> bool:
        return self.error is None and not self.late


def ask_together(questions: Mapping[str, Callable[[], Any]], within_s: float) -> dict[str, Answer]:
    """Call all questions in parallel: their answers by name, in order. Takes at most `within_s` seconds; raises nothing
    of theirs. Each question has a daemon thread with the caller's context, so that a hanging connection does not keep
    the process from ending."""
    answers: dict[str, Answer] = {}

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            answers[name] = Answer(question())
        except Exception as error:  # noqa: BLE001 - the caller gets it
            answers[name] = Answer(error=error)

    threads = [
        threading.Thread(target=copy_context().run, args=(ask, name, question), name=f"ask {name}", daemon=True)
        for name, question in questions.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    in_time = dict(answers)
    return {name: in_time.get(name, Answer(late=True)) for name in questions}


def refuse_far(platform: Platform, offers: Sequence[Offer], image: str) -> None:
    """For `same_region: require`: refuse offers outside of the region of the run's data. A multi-region that contains
    the machine's region is near; the plan says that reading from it is billed. `offers`: all that the run may use.
    Raises DataElsewhere, Unavailable."""
    zones: dict[str, list[str]] = {}
    for place in (offer.placement for offer in offers):
        if place.zone not in zones.setdefault(place.region, []):
            zones[place.region].append(place.zone)
    try:
        places = platform.data_places(tuple(zones), image)
    except ProviderUnavailable as error:
        raise Unavailable(
            f"same_region: require cannot be checked now: {error}. Nothing was stored. Retry in a few seconds; "
            "`spot doctor` shows what the supervisor may read.",
            {"part": "data places"},
        ) from error
    for data in places:
        apart = [zone for region, names in zones.items() if region not in data.regions for zone in names]
        if apart:
            raise DataElsewhere(
                f"same_region: require: {data.what} is in {data.location}, and the run may start in "
                f"{', '.join(apart)}. Name zones of {data.location} only, or move the data. Nothing was stored.",
                {"location": data.location, "zones": apart},
                [("#/spec/same_region", f"{data.what} is in another region")],
            )

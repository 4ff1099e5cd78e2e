"""What every use case may reach. Made once, at the start, and handed to each function as its first argument.

A run's cell is named here for each provider: the scope that one leader sweeps, fixed at the run's first submit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.domain.machines import Placement
from supervisor.domain.policies import Knobs, Limits, StallLimits
from supervisor.domain.run import Run
from supervisor.ports.clock import Clock, Wake
from supervisor.ports.notifier import Courier, NoCourier
from supervisor.ports.objectstore import ObjectReader, ObjectStore
from supervisor.ports.platform import Platform
from supervisor.ports.provider import Provider
from supervisor.ports.store import Store
from supervisor.ports.traits import Traits


@dataclass(frozen=True, slots=True)
class Defaults:
    """Limits of a run that names none. `gpu_timeout_s`: provider -> how long its machines may wait for their GPU."""

    limits: Limits = field(default_factory=Limits)
    stall: StallLimits = field(default_factory=StallLimits)
    stop_grace_s: float = 120.0
    gpu_timeout_s: Mapping[str, float] = field(default_factory=dict)
    store_usd_per_gib_month: float | None = None  # None = nobody has told us
    image: str = ""  # of a run that names none, on a provider that needs one


def _nowhere(url: str) -> AbstractContextManager[ObjectReader]:
    raise ValueError("this supervisor reads no other store than its own")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stores that are not ours, to be read. `open(url)` raises ValueError for one that cannot be read from here.
    `scratch`: a folder for what is on its way. `account`: who reads, "" = nobody by name; may ask the cloud. `busy`:
    runs that are being imported, under `guard`."""

    open: Callable[[str], AbstractContextManager[ObjectReader]] = _nowhere
    scratch: Path | None = None
    account: Callable[[], str] = lambda: ""
    guard: threading.Lock = field(default_factory=threading.Lock)
    busy: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Parts:
    """`providers` and `cells` have the same keys, the supervisor's own first. `closing`: what takes long is to be
    broken off."""

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
    platforms: Mapping[str, Platform] = field(default_factory=dict)  # of several providers: each one's own
    own_provider: str = field(init=False)  # of a run that names none

    def __post_init__(self) -> None:
        object.__setattr__(self, "own_provider", next(iter(self.providers)))

    def platform_of(self, provider: str) -> Platform:
        return self.platforms.get(provider, self.platform)

    def gpu(self, placement: Placement) -> str | None:
        """What a machine there has for the training, as people say it; None = nothing, or not known, as of a provider
        of before."""
        provider = self.providers.get(placement.provider)
        return None if provider is None else provider.gpus(placement.shape) or None

    def traits_of(self, run: Run) -> tuple[Traits, ...]:
        """Of each provider that the run may use."""
        return tuple(map(self.traits, run.providers))

    def traits(self, provider: str) -> Traits:
        """Of a provider that is here no more, those of our own."""
        return (self.providers.get(provider) or self.providers[self.own_provider]).traits

"""The gce provider before the tests' Compute Engine: real HTTP, Google's own clients, a clock that pauses advance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.oauth2.credentials import Credentials

from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.gce.config import GceConfig, Shape, offers
from supervisor.providers.gce.provider import GceProvider
from tests.cloud.compute import ComputeFake
from tests.cloud.discovery import Oracle
from tests.cloud.web import Request, Response
from tests.contracts.provider_subject import Subject

ZONES = ("us-east1-c", "us-east1-b", "us-central1-a")
SHAPES = {"t4": Shape("n1-standard-8", "nvidia-tesla-t4", 1), "l4": Shape("g2-standard-8", "", 1)}
IMAGE = f"us-docker.pkg.dev/p/train/digits@sha256:{'a' * 64}"
LOOKS = 60


class TickingClock:
    """Time passes when any thread pauses."""

    def __init__(self, start: float = 1_790_000_000.0) -> None:
        self._now, self._lock = start, threading.Lock()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds


class GceSubject(Subject):
    """`violations`: what Google's discovery document does not allow, of all exchanges."""

    gpus = {"t4": "T4", "l4": "L4", "a2-ultragpu-8g": "8 × A100 80GB", "n1-standard-8": ""}  # two earlier ones

    def __init__(self, folder: Path, config: GceConfig | None = None, per_try_s: float = 5.0) -> None:
        super().__init__()
        self.clock, self.violations = TickingClock(), list[str]()
        self._oracle = Oracle("compute")
        self.compute = ComputeFake(self.clock.now, watch=self._watch)
        agent = folder / "agent.pyz"
        agent.write_bytes(b"an agent")
        self.objects = FilesystemStore.create(folder / "objects")
        chosen = config or GceConfig("p", ZONES, SHAPES, store_url="gs://spot-tests/some/where", capacity_advice=False)
        self.config = replace(chosen, endpoint=self.compute.url)
        self.agent, self.per_try_s = agent, per_try_s
        self.provider = self.make()

    def _watch(self, asked: Request, told: Response) -> None:
        if not told.headers.get("Content-Type", "").startswith("text/html"):  # a proxy's word, and not Google's
            self.violations += self._oracle.check(asked, told)

    def make(self) -> GceProvider:
        """Another supervisor's provider, or the same one after a restart: nothing is remembered."""
        return GceProvider(
            self.config,
            offers(self.config),
            self.objects,
            self.agent,
            self.clock,
            pause=self.clock.advance,
            per_try_s=self.per_try_s,
            credentials=lambda: Credentials(token="a-token"),  # type: ignore[no-untyped-call]
        )

    def close(self) -> None:
        self.provider.close()
        self.compute.close()
        assert self.violations == [], "\n".join(self.violations[:5])

    def request(self, *args: Any, **kwargs: Any) -> LaunchRequest:
        return replace(super().request(*args, **kwargs), image=IMAGE)

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(LOOKS):
            found = condition()
            if found:
                return found
            self.clock.advance(2.0)
        raise AssertionError(f"waited in vain for {what}")

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        zone = request.placement.zone
        self.compute.unreachable(zone)
        try:
            yield
        finally:
            self.compute.reachable(zone)

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        self.compute.storm(503, 3600.0)
        try:
            yield
        finally:
            self.compute.calm()

    @contextmanager
    def looking_for_room(self, request: LaunchRequest, finds: bool) -> Iterator[None]:
        self.compute.create_s = self.compute.fail_s = 60.0
        if not finds:
            self.compute.stock_out(request.placement.zone)
        yield

    def keep_secret(self, value: str) -> str:
        return "gcp:projects/p/secrets/key/versions/1"

    def spoil_secret(self, reference: str, spoilt: bool = True) -> None:
        raise NotImplementedError("the machine itself reads it, with its own account")

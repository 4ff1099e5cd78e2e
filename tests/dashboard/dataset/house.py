"""The house in which the stories happen: a supervisor with Google-like machines, whose time stands still.

Everything goes through the real store. No loop runs: nobody but who looks at it changes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from supervisor.api.wire.deps import Services, assemble
from supervisor.domain.events import Event
from supervisor.domain.findings import OK, WARN, Check, Finding
from supervisor.domain.machines import Offer, Placement
from supervisor.domain.policies import Knobs, StallLimits
from supervisor.domain.run import Image, Run
from supervisor.domain.status import Status
from supervisor.ports.platform import Account, ShapePrice
from supervisor.ports.store import Change, Sample, Store
from supervisor.services.doctor.doctor import Surroundings
from supervisor.services.parts import Defaults, Parts
from supervisor.services.reading.about import About
from supervisor.services.reading.health import LoopStatus
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.runs.policy import policy_from
from tests.dashboard.dataset.story import Step, Story
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier
from tests.fakes.objectstore import MemoryStore
from tests.fakes.platform import FakePlatform
from tests.fakes.provider import FakeProvider
from tests.fakes.wake import FakeWake

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC).timestamp()
CELL = "gce/acme-ml-prod"
L4, A100, H100 = "g2-standard-8", "a2-highgpu-1g", "a3-highgpu-1g"
EAST = ("us-east1-b", "us-east1-c", "us-east1-d")
WEST = "europe-west4-a"
PRICES = {L4: (0.2831, 0.8546), A100: (1.4712, 3.6734), H100: (2.2513, 11.0612)}  # spot, on demand, USD per hour
IMAGE = "us-east1-docker.pkg.dev/acme-ml-prod/training/%s"


@dataclass
class House:
    """`told`: the stories so far, by run id. `token`: of an administrator, for services that require one."""

    store: Store
    clock: FakeClock
    objects: MemoryStore
    provider: FakeProvider
    platform: FakePlatform
    parts: Parts
    services: Services
    told: dict[str, Story]
    token: str = ""

    @property
    def now(self) -> float:
        return self.clock.now()

    def story(self, run_id: str, age_s: float, owner: str, actor: str, **spec: Any) -> Story:
        """A run that was submitted so long ago."""
        at = self.now - age_s
        policy = policy_from(spec, self.parts, at)
        run = Run(
            0, run_id, owner, CELL, "gce", 1, Status.PENDING, policy, at, at, at,
            image=Image(digest=policy.image + "@sha256:" + "5e1f" * 16, pinned_for=policy.image),
        )  # fmt: skip
        offers = {(one.placement.zone, one.placement.shape, one.placement.spot): one for one in _offers()}
        self.told[run_id] = Story(run, spec, actor, offers, self.now)
        return self.told[run_id]

    def put(self, at: float, key: str, content: bytes) -> None:
        """An object, written at that time."""
        stands = self.clock.now()
        self.clock.step(at - stands)
        self.objects.put(key, content)
        self.clock.step(stands - self.clock.now())

    def write(self, stories: Sequence[Story], others: Sequence[tuple[float, Event]] = ()) -> None:
        """All steps of all runs, and `others`, in the order of their times; then their series and last beats."""
        stored: dict[str, Run] = {}
        told = [*others, *((step.at, step) for story in stories for step in story.steps)]
        for at, one in sorted(told, key=lambda pair: pair[0]):
            if isinstance(one, Event):
                self.store.add_events(None, (one,), at)
            else:
                stored[one.run.run_id] = self._step(one, stored.get(one.run.run_id))
        points = [
            Sample(stored[story.run.run_id].key, point.at, point.attempt, point.pulse)
            for story in stories
            for point in story.points
        ]
        lease = self.store.take_lease(CELL, "supervisor-1", 3600.0, self.clock.monotonic())
        assert lease is not None
        self.store.write_pulses(points, lease)
        for story in stories:
            self._step(Step(self.now, story.run, ()), self.store.find(story.run.run_id))

    def _step(self, step: Step, before: Run | None) -> Run:
        with self.store.begin(step.at) as tx:
            if before is None:
                spec = self.told[step.run.run_id].spec
                return tx.insert(step.run, spec, spec.get("labels", {}), step.events)
            after = replace(step.run, key=before.key, version=before.version)
            stored = tx.apply(Change(before, after, step.events), step.at)
        assert stored is not None
        return stored


def open_house(store: Store, data_dir: Path, now: float = NOW) -> House:
    """`store`: empty, opened with the channels of WEBHOOKS and the log."""
    clock = FakeClock(now)
    objects = MemoryStore(clock.now, "gs://acme-ml-prod-spot")
    provider = FakeProvider(clock, name="gce")
    provider.offered = _offers()
    provider.gpu_words = {L4: "L4", A100: "A100", H100: "H100 80GB"}
    platform = FakePlatform(
        Account("acme-ml-prod", "402417395501", "https://console.cloud.google.com/compute/instances?project=acme-ml-prod"),
        price_list=tuple(
            ShapePrice(shape, region, spot, plain, "the price list of Google Cloud", "2026-11-21")
            for shape, (spot, plain) in PRICES.items()
            for region in ("us-east1", "europe-west4")
        ),
    )  # fmt: skip
    defaults = Defaults(stall=StallLimits(), gpu_timeout_s={"gce": 1200.0}, store_usd_per_gib_month=0.02)
    knobs = Knobs(store.supervisor_id)
    parts = Parts(
        store, objects, clock, FakeWake(clock), {"gce": provider}, {"gce": CELL}, knobs, platform, defaults,
        courier=FakeCourier(),
    )  # fmt: skip
    inbox = BeatInbox(store, clock, parts.wake, knobs.beat_push_s)
    around = Surroundings(data_dir, None, checks=_google)
    services = assemble(parts, inbox, lambda: LoopStatus(6.2, leader=True), around=around)
    services = replace(services, about=About("9f2c1e07b4d8", database="SQLite"))
    return House(store, clock, objects, provider, platform, parts, services, {})


def _offers() -> tuple[Offer, ...]:
    return tuple(
        Offer(Placement("gce", zone.rpartition("-")[0], zone, shape, spot), prices[not spot], prices[1])
        for spot in (True, False)
        for shape, prices in PRICES.items()
        for zone in (*EAST, WEST)
    )


def _google() -> list[Check]:
    """What the doctor would say of the project."""
    findings = (
        Finding("project", OK, "acme-ml-prod (402417395501)", group="google"),
        Finding("permissions", OK, "all 17 are held", group="google"),
        Finding(
            "quota", WARN, "PREEMPTIBLE_NVIDIA_H100_GPUS in us-east1 is 0", "runs on a3-highgpu-1g will wait there",
            "gcloud alpha quotas preferences create --project=acme-ml-prod --preferred-value=4", "google",
        ),
        Finding("bucket", OK, "gs://acme-ml-prod-spot answers in 31 ms, us-east1", group="google"),
    )  # fmt: skip
    return [Check(one.name, lambda one=one: [one], "google") for one in findings]

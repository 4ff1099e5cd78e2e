"""The use cases on a real database; the test controls time, machines and objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from supervisor.api.server import create_app
from supervisor.api.wire.deps import Services, assemble
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.attempt import Attempt, Pulse, Retiring, Try
from supervisor.domain.machines import Placement
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Change, Store
from supervisor.services.doctor.doctor import Surroundings
from supervisor.services.machines.gpus import Gpus
from supervisor.services.parts import Defaults, Parts
from supervisor.services.reading.health import LoopStatus
from supervisor.services.runs.changing import Update
from supervisor.services.runs.dev import Dev
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.runs.resume import ResumeRequest, resume
from supervisor.services.runs.submit import Reply, SubmitRequest, submit
from tests.fakes.callers import MEMBER
from tests.fakes.cards import FakeCards
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.platform import FakePlatform
from tests.fakes.provider import FakeProvider
from tests.fakes.wake import FakeWake
from tests.services.declared import check_declared

PLACE = Placement("local", "local", "local-a", "cpu", True)
COMMAND = {"command": ["python", "train.py"]}
NONCE = "n0nce"


@dataclass
class Bed:
    """Everything that a use case uses. `loop`: the status of the loop."""

    store: Store
    clock: FakeClock
    wake: FakeWake
    objects: MemoryStore
    provider: FakeProvider
    platform: FakePlatform
    parts: Parts
    inbox: BeatInbox
    services: Services
    loop: LoopStatus
    cards: FakeCards

    def submit(self, run_id: str | None = None, spec: Mapping[str, Any] = COMMAND, **more: Any) -> Reply:
        return submit(self.parts, SubmitRequest(spec, run_id, **more), MEMBER)

    def resume(self, run_id: str, spec: Mapping[str, Any] | None = None, **more: Any) -> Update:
        return resume(self.parts, run_id, ResumeRequest(MEMBER, spec, **more))

    def run(self, run_id: str) -> Run:
        run = self.store.find(run_id)
        assert run is not None
        return run

    def change(self, run_id: str, **fields: Any) -> Run:
        """The run with these fields, written as the loop would write them."""
        with self.store.begin(self.clock.now()) as tx:
            before = tx.find(run_id)
            assert before is not None
            stored = tx.apply(Change(before, replace(before, **fields)), self.clock.now())
        assert stored is not None
        return stored

    def train(self, run_id: str, number: int = 1, machine_id: str = "") -> Run:
        """The run trains: its machine was obtained a minute ago and beats."""
        run = self.run(run_id)
        now, launch_id = self.clock.now(), f"{run.generation}.{number}.1"
        name = f"m-a{number}"
        try_ = Try(number, 1, launch_id, name, PLACE, now - 70, 0.1, 0.3, nonce_hash(NONCE))
        attempt = Attempt(
            number, run.generation, launch_id, name, machine_id or f"id-{number}", PLACE, now - 70, now - 60, 0.1, 0.3,
            up_at=now - 60, running_at=now - 50, training_at=now - 40,
        )  # fmt: skip
        pulse = Pulse(launch_id, 5, "training", now - 40, now - 8, step=120, total=1000, steps_per_s=3.0)
        counters = replace(run.counters, attempts=number, tries=run.counters.tries + 1)
        run = self.change(
            run_id, status=Status.RUNNING, try_=try_, attempt=attempt, pulse=pulse, counters=counters, status_since=now
        )
        lease = self.store.take_lease("cell", "test", 3600.0, self.clock.monotonic())
        assert lease is not None
        assert self.store.set_nonce_hash(run.key, launch_id, nonce_hash(NONCE), lease)
        return self.run(run_id)

    def end(self, run_id: str, status: Status = Status.STOPPED, **fields: Any) -> Run:
        """The run is terminal, its machine still on the way out."""
        run, now = self.run(run_id), self.clock.now()
        if run.live_attempt is not None and run.try_ is not None:
            closed = replace(run.live_attempt, ended_at=now, step_last=120, step_kept=100)
            fields.setdefault("attempt", closed)
            fields.setdefault("try_", replace(run.try_, ended_at=now))
            fields.setdefault("retiring", (Retiring(closed.ref, closed.launch_id, now, now + 500),))
        return self.change(run_id, status=status, status_since=now, **fields)

    def events(self, run_id: str) -> list[str]:
        return [stored.event.kind for stored in self.store.events(run_id, 0, 1000)]


def beat(run_id: str, sequence: int = 1, launch_id: str = "1.1.1", **fields: Any) -> Beat:
    attempt = int(launch_id.split(".")[1])
    given = {"machine_id": "id-1", "boot_id": "b", "phase": "training", "nonce": NONCE, **fields}
    return Beat(run_id, attempt, launch_id, sequence=sequence, **given)


def make_bed(store: Store, data_dir: Path) -> Bed:
    clock = FakeClock()
    wake, objects, provider = FakeWake(clock), MemoryStore(clock.now), FakeProvider(clock)
    knobs = Knobs(store.supervisor_id)
    platform, cells = FakePlatform(), {"local": "local cell"}
    parts = Parts(store, objects, clock, wake, {"local": provider}, cells, knobs, platform, Defaults())
    inbox = BeatInbox(store, clock, wake, knobs.beat_push_s)
    bed: Bed
    around, cards = Surroundings(data_dir, None), FakeCards()
    services = assemble(parts, inbox, lambda: bed.loop, around=around, dev=Dev(parts, {"local": provider}))
    services = replace(services, gpus=Gpus(parts, cards))
    loop = LoopStatus(1.0, leader=True)
    bed = Bed(store, clock, wake, objects, provider, platform, parts, inbox, services, loop, cards)
    return bed


class Client:
    """HTTP without a socket. Every good response must be what its route declares, and every refusal a whole problem;
    a HEAD has no text."""

    def __init__(self, services: Services, base_url: str = "http://127.0.0.1:8787") -> None:
        self._transport = httpx.ASGITransport(create_app(services), raise_app_exceptions=False)
        self._base_url = base_url

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url=self._base_url) as client:
                return await client.request(method, path, **more)

        response = asyncio.run(send())
        if response.status_code >= 400 and path != "/readyz" and method != "HEAD":
            check_problem(response)
        check_declared(response)
        return response

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


def check_problem(response: httpx.Response) -> None:
    assert response.headers["content-type"] == "application/problem+json"
    told = response.json()
    assert told["status"] == response.status_code
    assert told["request_id"] == response.headers["x-request-id"]
    assert told["type"].startswith("urn:")
    assert told["code"] == told["code"].upper()
    assert told["detail"]


def body(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply.body)
    return found

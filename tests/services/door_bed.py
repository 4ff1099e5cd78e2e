"""A bed with a door: a provider whose machines claim their job, and what their sessions send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from supervisor.api.wire.deps import Services
from supervisor.contract.heartbeat import encode
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.attempt import Try
from supervisor.domain.machines import Placement
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.claims import Handover
from supervisor.ports.objectstore import ObjectStore, ReachableStore
from supervisor.ports.provider import LaunchFailed, LaunchRequest, ProviderUnavailable
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.acting.launches import Paces, whole_request
from supervisor.services.access.claims import ClaimBook, Door
from supervisor.services.access.passes import Signer, write_pass
from tests.fakes.provider import FakeProvider
from tests.services.bed import Bed, Client, beat

SECRETS = {"WANDB_API_KEY": "wandb-value-of-the-secret"}
PUBLIC = "https://example.com"
RUN_ID = "digits-7"
ME, OTHER = "1" * 32, "2" * 32
SESSION = {"platform": "paper", "id": "session-1"}
PACES = Paces("memory://test", None, 10.0, 60.0, 300.0, 7200.0, 10.0, 8.0)
PLACE = Placement("local", "local", "local-a", "cpu", True)


class HandingProvider(FakeProvider):
    """Its machines are sessions that a person starts. `refusal`: what the next handing over ends with."""

    refusal: LaunchFailed | ProviderUnavailable | None = None

    def hand_over(self, request: LaunchRequest) -> Handover:
        self.calls["hand_over"] += 1
        if self.refusal is not None:
            raise self.refusal
        return Handover({**request.job, "name": request.name}, SECRETS)


@dataclass
class DoorBed:
    bed: Bed
    provider: HandingProvider
    book: ClaimBook
    door: Door
    services: Services
    client: Client

    def launching(self, run_id: str = RUN_ID, number: int = 1, **spec: Any) -> Run:
        """A run whose machine is asked for: its row, its baton, and the hash of its nonce, as the loop leaves them."""
        bed = self.bed
        if bed.store.find(run_id) is None:
            bed.submit(run_id, {"command": ["python", "train.py"], **spec})
        run, launch_id, now = bed.run(run_id), f"1.{number}.1", bed.clock.now()
        nonce, _ = batonwork.raise_next(self.door.parts.objects, run, launch_id, True, bed.store.supervisor_id)
        try_ = Try(number, 1, launch_id, f"m-{run_id}-a{number}", PLACE, now, 0.1, 0.3, nonce_hash(nonce))
        run = bed.change(run_id, status=Status.LAUNCHING, try_=try_)
        lease = bed.store.take_lease("cell", "test", 3600.0, bed.clock.monotonic())
        assert lease is not None
        assert bed.store.set_nonce_hash(run.key, launch_id, nonce_hash(nonce), lease)
        return bed.run(run_id)

    def ticket(self, run: Run, for_s: float = 600.0) -> str:
        assert run.try_ is not None
        request = self.door.rebuild(run, run.try_, self.bed.store.spec(run.key), "n")
        return self.book.ticket(request, self.bed.clock.now() + for_s)

    def claim(self, ticket: str, claimant: str = ME, session: Mapping[str, str] = SESSION) -> httpx.Response:
        return self.client.post("/v1/claims", json={"ticket": ticket, "claimant": claimant, "session": dict(session)})

    def pass_of(self, run_id: str = RUN_ID, launch_id: str = "1.1.1") -> str:
        return write_pass(self.book.signer, run_id, launch_id, self.bed.clock.now())[0]

    def ask(self, method: str, path: str, pass_text: str, **more: Any) -> httpx.Response:
        """`path`: behind the door of the run."""
        headers = {"Authorization": f"Bearer {pass_text}", **more.pop("headers", {})}
        run_id = more.pop("run_id", RUN_ID)
        return self.client.request(method, f"/v1/door/{run_id}/{path}", headers=headers, **more)

    def push(self, nonce: str, query: str = "", run_id: str = RUN_ID, **fields: Any) -> httpx.Response:
        body = encode(beat(run_id, nonce=nonce, **fields))
        return self.client.post(f"/v1/runs/{run_id}/heartbeat{query}", content=body)


def make_door(bed: Bed, folder: Path, objects: ObjectStore | None = None) -> DoorBed:
    """`objects`: the store behind the door, where it is not the bed's."""
    provider = HandingProvider(bed.clock)
    parts = replace(bed.parts, providers={"local": provider}, objects=objects or bed.objects)
    signer = Signer(bed.store.secret, bed.store.supervisor_id)
    book = ClaimBook(signer, parts.objects, bed.clock, bed.inbox.newest)
    reachable = objects if isinstance(objects, ReachableStore) else None

    def rebuild(run: Run, try_: Try, spec: Mapping[str, Any], nonce: str) -> LaunchRequest:
        return whole_request(run, try_, spec, None, nonce=nonce, supervisor_id=bed.store.supervisor_id, paces=PACES)

    agent = folder / "agent.pyz"
    agent.write_bytes(b"PK an archive")
    door = Door(parts, book, rebuild, PUBLIC, agent, reachable)
    services = replace(bed.services, parts=parts, door=door)
    return DoorBed(bed, provider, book, door, services, Client(services))

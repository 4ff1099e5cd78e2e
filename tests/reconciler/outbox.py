"""The outbox of one database and its sender, in steps that the test takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from supervisor.domain.events import Event, EventKind
from supervisor.ports.notifier import Endpoint, Form, Secret
from supervisor.ports.store import Lease
from supervisor.reconciler.delivering.announcer import LEASE
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.storage.store import SqlStore
from tests.contracts.store_values import a_run, insert
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier

ADDED = Event(EventKind.WEBHOOK_ADDED, "added")
HELD = Lease(LEASE, "me", 1, float("inf"))


@dataclass
class Outbox:
    """`step()` sends what is due and settles it; `courier` records the messages."""

    store: SqlStore
    clock: FakeClock
    courier: FakeCourier
    delivering: Delivering

    def endpoint(self, name: str, **fields: Any) -> Endpoint:
        plain = Endpoint(
            name, "local", True, Form.STANDARD, f"https://{name}/x", (Secret("s"),), (), "", self.clock.now(), "me"
        )
        made = replace(plain, **fields)
        assert self.store.endpoints.add(made, ADDED, 99, self.clock.now())
        return made

    def announce(self, run_id: str, *kinds: EventKind) -> None:
        run = self.store.find(run_id) or insert(self.store, a_run(run_id))[0]
        self.store.add_events(run.key, [Event(kind, f"{kind}") for kind in kinds], self.clock.now())
        while self.store.deliveries.fan_out(self.clock.now(), 500):
            pass

    def steps(self, seconds: float, each_s: float = 1.0) -> None:
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.step()
            self.clock.advance(each_s)

    def step(self) -> None:
        self.delivering.wake()
        self.delivering.step(self.clock.now())
        self.delivering.step(self.clock.now())  # settles the responses

    def endpoint_now(self, name: str) -> Endpoint:
        endpoint = self.store.endpoints.find(name)
        assert endpoint is not None
        return endpoint

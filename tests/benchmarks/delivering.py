"""Announcements on their way to one receiver that takes them at once: from the outbox to the last one settled.

The receiver is a process of its own, as receivers are. Every message is signed and posted over a connection of its own,
and what became of it is committed before it counts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from supervisor.domain.events import Event, EventKind
from supervisor.notifiers.guard import Guard
from supervisor.notifiers.webhook import WebhookCourier
from supervisor.ports.notifier import Endpoint, Form, Secret
from supervisor.reconciler.delivering.announcer import LEASE, Announcer
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.leader import Leader
from supervisor.reconciler.system_clock import SystemClock
from supervisor.storage.store import SqlStore, open_store
from tests.benchmarks import scene
from tests.benchmarks.row import AT_LEAST, Bench, Figure, Row, Size
from tests.contracts.store_values import a_run, insert
from tests.waiting import wait_for

PER_S = 100.0
RECEIVER = """
from tests.cloud.web import Response, WebServer
server = WebServer(lambda request: Response(204))
print(server.url, flush=True)
input()
"""


def deliveries(size: Size) -> Mapping[str, Figure]:
    count = int(200 * size.seconds)
    with (
        scene.folder() as folder,
        receiver() as url,
        closing(open_store(f"sqlite:///{folder}/x.db", True, ("webhooks",))) as store,
    ):
        clock = SystemClock()
        leader = Leader(store, LEASE, "bench", clock, True, lambda: None)
        delivering = Delivering(store, WebhookCourier("me", Guard({"127.0.0.1"})), clock, leader.lease)
        announcer = Announcer(store, {}, clock, leader, delivering, False)
        secret = Secret("whsec_c2VjcmV0IG9mIGEgYmVuY2htYXJr")
        endpoint = Endpoint("wh-1", "local", True, Form.STANDARD, url, (secret,), (), "", 0.0, "me")
        store.endpoints.add(endpoint, Event(EventKind.WEBHOOK_ADDED, "added"), 9, clock.now())
        (run,) = insert(store, a_run())
        store.add_events(run.key, [Event(EventKind.RECOVERED, "again")] * count, clock.now())
        began = time.monotonic()
        announcer.start()
        wait_for(lambda: taken(store) == count, 60.0 + count / 20, "all deliveries")
        took_s = time.monotonic() - began
        announcer.stop()
    return {"webhook_deliveries_per_s": Figure(count / took_s, note={"messages": count})}


def taken(store: SqlStore) -> int:
    """How many are settled as delivered."""
    with store.database.reading() as session:
        found = session.connection.exec_driver_sql("SELECT count(*) FROM deliveries WHERE delivered_at IS NOT NULL")
        return int(found.scalar_one())


@contextmanager
def receiver() -> Iterator[str]:
    """The address of a process that answers 204."""
    command = [sys.executable, "-c", RECEIVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip() + "/hook"
        finally:
            process.kill()


BENCHES = (Bench(deliveries, (Row("webhook_deliveries_per_s", "1/s", AT_LEAST, PER_S),)),)

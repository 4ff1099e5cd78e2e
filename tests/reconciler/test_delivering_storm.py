"""Ten thousand announcements, and receivers that do everything wrong; with a fake clock, and with real sockets."""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.notifiers.guard import Guard
from supervisor.notifiers.webhook import WebhookCourier
from supervisor.ports.notifier import Delivery, DeliveryFailed, Notification, Target
from supervisor.reconciler.delivering import delivering as deliveries
from supervisor.reconciler.delivering.delivering import Delivering
from supervisor.reconciler.system_clock import SystemClock
from supervisor.storage.store import SqlStore, open_store
from tests.cloud.web import Hang, Request, Response, WebServer
from tests.contracts.store_values import a_run, insert
from tests.fakes.clock import FakeClock
from tests.fakes.courier import FakeCourier
from tests.reconciler.outbox import HELD, Outbox
from tests.waiting import wait_for

EVENTS, RUNS = 10_000, 100


WAYS: tuple[dict[str, Any], ...] = (
    {"status": 500}, {"status": None}, {"status": 302, "permanent": True}, {"status": 404, "permanent": True},
    {"status": 429, "retry_after_s": 2.0},
)  # fmt: skip


def everything_wrong(outbox: Outbox, rng: random.Random, late_s: list[float]) -> Callable[..., None]:
    """The endpoint `bad` fails in 30 % of the tries, in every possible way; `late_s`: delays of the other endpoint."""

    def respond(target: Target, batch: Sequence[Notification]) -> None:
        if target.url == "https://good/x":
            late_s.append(outbox.clock.now() - batch[0].at)
        elif rng.random() < 0.3:
            raise DeliveryFailed("no", **rng.choice(WAYS))

    return respond


def announce_all(outbox: Outbox) -> None:
    runs = insert(outbox.store, *(a_run(f"run-{n}") for n in range(RUNS)))
    for _ in range(10):
        for run in runs:
            told = [Event(EventKind.RECOVERED, "again")] * (EVENTS // RUNS // 10)
            outbox.store.add_events(run.key, told, outbox.clock.now())
        while outbox.store.deliveries.fan_out(outbox.clock.now(), 500):
            pass
        for _ in range(3):
            outbox.step()
            outbox.clock.advance(1.0)


def test_ten_thousand_events_to_a_receiver_that_does_everything_wrong(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "supervisor.reconciler.delivering.delivering")  # a line for each failure
    monkeypatch.setattr(deliveries, "EACH", 500)  # the threads of this test send at once
    outbox.delivering.queues.limit = 1000
    rng, late_s = random.Random(7), [0.0]
    outbox.courier.answer = everything_wrong(outbox, rng, late_s)
    outbox.endpoint("bad")
    outbox.endpoint("good")
    announce_all(outbox)
    for _ in range(600):
        if len(outbox.courier.events("https://bad/x")) == EVENTS:
            break
        outbox.step()
        outbox.clock.advance(rng.choice((1.0, 60.0, 600.0, 7200.0)))
    for url in ("https://bad/x", "https://good/x"):
        taken: dict[str, list[int]] = defaultdict(list)
        for batch in outbox.courier.sent[url]:
            taken[batch[0].run_id].append(batch[0].sequence)
        assert sum(map(len, taken.values())) == EVENTS, "none is lost, and none is told twice"
        for sequences in taken.values():
            assert sorted(sequences) == list(range(2, EVENTS // RUNS + 2)), "the order can be restored"
    assert max(late_s) <= 4.0, "the good one was not kept waiting"


def test_a_real_receiver_that_hangs_and_one_that_takes_all(tmp_path: Path) -> None:
    """With real threads and sockets: two receivers hang, one responds, and gets everything meanwhile."""
    got: list[bytes] = []
    lock = threading.Lock()

    def take(request: Request) -> Response:
        with lock:
            got.append(request.body)
        return Response(204)

    def hang(request: Request) -> Response:
        raise Hang

    good, bad = WebServer(take), [WebServer(hang), WebServer(hang)]
    with closing(open_store(f"sqlite:///{tmp_path}/x.db", True, ("log", "webhooks"))) as store:
        courier = WebhookCourier("me", Guard({"127.0.0.1"}))
        delivering = Delivering(store, courier, SystemClock(), lambda: HELD)
        outbox = Outbox(store, FakeClock(SystemClock().now() - 1.0), FakeCourier(), delivering)
        for number, server in enumerate([good, *bad]):
            outbox.endpoint(f"e{number}", url=f"{server.url}/x")
        outbox.announce("digits-1", *[EventKind.RECOVERED] * 200)
        delivering.start()
        wait_for(lambda: len(got) == 200, 30, "all that the good one is sent")
        assert all(delivery.tries == 0 for delivery in _of(store, "e1") + _of(store, "e2"))
        for server in (good, *bad):
            server.close()
        delivering.stop()


def _of(store: SqlStore, name: str) -> list[Delivery]:
    return store.deliveries.page(name, None, 999)

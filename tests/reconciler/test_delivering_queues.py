"""A receiver that hangs delays no other, and a crash between any two steps loses nothing; broken workers are found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from supervisor.domain.events import EventKind
from supervisor.ports.notifier import DeliveryFailed, DeliveryResult, Notification, Target
from supervisor.ports.store import StoreDown
from supervisor.reconciler.delivering.delivering import EACH, PARALLEL, Batch, Delivering, EndpointQueue, SendQueues
from tests.fakes.courier import failing
from tests.reconciler.outbox import HELD, Outbox
from tests.scenarios.fault_points import AtOnce, Later


def many_that_fail_and_a_good_one(outbox: Outbox) -> None:
    """One round without any response, and one in which the good receiver has responded."""
    outbox.delivering.threads = later = Later()
    for number in range(PARALLEL + 4):
        outbox.endpoint(f"h{number}", failing_since=1.0)
    outbox.endpoint("z-good")  # the last in the queue
    outbox.announce("digits-1", *[EventKind.RECOVERED] * 20)
    outbox.delivering.step(outbox.clock.now())
    queues = outbox.delivering.queues.queues
    assert queues["z-good"].in_flight == 1, "half of the parallel sends is not for those that fail"
    assert outbox.delivering.queues.in_flight == len(later.calls) == PARALLEL // 2 + 1

    def respond(target: Target, batch: Sequence[Notification]) -> None:
        if "good" not in target.url:
            raise DeliveryFailed("no response within 15 s")

    outbox.courier.answer = respond
    later.drain()
    outbox.delivering.step(outbox.clock.now())
    assert queues["z-good"].in_flight == EACH, "it has accepted one, and gets more at once"
    assert all(queue.in_flight <= 1 for name, queue in queues.items() if name != "z-good")


def test_to_a_receiver_that_hangs_little_is_sent_and_others_have_room(outbox: Outbox) -> None:
    many_that_fail_and_a_good_one(outbox)


class Unshared(SendQueues):
    """Broken: failing endpoints may use all parallel sends."""

    def begin(self, queue: EndpointQueue, now: float) -> bool:
        super().begin(queue, now)
        self.in_flight_failing = 0
        return False


def test_queues_that_give_everything_to_those_that_fail_are_caught(outbox: Outbox) -> None:
    outbox.delivering.queues = Unshared(PARALLEL)
    with pytest.raises(AssertionError, match="half of the parallel sends"):
        many_that_fail_and_a_good_one(outbox)


class Forgetful(Delivering):
    """Broken: a message is settled when its sending starts."""

    def _send(self, queue: EndpointQueue, batch: Batch, now: float) -> None:
        super()._send(queue, batch, now)
        over = [DeliveryResult(delivery.id, delivery.tries, True, None, 204, "") for delivery in batch]
        self.store.deliveries.settle(over, [], now)


def test_a_worker_that_settles_before_it_knows_is_caught(outbox: Outbox) -> None:
    outbox.delivering = Forgetful(outbox.store, outbox.courier, outbox.clock, lambda: HELD, threads=Later())
    with pytest.raises(AssertionError):
        a_crash_loses_nothing(outbox)


def a_crash_loses_nothing(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.delivering.step(outbox.clock.now())  # it dies while the message is being sent
    heir = Delivering(outbox.store, outbox.courier, outbox.clock, lambda: HELD, threads=AtOnce())
    heir.step(outbox.clock.now())
    assert len(outbox.courier.events("https://a/x")) == 1


def test_a_crash_before_sending_loses_nothing(outbox: Outbox) -> None:
    outbox.delivering.threads = Later()
    a_crash_loses_nothing(outbox)


def test_a_crash_between_sending_and_settling_sends_again_with_the_same_id(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.delivering.step(outbox.clock.now())  # sent, and never settled
    heir = Delivering(outbox.store, outbox.courier, outbox.clock, lambda: HELD, threads=AtOnce())
    heir.step(outbox.clock.now())
    heir.step(outbox.clock.now())
    first, second = outbox.courier.events("https://a/x")
    assert first == second
    # The first one wakes late: what it settles changes nothing.
    outbox.delivering.step(outbox.clock.now())
    (kept,) = outbox.store.deliveries.page("a", None, 9)
    assert kept.delivered_at is not None
    assert kept.next_at is None


def test_a_late_failure_does_not_undo_a_delivery(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.courier.answer = failing(500)
    outbox.delivering.step(outbox.clock.now())
    outbox.courier.answer = lambda target, batch: None
    heir = Delivering(outbox.store, outbox.courier, outbox.clock, lambda: HELD, threads=AtOnce())
    heir.step(outbox.clock.now())
    heir.step(outbox.clock.now())
    outbox.delivering.step(outbox.clock.now())
    (kept,) = outbox.store.deliveries.page("a", None, 9)
    assert kept.delivered_at is not None


def test_what_is_on_its_way_is_not_sent_a_second_time(outbox: Outbox) -> None:
    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.step()  # taken: from now on it may have several at a time
    outbox.delivering.threads = later = Later()
    outbox.announce("digits-1", EventKind.COMPLETED)
    for _ in range(3):
        outbox.step()  # still due in the database, whenever that is read
        outbox.clock.advance(5.0)
    later.drain()
    outbox.step()
    events = outbox.courier.events("https://a/x")
    assert len(events) == len(set(events)) == outbox.courier.tried == 2


def test_what_cannot_be_settled_while_the_database_is_away_is_settled_later(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: object) -> None:
        raise StoreDown("away")

    outbox.endpoint("a")
    outbox.announce("digits-1", EventKind.STARTED)
    outbox.delivering.step(outbox.clock.now())
    with monkeypatch.context() as broken:
        broken.setattr(type(outbox.store.deliveries), "settle", away)
        for _ in range(2):
            with pytest.raises(StoreDown):
                outbox.step()
    outbox.step()
    (kept,) = outbox.store.deliveries.page("a", None, 9)
    assert (kept.status, kept.next_at, outbox.courier.tried) == (204, None, 1)

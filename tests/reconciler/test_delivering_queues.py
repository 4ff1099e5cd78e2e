"""Who hangs holds up nobody else, and a crash between any two steps loses nothing; broken workers are caught."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from supervisor.domain.events import EventKind
from supervisor.ports.notifier import DeliveryFailed, DeliveryResult, Notification, Target
from supervisor.ports.store import StoreDown
from supervisor.reconciler.delivering.delivering import EACH, PARALLEL, Batch, Delivering, EndpointQueue, SendQueues
from tests.fakes.courier import failing
from tests.reconciler.office import HELD, Office
from tests.scenarios.doors import AtOnce, Later


def many_that_fail_and_a_good_one(office: Office) -> None:
    """One round in which nobody answers, and one in which the good one has answered."""
    office.delivering.threads = later = Later()
    for number in range(PARALLEL + 4):
        office.endpoint(f"h{number}", failing_since=1.0)
    office.endpoint("z-good")  # the last in turn
    office.announce("digits-1", *[EventKind.RECOVERED] * 20)
    office.delivering.step(office.clock.now())
    queues = office.delivering.queues.queues
    assert queues["z-good"].in_flight == 1, "half of the parallel sends is not for those that fail"
    assert office.delivering.queues.in_flight == len(later.calls) == PARALLEL // 2 + 1

    def answer(target: Target, batch: Sequence[Notification]) -> None:
        if "good" not in target.url:
            raise DeliveryFailed("no answer within 15 s")

    office.courier.answer = answer
    later.drain()
    office.delivering.step(office.clock.now())
    assert queues["z-good"].in_flight == EACH, "it has taken one, and gets more at once"
    assert all(queue.in_flight <= 1 for name, queue in queues.items() if name != "z-good")


def test_to_a_receiver_that_hangs_little_is_sent_and_others_have_room(office: Office) -> None:
    many_that_fail_and_a_good_one(office)


class Unshared(SendQueues):
    """Broken: those that fail may have all parallel sends."""

    def begin(self, queue: EndpointQueue, now: float) -> bool:
        super().begin(queue, now)
        self.in_flight_failing = 0
        return False


def test_queues_that_give_everything_to_those_that_fail_are_caught(office: Office) -> None:
    office.delivering.queues = Unshared(PARALLEL)
    with pytest.raises(AssertionError, match="half of the parallel sends"):
        many_that_fail_and_a_good_one(office)


class Forgetful(Delivering):
    """Broken: a message is over when it is handed out."""

    def _send(self, queue: EndpointQueue, batch: Batch, now: float) -> None:
        super()._send(queue, batch, now)
        over = [DeliveryResult(one.id, one.tries, True, None, 204, "") for one in batch]
        self.store.deliveries.settle(over, [], now)


def test_a_worker_that_settles_before_it_knows_is_caught(office: Office) -> None:
    office.delivering = Forgetful(office.store, office.courier, office.clock, lambda: HELD, threads=Later())
    with pytest.raises(AssertionError):
        a_crash_loses_nothing(office)


def a_crash_loses_nothing(office: Office) -> None:
    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED)
    office.delivering.step(office.clock.now())  # it dies while the message is being sent
    heir = Delivering(office.store, office.courier, office.clock, lambda: HELD, threads=AtOnce())
    heir.step(office.clock.now())
    assert len(office.courier.events("https://a/x")) == 1


def test_a_crash_before_sending_loses_nothing(office: Office) -> None:
    office.delivering.threads = Later()
    a_crash_loses_nothing(office)


def test_a_crash_between_sending_and_settling_sends_again_with_the_same_id(office: Office) -> None:
    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED)
    office.delivering.step(office.clock.now())  # sent, and never settled
    heir = Delivering(office.store, office.courier, office.clock, lambda: HELD, threads=AtOnce())
    heir.step(office.clock.now())
    heir.step(office.clock.now())
    first, second = office.courier.events("https://a/x")
    assert first == second
    # The first one wakes late: what it settles changes nothing.
    office.delivering.step(office.clock.now())
    (kept,) = office.store.deliveries.page("a", None, 9)
    assert kept.delivered_at is not None
    assert kept.next_at is None


def test_a_late_failure_does_not_undo_a_delivery(office: Office) -> None:
    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED)
    office.courier.answer = failing(500)
    office.delivering.step(office.clock.now())
    office.courier.answer = lambda target, batch: None
    heir = Delivering(office.store, office.courier, office.clock, lambda: HELD, threads=AtOnce())
    heir.step(office.clock.now())
    heir.step(office.clock.now())
    office.delivering.step(office.clock.now())
    (kept,) = office.store.deliveries.page("a", None, 9)
    assert kept.delivered_at is not None


def test_what_is_on_its_way_is_not_sent_a_second_time(office: Office) -> None:
    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED)
    office.step()  # taken: from now on it may have several at a time
    office.delivering.threads = later = Later()
    office.announce("digits-1", EventKind.COMPLETED)
    for _ in range(3):
        office.step()  # still due in the database, whenever that is read
        office.clock.advance(5.0)
    later.drain()
    office.step()
    events = office.courier.events("https://a/x")
    assert len(events) == len(set(events)) == office.courier.tried == 2


def test_what_cannot_be_settled_while_the_database_is_away_is_settled_later(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: object) -> None:
        raise StoreDown("away")

    office.endpoint("a")
    office.announce("digits-1", EventKind.STARTED)
    office.delivering.step(office.clock.now())
    with monkeypatch.context() as broken:
        broken.setattr(type(office.store.deliveries), "settle", away)
        for _ in range(2):
            with pytest.raises(StoreDown):
                office.step()
    office.step()
    (kept,) = office.store.deliveries.page("a", None, 9)
    assert (kept.status, kept.next_at, office.courier.tried) == (204, None, 1)

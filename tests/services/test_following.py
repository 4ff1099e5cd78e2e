"""The reader of the history: in which order it tells, and which holes it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.events import Event, EventKind
from supervisor.ports.history import EventFilter, StoredEvent
from supervisor.ports.store import StoreDown
from supervisor.services.reading import following
from supervisor.services.reading.following import PATIENCE_S, Follower, in_order
from tests.fakes.clock import FakeClock
from tests.waiting import wait_for


class FakeHistory:
    """Events that are seen, and writers that hold ids which are not."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.open: set[str] = set()
        self.down = False

    def newest(self) -> int:
        return max(self.seen, default=0)

    def writers(self) -> frozenset[str]:
        return frozenset(self.open)

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        if self.down:
            raise StoreDown("away")
        return [event(found) for found in sorted(self.seen) if found > event_id][:limit]

    def between(self, where: EventFilter, after: int, to: int, limit: int) -> tuple[list[StoredEvent], int]:
        raise NotImplementedError

    def time_of(self, event_id: int) -> float | None:
        raise NotImplementedError

    def on_written(self, wake: Callable[[], None]) -> None:
        raise NotImplementedError


def event(event_id: int) -> StoredEvent:
    return StoredEvent(event_id, 1, "run-1", 0.0, 1, 1, Event(EventKind.STARTED, "It trains."), "ada")


class Told:
    def __init__(self, history: FakeHistory) -> None:
        self.ids: list[int] = []
        self.passed: int | None = None
        self.over = threading.Event()
        self.clock = FakeClock()
        self.follower = Follower(history, self.clock, self._hand_out, self.over.set)

    def _hand_out(self, found: Sequence[StoredEvent], passed: int) -> None:
        self.ids += [stored.id for stored in found]
        self.passed = passed

    def look(self, times: int = 3) -> list[int]:
        for _ in range(times):
            self.follower.look()
        return self.ids


def test_it_begins_now_and_tells_what_comes() -> None:
    history = FakeHistory()
    history.seen = {1, 2, 3}
    told = Told(history)
    assert told.look() == []
    assert told.passed == 3
    history.seen |= {4, 5}
    assert (told.look(), told.passed) == ([4, 5], 5)


def test_it_waits_for_who_may_fill_a_hole_and_keeps_the_order() -> None:
    history = FakeHistory()
    told = Told(history)
    told.look()
    history.open = {"slow"}
    history.seen = {1, 3, 4}
    assert told.look() == [1]
    history.seen.add(2)
    history.open.clear()
    assert told.look() == [1, 2, 3, 4]


def test_a_hole_that_nobody_can_fill_any_more_is_passed() -> None:
    history = FakeHistory()
    told = Told(history)
    told.look()
    history.open = {"taken back"}
    history.seen = {2}
    assert told.look() == []
    history.open = {"somebody who came later"}
    assert told.look() == [2]


def test_a_later_hole_is_waited_for_anew() -> None:
    history = FakeHistory()
    told = Told(history)
    told.look()
    history.open, history.seen = {"a"}, {2}
    told.look()
    history.open, history.seen = {"b"}, {2, 4}
    assert told.look() == [2]
    history.seen.add(3)
    history.open = set()
    assert told.look() == [2, 3, 4]


def test_a_hole_is_not_waited_for_for_ever() -> None:
    history = FakeHistory()
    told = Told(history)
    told.look()
    history.open, history.seen = {"hangs"}, {2}
    told.look()
    told.clock.advance(PATIENCE_S - 0.1)
    assert told.look() == []
    told.clock.advance(0.2)
    assert told.look() == [2]


def test_where_it_begins_is_known_when_the_writers_of_before_have_ended() -> None:
    """Else an event that one of them writes below that place would never be told."""
    history = FakeHistory()
    history.seen, history.open = {5}, {"of before"}
    told = Told(history)
    told.look()
    assert told.passed is None
    history.seen.add(4)
    history.open = {"later"}
    assert told.look() == []
    assert told.passed == 5


def test_a_page_goes_on_where_the_last_one_ended() -> None:
    history = FakeHistory()
    told = Told(history)
    told.look()
    history.seen = set(range(1, 3 * following.PAGE))
    assert told.look(4) == sorted(history.seen)


@given(st.data())
def test_every_event_is_told_once_and_in_order_however_they_are_committed(data: st.DataObject) -> None:
    history = FakeHistory()
    told = Told(history)
    told.look()
    count = data.draw(st.integers(1, 12))
    waiting = {number: f"writer {number}" for number in range(1, count + 1)}
    history.open = set(waiting.values())  # all ids are taken, nothing is committed
    committed = []
    for number in data.draw(st.permutations(sorted(waiting))):
        if data.draw(st.booleans(), label=f"{number} is committed"):
            history.seen.add(number)
            committed.append(number)
        history.open.discard(waiting[number])
        told.look(data.draw(st.integers(0, 2)))
    assert told.look() == sorted(committed)


def test_holes_only_below_what_is_closed_are_passed() -> None:
    assert in_order(4, [5, 6, 8], 0) == 2
    assert in_order(4, [5, 6, 8], 8) == 3
    assert in_order(4, [6, 9], 7) == 1
    assert in_order(4, [], 7) == 0


def test_a_database_that_was_away_is_read_on() -> None:
    history = FakeHistory()
    told = Told(history)
    told.follower.begin()
    wait_for(lambda: told.passed == 0)
    history.down = True
    history.seen = {1}
    told.follower.wake()
    history.down = False
    wait_for(lambda: told.ids == [1])
    told.follower.end()
    assert told.over.wait(20)

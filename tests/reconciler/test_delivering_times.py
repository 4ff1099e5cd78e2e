"""Messages of a chat: none is lost or sent twice, never two within a second, and readers are not flooded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.events import KINDS
from supervisor.ports.notifier import Delivery
from supervisor.reconciler.delivering import timing
from supervisor.reconciler.delivering.timing import MOST, next_message

Chooser = Callable[[Sequence[Delivery], Sequence[float], float], Sequence[Delivery]]
WAITS = st.lists(st.tuples(st.floats(0, 120), st.booleans()), max_size=120)


def waits(times: Sequence[tuple[float, bool]]) -> list[Delivery]:
    """Deliveries that are due at these times; True: urgent."""
    return [
        Delivery(n, "chat", "failed" if urgent else "preempted", 0, at, None, None, None, "", n, n, "r", at, "text", {})
        for n, (at, urgent) in enumerate(times)
    ]


def delivered(
    waiting: Sequence[Delivery], step_s: float = 0.5, until: float = 400.0, choose: Chooser = next_message
) -> list[tuple[float, Sequence[Delivery]]]:
    """(time, content) of each message, by a sender that checks every `step_s`."""
    left, sent, now = list(waiting), [], 0.0
    while now <= until:
        batch = choose(left, [at for at, _ in sent], now)
        if batch:
            sent.append((now, batch))
            left = [item for item in left if item not in batch]
        now += step_s
    return sent


def broken_promises(times: Sequence[tuple[float, bool]], choose: Chooser = next_message) -> list[str]:
    waiting = waits(times)
    sent = delivered(waiting, choose=choose)
    sent_ids = [item.id for _, batch in sent for item in batch]
    broken = []
    if sorted(sent_ids) != [item.id for item in waiting]:
        broken.append("lost or sent twice")
    if any(later - at < 1.0 for (at, _), (later, _) in pairwise(sent)):
        broken.append("two within a second")
    if any((item.next_at or 0.0) > at for at, batch in sent for item in batch):
        broken.append("sent before it was due")
    if any(len(batch) > MOST for _, batch in sent):
        broken.append("more than a message holds")
    late = [at - (item.next_at or 0.0) for at, batch in sent for item in batch if KINDS[item.kind].urgent]
    # One second since the last message, half a second until the sender checks; a crowd takes a second for each fifty.
    if max(late, default=0.0) > 1.5 + len(waiting) // MOST * 1.5:
        broken.append("what needs a person waited")
    return broken


@given(WAITS)
def test_each_message_is_sent_once_and_urgent_ones_at_once(times: list[tuple[float, bool]]) -> None:
    assert broken_promises(times) == []


@given(st.lists(st.floats(0, 60), min_size=40, max_size=40))
def test_forty_preemptions_in_a_minute_are_three_messages_at_most(times: list[float]) -> None:
    assert len(delivered(waits([(at, False) for at in times]))) <= 3


@given(WAITS, st.floats(-5, 500))
def test_the_order_of_the_waiting_messages_does_not_matter(times: list[tuple[float, bool]], now: float) -> None:
    waiting = waits(times)
    assert next_message(waiting, [now - 40], now) == next_message(waiting[::-1], [now - 40], now)


def test_a_single_announcement_is_not_held_back_for_long() -> None:
    [(at, batch)] = delivered(waits([(10.0, False)]))
    assert (at, len(batch)) == (12.0, 1)


def test_what_needs_a_person_takes_along_what_waits() -> None:
    waiting = waits([(1.0, False), (2.0, False), (3.0, True)])
    assert next_message(waiting, [-1.0], 3.0) == waiting


def test_a_thousand_announcements_do_not_take_hours() -> None:
    sent = delivered(waits([(0.0, False)] * 1000))
    assert len(sent) == 1000 // MOST
    assert sent[-1][0] <= 60


def test_times_of_a_clock_that_was_set_back_delay_no_message() -> None:
    assert next_message(waits([(0.0, False)]), [9_000.0], 100.0)


def test_where_none_wait_or_none_is_due_there_is_no_message() -> None:
    assert next_message([], [], 5.0) == ()
    assert next_message(waits([(6.0, True)]), [], 5.0) == ()


def forgets_the_second(waiting: Sequence[Delivery], _: Sequence[float], now: float) -> Sequence[Delivery]:
    return next_message(waiting, [], now)


def holds_urgent_ones_back(waiting: Sequence[Delivery], sent_at: Sequence[float], now: float) -> Sequence[Delivery]:
    calm = next_message([replace(item, kind="preempted") for item in waiting], sent_at, now)
    return [item for item in waiting if item.id in {chosen.id for chosen in calm}]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [(forgets_the_second, "two within a second"), (holds_urgent_ones_back, "what needs a person waited")],
)
def test_a_chooser_that_breaks_a_promise_is_found(broken: Chooser, promise: str) -> None:
    assert promise in broken_promises([(at / 10, True) for at in range(60)], broken)


def test_without_gathering_forty_preemptions_are_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PAUSE_S", 1.0)
    assert len(delivered(waits([(1.5 * n, False) for n in range(40)]))) > 3

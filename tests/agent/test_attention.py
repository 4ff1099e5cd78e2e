"""Reasons to end, and the clocks that each of them starts."""

from typing import Any

import pytest

from supervisor.agent.store.access import Contact
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import heartbeat
from tests.agent.desk import HandClock, job


class Desk:
    def __init__(self, **changes: Any) -> None:
        self.clock = HandClock()
        self.notice: float | None = None
        self.contact = Contact(self.clock)
        given = job(**{"stop_grace_s": 120.0, "machine_max_s": 1000.0, "cut_off_s": 500.0, **changes})
        self.end_reasons = EndReasons(given, self.contact, self.clock, lambda: self.notice)


def test_nothing_ends_a_quiet_life() -> None:
    desk = Desk()
    desk.clock.now += 499.0
    assert desk.end_reasons.check() is None
    assert not desk.end_reasons.uploads_over()


def test_a_stop_gives_the_grace_and_goes_on_uploading_after_it() -> None:
    desk = Desk()
    desk.end_reasons.term_received = True
    ending = desk.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.may_write) == (heartbeat.STOPPED, 1120.0, True)
    desk.clock.now = 1121.0
    assert not desk.end_reasons.uploads_over()


def test_repeated_looks_do_not_move_the_clocks() -> None:
    desk = Desk()
    desk.end_reasons.term_received = True
    first = desk.end_reasons.check()
    desk.clock.now += 50.0
    assert desk.end_reasons.check() == first


def test_term_at_the_end_of_a_machine_that_was_told_of_it_is_its_preemption() -> None:
    desk = Desk()
    desk.notice = 20.0
    desk.end_reasons.term_received = True
    ending = desk.end_reasons.check()
    assert ending is not None
    assert ending.reason == heartbeat.NOTICED


def test_term_on_a_rented_machine_leaves_what_a_shutdown_leaves() -> None:
    desk = Desk(notice_from="gce", upload_reserve_s=8.0)
    desk.end_reasons.add(heartbeat.STOPPED)
    desk.clock.now += 1.0
    desk.end_reasons.term_received = True
    ending = desk.end_reasons.check()
    assert ending is not None
    assert (ending.kill_at, ending.save_until) == (1001.0 + 25.0 - 8.0, 1001.0 + 25.0 - 0.5)
    desk.clock.now += 5.0
    assert desk.end_reasons.check() == ending, "the clock moves"


def test_a_notice_kills_before_its_deadline_by_the_reserve() -> None:
    desk = Desk(upload_reserve_s=8.0)
    desk.notice = 30.0
    ending = desk.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.NOTICED, 1022.0, 1029.5)
    assert desk.end_reasons.notice_left_s == 30.0


def test_a_short_notice_leaves_the_command_most_of_it() -> None:
    desk = Desk(upload_reserve_s=8.0)
    desk.notice = 5.0
    ending = desk.end_reasons.check()
    assert ending is not None
    assert ending.kill_at == pytest.approx(1003.0)


def test_a_notice_after_a_stop_shortens_the_times_and_the_stop_stays_the_reason() -> None:
    desk = Desk()
    desk.end_reasons.add(heartbeat.STOPPED)
    desk.notice = 30.0
    ending = desk.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.STOPPED, 1022.0, 1029.5)


def test_a_stop_after_a_notice_does_not_lengthen_the_times() -> None:
    desk = Desk()
    desk.notice = 30.0
    desk.end_reasons.check()
    desk.end_reasons.add(heartbeat.STOPPED)
    ending = desk.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.kill_at) == (heartbeat.NOTICED, 1022.0)


def test_the_machine_s_own_limit() -> None:
    desk = Desk()
    desk.clock.now += 999.0
    desk.contact.responded()
    assert desk.end_reasons.check() is None
    desk.clock.now += 1.0
    ending = desk.end_reasons.check()
    assert ending is not None
    assert ending.reason == heartbeat.EXPIRED


def test_nobody_reachable_ends_it_and_any_answer_begins_the_clock_anew() -> None:
    desk = Desk()
    desk.clock.now += 499.0
    desk.contact.responded()
    desk.clock.now += 499.0
    assert desk.end_reasons.check() is None
    desk.clock.now += 1.0
    ending = desk.end_reasons.check()
    assert ending is not None
    assert ending.reason == heartbeat.CUT_OFF
    assert desk.end_reasons.uploads_over()  # there is nowhere to write to


def test_losing_the_baton_ends_writing_at_once_even_in_a_stop() -> None:
    desk = Desk()
    desk.end_reasons.add(heartbeat.STOPPED)
    desk.end_reasons.add(heartbeat.CLOSED, may_write=False)
    ending = desk.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.may_write, ending.kill_at) == (heartbeat.STOPPED, False, 1005.0)
    assert desk.end_reasons.uploads_over()

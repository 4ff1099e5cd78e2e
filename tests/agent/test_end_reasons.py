"""Reasons to end, and the deadlines that each of them sets."""

from typing import Any

import pytest

from supervisor.agent.store.access import Contact
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import heartbeat
from tests.agent.bench import ManualClock, job


class Bench:
    def __init__(self, **changes: Any) -> None:
        self.clock = ManualClock()
        self.notice: float | None = None
        self.contact = Contact(self.clock)
        given = job(**{"stop_grace_s": 120.0, "machine_max_s": 1000.0, "cut_off_s": 500.0, **changes})
        self.end_reasons = EndReasons(given, self.contact, self.clock, lambda: self.notice)


def test_without_a_reason_nothing_ends() -> None:
    bench = Bench()
    bench.clock.now += 499.0
    assert bench.end_reasons.check() is None
    assert not bench.end_reasons.uploads_over()


def test_a_stop_gives_the_grace_and_uploads_continue_after_it() -> None:
    bench = Bench()
    bench.end_reasons.term_received = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.may_write) == (heartbeat.STOPPED, 1120.0, True)
    bench.clock.now = 1121.0
    assert not bench.end_reasons.uploads_over()


def test_repeated_checks_do_not_move_the_deadlines() -> None:
    bench = Bench()
    bench.end_reasons.term_received = True
    first = bench.end_reasons.check()
    bench.clock.now += 50.0
    assert bench.end_reasons.check() == first


def test_term_after_a_notice_belongs_to_the_preemption() -> None:
    bench = Bench()
    bench.notice = 20.0
    bench.end_reasons.term_received = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert ending.reason == heartbeat.NOTICED


def test_term_on_a_rented_machine_leaves_the_time_of_a_shutdown() -> None:
    bench = Bench(notice_from="gce", upload_reserve_s=8.0)
    bench.end_reasons.add(heartbeat.STOPPED)
    bench.clock.now += 1.0
    bench.end_reasons.term_received = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.kill_at, ending.save_until) == (1001.0 + 25.0 - 8.0, 1001.0 + 25.0 - 0.5)
    bench.clock.now += 5.0
    assert bench.end_reasons.check() == ending, "the clock moves"


def test_a_signal_is_the_notice_of_a_preemption() -> None:
    bench = Bench(notice_from="signal", notice_s=30.0, upload_reserve_s=8.0)
    bench.clock.now += 500.0 - 90.0
    bench.end_reasons.warned = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.NOTICED, 1432.0, 1439.5)
    assert bench.end_reasons.notice_left_s == 30.0
    bench.clock.now += 5.0
    assert bench.end_reasons.check() == ending, "the signal counts once"


def test_a_signal_shortly_before_the_time_limit_is_about_that_limit() -> None:
    bench = Bench(notice_from="signal", notice_s=30.0, cut_off_s=5000.0)
    bench.clock.now += 1000.0 - 90.0
    bench.end_reasons.warned = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at) == (heartbeat.EXPIRED, bench.clock.now + 120.0)
    assert bench.end_reasons.notice_left_s is None


def test_where_the_platform_ends_the_machine_all_of_the_time_before_is_for_the_save() -> None:
    """The broken variant, with the grace of a stop: a save of 600 s is killed after 120 s, and one that takes just
    these 120 s only when the platform kills it too."""
    bench = Bench(notice_from="signal", notice_s=30.0, cut_off_s=5000.0, expiry_s=660.0, upload_reserve_s=8.0)
    ends_at = bench.clock.now + 1000.0 + 660.0
    bench.clock.now += 1000.0 - 60.0
    bench.end_reasons.warned = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.EXPIRED, ends_at - 8.0, ends_at - 0.5)
    bench.clock.now += 100.0
    assert bench.end_reasons.check() == ending


def test_a_stop_just_before_such_a_limit_has_no_more_time_than_that() -> None:
    bench = Bench(notice_from="signal", cut_off_s=5000.0, expiry_s=30.0, upload_reserve_s=8.0)
    bench.clock.now += 999.0
    bench.end_reasons.add(heartbeat.STOPPED)
    bench.clock.now += 1.0
    ending = bench.end_reasons.check()
    assert ending is not None
    now = bench.clock.now
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.STOPPED, now + 22.0, now + 29.5)


def test_where_signals_announce_it_term_is_a_stop_with_its_whole_grace() -> None:
    bench = Bench(notice_from="signal", notice_s=30.0)
    bench.end_reasons.term_received = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at) == (heartbeat.STOPPED, 1120.0)


def test_a_notice_kills_the_reserve_before_its_deadline() -> None:
    bench = Bench(upload_reserve_s=8.0)
    bench.notice = 30.0
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.NOTICED, 1022.0, 1029.5)
    assert bench.end_reasons.notice_left_s == 30.0


def test_a_short_notice_leaves_the_command_most_of_it() -> None:
    bench = Bench(upload_reserve_s=8.0)
    bench.notice = 5.0
    ending = bench.end_reasons.check()
    assert ending is not None
    assert ending.kill_at == pytest.approx(1003.0)


def test_a_notice_after_a_stop_shortens_the_times_and_the_stop_stays_the_reason() -> None:
    bench = Bench()
    bench.end_reasons.add(heartbeat.STOPPED)
    bench.notice = 30.0
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.STOPPED, 1022.0, 1029.5)


def test_a_stop_after_a_notice_does_not_lengthen_the_times() -> None:
    bench = Bench()
    bench.notice = 30.0
    bench.end_reasons.check()
    bench.end_reasons.add(heartbeat.STOPPED)
    ending = bench.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.kill_at) == (heartbeat.NOTICED, 1022.0)


def test_the_machine_s_own_limit() -> None:
    bench = Bench()
    bench.clock.now += 999.0
    bench.contact.responded()
    assert bench.end_reasons.check() is None
    bench.clock.now += 1.0
    ending = bench.end_reasons.check()
    assert ending is not None
    assert ending.reason == heartbeat.EXPIRED


def test_no_contact_ends_it_and_any_response_restarts_the_clock() -> None:
    bench = Bench()
    bench.clock.now += 499.0
    bench.contact.responded()
    bench.clock.now += 499.0
    assert bench.end_reasons.check() is None
    bench.clock.now += 1.0
    ending = bench.end_reasons.check()
    assert ending is not None
    assert ending.reason == heartbeat.CUT_OFF
    assert bench.end_reasons.uploads_over()  # a write cannot reach the store


def test_losing_the_baton_ends_writing_at_once_even_in_a_stop() -> None:
    bench = Bench()
    bench.end_reasons.add(heartbeat.STOPPED)
    bench.end_reasons.add(heartbeat.CLOSED, may_write=False)
    ending = bench.end_reasons.ending
    assert ending is not None
    assert (ending.reason, ending.may_write, ending.kill_at) == (heartbeat.STOPPED, False, 1005.0)
    assert bench.end_reasons.uploads_over()


def test_where_term_announces_the_end_it_is_a_notice_and_no_stop() -> None:
    bench = Bench(notice_from="term", notice_s=30.0, upload_reserve_s=8.0)
    bench.end_reasons.term_received = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at, ending.save_until) == (heartbeat.NOTICED, 1022.0, 1029.5)
    assert bench.end_reasons.notice_left_s == 30.0
    bench.clock.now += 5.0
    assert bench.end_reasons.check() == ending, "it counts once"


def test_term_after_a_stop_that_came_another_way_only_shortens_it() -> None:
    bench = Bench(notice_from="term", notice_s=30.0, upload_reserve_s=8.0)
    bench.end_reasons.add(heartbeat.STOPPED)
    bench.end_reasons.term_received = True
    ending = bench.end_reasons.check()
    assert ending is not None
    assert (ending.reason, ending.kill_at) == (heartbeat.STOPPED, 1022.0)

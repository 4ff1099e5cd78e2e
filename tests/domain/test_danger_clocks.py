"""Danger clocks: what happens to money or data if nobody acts, derived from a profile and a price.

The bill is assumed where nothing is known; every other clock rests on a known value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from supervisor.domain import profile as rules
from supervisor.domain.profile import NO_LIMIT, UNKNOWN, Clock, Danger, End, Profile, Stops, Verb, danger_clocks
from tests.domain.test_profile import checked, known, profiles


def dangers(profile: Profile, usd_per_h: float | None = None) -> dict[Danger, Clock]:
    return {clock.danger: clock for clock in danger_clocks(profile, usd_per_h)}


def test_a_box_that_nothing_stops_bills_for_ever() -> None:
    box = Profile("ssh", "A box", meter_stop=known("destroy"), session_cap_s=known(NO_LIMIT))
    assert danger_clocks(box, 1.2)[0].after_s is None, "no limit of a session says nothing about the idle timer"
    box = replace(box, idle_cap_s=known(NO_LIMIT), dead_man_s=known(NO_LIMIT))
    assert danger_clocks(box, 1.2) == (Clock(Danger.BILLS, box.meter_stop, 1.2, NO_LIMIT, "destroy"),)


def test_a_limit_of_its_own_ends_the_bill() -> None:
    cloud = Profile("cloud", "A cloud", meter_stop=known("delete"), dead_man_s=known(86400.0), session_cap_s=UNKNOWN)
    assert dangers(cloud)[Danger.BILLS].after_s == 86400.0
    assert dangers(replace(cloud, session_cap_s=known(3600.0)))[Danger.BILLS].after_s == 3600.0


def test_an_idle_timer_is_no_promise_that_the_bill_ends() -> None:
    box = Profile("ssh", "A box", meter_stop=known("destroy"), session_cap_s=known(NO_LIMIT),
                  dead_man_s=known(NO_LIMIT), idle_cap_s=known(5400.0))  # fmt: skip
    assert dangers(box)[Danger.BILLS].after_s is None
    assert dangers(box)[Danger.IDLE_ENDS].after_s == 5400.0


def test_what_is_free_bills_nothing_and_an_unknown_meter_counts_as_billed() -> None:
    free = Profile("local", "This computer", meter_stop=known(""))
    assert danger_clocks(free, 0.0) == ()
    unknown = Profile("ssh", "A box")
    assert danger_clocks(unknown, None) == (Clock(Danger.BILLS, UNKNOWN),)


def test_a_stop_that_still_bills_and_an_end_without_undo_are_named() -> None:
    stop = Verb("stop", End.STOP, stops_meter=known(Stops.PARTLY))
    destroy = Verb("destroy", End.DESTROY, stops_meter=known(Stops.YES))
    rental = Profile(
        "ssh", "A rental", meter_stop=known("destroy"), irreversible=known(True), verbs=(stop, destroy),
        preemptible=known(True), notice_s=known(0.0), kill_grace_s=known(5.0), session_cap_s=known(NO_LIMIT),
        stopped_kept_s=known(1_296_000.0), unpaid=known("all data is deleted"),
    )  # fmt: skip
    clocks = dangers(rental, 0.4)
    assert list(clocks) == [
        Danger.BILLS,
        Danger.STOP_STILL_BILLS,
        Danger.NO_UNDO,
        Danger.PREEMPTED,
        Danger.STOPPED_DELETED,
        Danger.UNPAID,
    ]
    assert clocks[Danger.STOP_STILL_BILLS].verb == "stop"
    assert clocks[Danger.PREEMPTED].after_s == 5.0
    assert rental.meter_verb == destroy


def every_clock_rests_on_a_fact(profile: Profile, usd_per_h: float | None) -> None:
    """Only the bill is assumed where nothing is known; and a price that nobody knows is never 0."""
    for clock in rules.danger_clocks(profile, usd_per_h):
        assert clock.fact.is_known or clock.danger is Danger.BILLS
        assert clock.usd_per_h in (None, usd_per_h)
        assert clock.after_s != NO_LIMIT or clock.danger is Danger.BILLS
    billed = any(clock.danger is Danger.BILLS for clock in rules.danger_clocks(profile, usd_per_h))
    assert billed == (profile.meter_stop.value != "")


def test_clocks_of_any_profile() -> None:
    checked(every_clock_rests_on_a_fact, profiles(), st.none() | st.floats(0, 100))()


def _unknown_is_free(profile: Profile, usd_per_h: float | None) -> tuple[Clock, ...]:
    return danger_clocks(profile, usd_per_h) if profile.meter_stop.value else ()


def _unknown_price_is_zero(profile: Profile, usd_per_h: float | None) -> tuple[Clock, ...]:
    return danger_clocks(profile, usd_per_h or 0.0)


def _every_danger_always(profile: Profile, usd_per_h: float | None) -> tuple[Clock, ...]:
    return (*danger_clocks(profile, usd_per_h), Clock(Danger.NO_UNDO, profile.irreversible))


@pytest.mark.parametrize("broken", [_unknown_is_free, _unknown_price_is_zero, _every_danger_always])
def test_broken_clocks_are_caught(broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "danger_clocks", broken)
    with pytest.raises(AssertionError):
        checked(every_clock_rests_on_a_fact, profiles(), st.none() | st.floats(0, 100), shrinks=False)()

"""How many more sessions a run needs, how many of them the lent hours allow, and when it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.contract.heartbeat import Guess
from supervisor.domain.attempt import Chain, pace_of, with_links
from supervisor.domain.machines import Quota
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from supervisor.wording import sessions
from supervisor.wording.sessions import Forecast, Lent, forecast, forecast_text
from tests.lifecycle.lending import CAP_S, DAY, FREE, SATURDAY, TOTAL, chained, quota, session
from tests.lifecycle.sample_runs import MIN, NOW, H

CHANGE_S = 10 * MIN
OPEN = Lent(FREE, CAP_S)


def lent(hours: Quota | None) -> Lent:
    return Lent(FREE, CAP_S, hours)


def told(found: Forecast) -> str:
    return forecast_text(found, NOW)


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_each_session_gives_its_cap_less_one_changeover() -> None:
    found = forecast(chained(20), OPEN, NOW)
    assert (found.sessions, found.in_time, found.changeover_s) == (3, None, CHANGE_S)
    assert found.ends_at == NOW + 20 * H + 3 * CHANGE_S
    assert told(found) == (
        "Needs 3 more sessions of up to 9 h on kaggle; done at about Sat 08:00 UTC (at 1.0 steps/s, 10 min for each "
        "changeover)"
    )


def test_hours_that_run_out_move_the_rest_behind_their_reset() -> None:
    """10 h are left until Saturday: one whole session, and one of an hour."""
    found = forecast(chained(20), lent(quota(10.0)), NOW)
    assert (found.sessions, found.in_time) == (4, 2)
    first_s, second_s = CAP_S - CHANGE_S, 1 * H - CHANGE_S
    assert found.ends_at == SATURDAY + 20 * H - first_s - second_s + 2 * CHANGE_S
    assert "its GPU hours allow 2 before Sat 00:00 UTC" in told(found)


def test_hours_that_suffice_are_said_to() -> None:
    found = forecast(chained(8), lent(quota(9.0)), NOW)
    assert (found.sessions, found.in_time) == (1, 1)
    assert told(found).startswith("Needs 1 more session of up to 9 h on kaggle; its GPU hours suffice; done at about")


def test_the_issues_own_example() -> None:
    """Four more sessions, three of them allowed: 26.5 GPU hours are left, and the week begins on Monday."""
    monday = SATURDAY + 2 * DAY
    found = forecast(chained(33, start_s=15 * MIN), lent(quota(26.5, resets_at=monday)), NOW)
    assert (found.sessions, found.in_time) == (4, 3)
    assert "Needs 4 more sessions" in told(found)
    assert "allow 3 before Mon 00:00 UTC" in told(found)
    assert "done on Monday" in told(found)


def test_many_weeks_are_passed_one_by_one() -> None:
    """30 h a week less changeovers: 300 h take more than ten weeks."""
    found = forecast(chained(277), lent(quota(0.0)), NOW)
    assert found.ends_at is not None
    assert 9 * 7 * DAY < found.ends_at - SATURDAY < 10 * 7 * DAY
    assert "done on about 2026-01-" in told(found)


def test_the_present_session_comes_first() -> None:
    attempt, pulse = session(since_h=5)
    run = chained(0, status=Status.RUNNING, attempt=attempt, pulse=replace(pulse, total=pulse.step + int(2 * H)))
    found = forecast(run, lent(quota()), NOW)
    assert (found.sessions, found.ends_at) == (0, NOW + 2 * H)
    assert told(found).startswith("Needs no further session on kaggle; done at about 14:00 UTC (at 1.0 steps/s")
    longer = replace(run, pulse=replace(pulse, total=pulse.step + int(6 * H)))
    found = forecast(longer, lent(quota()), NOW)
    assert (found.sessions, found.ends_at) == (1, NOW + 4 * H + 2 * H + CHANGE_S)


def test_a_session_that_boots_has_its_changeover_before_it() -> None:
    attempt, _ = session(since_h=0, running_at=None, training_at=None)
    found = forecast(chained(3, status=Status.LAUNCHING, attempt=attempt), OPEN, NOW)
    assert (found.sessions, found.ends_at) == (0, NOW + CHANGE_S + 3 * H)


@pytest.mark.parametrize(
    ("chain", "why"),
    [
        (Chain(None, {FREE: 1.0}), "the number of its steps is not known"),
        (Chain(1000), "its pace is not measured yet"),
        (Chain(), "its pace is not measured yet"),
    ],
)
def test_without_a_total_or_a_pace_nothing_is_said(chain: Chain, why: str) -> None:
    found = forecast(chained(5, chain=chain), lent(quota()), NOW)
    assert (found.sessions, found.ends_at) == (None, None)
    assert told(found) == f"Cannot say how many more sessions it needs on kaggle: {why}"


def test_what_is_not_known_is_said() -> None:
    unread = forecast(chained(5), lent(quota(None)), NOW)
    assert unread.sessions == 1
    assert told(unread).endswith("its GPU hours are not known now)")
    new = forecast(chained(5, chain=Chain(TOTAL, {FREE: 1.0})), OPEN, NOW)
    assert new.changeover_s is None
    assert told(new).endswith("the changeover is not measured yet)")
    endless = forecast(chained(5), lent(quota(0.0, resets_at=None)), NOW)
    assert "when the GPU hours begin anew is not known" in told(endless)
    assert "shorter than its changeover" in told(forecast(chained(5, start_s=10 * H), OPEN, NOW))
    assert "more than 500 more sessions" in told(forecast(chained(9000), OPEN, NOW))


def test_a_reading_from_before_the_reset_counts_as_a_whole_week() -> None:
    old = quota(0.0, resets_at=NOW - H)
    assert old.left_s(NOW) is None
    assert forecast(chained(8), lent(old), NOW).ends_at == NOW + 8 * H + CHANGE_S


def test_guessed_steps_are_no_measurement() -> None:
    attempt, pulse = session(since_h=5)
    guessed = replace(pulse, step=None, total=None, steps_per_s=None, guess=Guess(500, 1000, 2.0))
    run = chained(0, status=Status.RUNNING, attempt=attempt, pulse=guessed, chain=Chain(), files=Files())
    assert forecast(run, OPEN, NOW).ends_at is None
    assert with_links(Chain(), attempt, guessed) == Chain(starts_s={FREE: CHANGE_S})


def test_the_pace_is_that_of_the_whole_session() -> None:
    """The agent reports 1.3 steps/s of the last minutes; with saves and evaluations it made 1 step/s."""
    attempt, pulse = session(since_h=5)
    assert pace_of(attempt, pulse) == pytest.approx(1.0)
    assert pace_of(attempt, replace(pulse, progress_at=attempt.training_at + 30.0)) == 1.3
    assert pace_of(attempt, replace(pulse, launch_id="1.2.1")) is None
    chain = with_links(Chain(), attempt, pulse)
    assert (chain.total, chain.starts_s) == (TOTAL, {FREE: CHANGE_S})
    assert with_links(chain, replace(attempt, training_at=None), None) == chain
    assert with_links(chain, attempt, None).paces == chain.paces


# --- for all ----------------------------------------------------------------------------------------------------------

HOURS = st.one_of(st.none(), st.floats(0, 40))


def paid_back(found: Forecast, left_h: float, hours: float | None) -> None:
    """What every forecast keeps: the end lies behind all of the work and all changeovers, and no week gives more than
    its hours."""
    if found.ends_at is None or found.sessions is None:
        return
    took_s = found.ends_at - NOW
    assert took_s >= left_h * H + found.sessions * CHANGE_S - 1.0
    assert found.sessions >= left_h * H / (CAP_S - CHANGE_S) - 1e-6
    if hours is not None:
        weeks = 1 + max(0.0, took_s - 12 * H) // (7 * DAY)
        reached = hours + (30.0 * weeks if found.ends_at > SATURDAY else 0.0)
        assert left_h * H + found.sessions * CHANGE_S <= reached * H + 1.0


@given(left_h=st.floats(0.5, 200), hours=HOURS)
def test_no_forecast_promises_more_than_the_sessions_give(left_h: float, hours: float | None) -> None:
    paid_back(forecast(chained(left_h), lent(quota(hours)), NOW), int(left_h * H) / H, hours)


@given(left_h=st.floats(0.5, 100), more_h=st.floats(0, 50), hours=st.floats(0, 40))
def test_more_work_never_ends_earlier(left_h: float, more_h: float, hours: float) -> None:
    less, more = (forecast(chained(work), lent(quota(hours)), NOW).ends_at for work in (left_h, left_h + more_h))
    assert less is not None
    assert more is not None
    assert less <= more + 1.0


def test_a_forecast_that_forgets_the_changeovers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "changeover_s", lambda run, provider: 0.0)
    with pytest.raises(AssertionError):
        paid_back(forecast(chained(100), OPEN, NOW), 100, None)


def test_a_forecast_that_forgets_the_hours_is_caught() -> None:
    with pytest.raises(AssertionError):
        paid_back(forecast(chained(100), lent(quota(None, week_h=None)), NOW), 100, 30.0)


# --- in words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead_s", "text"),
    [
        (17 * MIN, "at about 12:15 UTC"), (5 * H + 4 * MIN, "at about 17:00 UTC"), (30 * H, "at about Sat 18:00 UTC"),
        (3 * DAY, "on Monday"), (10 * DAY, "on about 2025-12-01"),
    ],
)  # fmt: skip
def test_a_time_is_as_exact_as_it_can_be(ahead_s: float, text: str) -> None:
    assert sessions.about_text(NOW + ahead_s, NOW) == text

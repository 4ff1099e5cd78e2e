"""A run over many sessions of a platform that ends each of them: under weekly hours, to a deadline, for days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from supervisor.dashboard.drawing.timeline import NEWEST, timeline
from supervisor.domain.causes import Cause
from supervisor.domain.events import KINDS
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers import paying
from supervisor.services.views.attempt_view import attempts_json
from supervisor.services.views.run_view import run_json
from supervisor.storage.engine.codec import dumps, to_plain
from supervisor.wording.run import status_text
from tests.properties import examples
from tests.scenarios.lending import Lending, lending
from tests.scenarios.sim_plan import Plan

H = 3600.0
DAY_S = 24 * H


def training(hours: float, **fields: float) -> Plan:
    """One step a second, saved every five minutes; a restore takes a minute."""
    return Plan(steps=int(hours * H), checkpoint=300, restore=60.0, **fields)  # type: ignore[arg-type]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Lending]:
    stage = lending(tmp_path)
    yield stage
    assert stage.faults.seen == []
    stage.close()


def is_completed(run: Run) -> bool:
    return run.status == Status.COMPLETED


def deadline_in(stage: Lending, hours: float) -> dict[str, object]:
    return {"deadline": datetime.fromtimestamp(stage.clock.now() + hours * H, UTC).isoformat().replace("+00:00", "Z")}


def test_six_sessions_under_weekly_hours(stage: Lending) -> None:
    """4 h are lent now and 4 h more from the sixth hour on; a session takes 1 h at most."""
    began = stage.clock.now()
    stage.lender.lend(week_h=4.0, left_h=4.0, resets_in_h=6.0)
    stage.submit(training(5.4))
    stage.until(lambda run: run.counters.attempts == 2 and run.status == Status.RUNNING, 2 * H)
    stage.run_for(10 * 60.0)
    shown = stage.sessions
    assert (shown["needed"], shown["in_time"]) == (4, 2)
    assert "its GPU hours allow 2 before 14:00 UTC" in shown["text"]
    assert shown["ends_at"] is not None
    foretold = datetime.fromisoformat(shown["ends_at"]).timestamp()
    took_s = 70 * 60.0 + stage.until(is_completed, 12 * H)
    assert abs(began + took_s - foretold) < 15 * 60.0, "the forecast was right, three sessions and a wait ahead"
    assert [attempt.cause for attempt in stage.attempts()] == [Cause.TIME_LIMIT] * 5 + [Cause.FINISHED]
    assert {attempt.placement.provider for attempt in stage.attempts()} == {"lender"}
    [wait] = stage.texts("waiting")
    assert wait.startswith("Waiting: GPU hours of lender are used up until 14:00 UTC.")
    assert wait.endswith("It does not pay for local, because without a deadline nothing is paid.")
    run = stage.run
    assert (run.counters.counted, run.counters.no_progress, run.counters.streak) == (0, 0, 0)
    assert run.money.cost_usd == 0.0


def test_hours_that_end_in_mid_run_are_one_wait_that_asks_nothing(stage: Lending) -> None:
    stage.lender.lend(week_h=2.0, left_h=0.6, resets_in_h=5.0)
    stage.submit(training(1.5))
    stage.until(lambda run: run.cause == Cause.QUOTA_HOURS, H)
    waits, calls, ticks = stage.run, stage.lender.calls["launch"], stage.ticks
    assert "the GPU hours of this week are used up" in stage.attempts()[-1].evidence
    assert status_text(waits, stage.clock.now()).startswith(
        "Waiting since 08:37 UTC: GPU hours of lender are used up until 13:00 UTC. Nothing is billed. "
        "Next: it starts by itself then, in 4 h 2"
    )
    stage.run_for(2 * H)
    stage.kill()
    stage.start()
    stage.run_for(H)
    assert stage.run.version == waits.version, "a wait of hours writes nothing"
    assert (stage.lender.calls["launch"], stage.ticks > ticks) == (calls, True)
    stage.until(is_completed, 6 * H)
    assert len(stage.texts("waiting")) == 1
    assert stage.run.counters.counted == 0


def test_hours_that_cannot_be_read_are_found_out_by_a_request(stage: Lending) -> None:
    """The platform refuses: that is a wait too, asked again at the pace of a quota."""
    stage.lender.lend(week_h=2.0, left_h=0.0, resets_in_h=3.0)
    stage.lender.unread = True
    stage.submit(training(0.5))
    stage.run_for(H)
    assert (stage.run.status, stage.run.cause) == (Status.WAITING, Cause.QUOTA_HOURS)
    assert stage.lender.calls["launch"] <= 7
    stage.until(is_completed, 4 * H)
    assert stage.run.counters.attempts == 1


def test_a_deadline_pays_when_the_lent_hours_do_not_reach(stage: Lending) -> None:
    """4 h of work, 2 h lent this week, a deadline in 6 h: two free sessions, then the paid machine, in time."""
    stage.lender.lend(week_h=2.0, left_h=2.0, resets_in_h=100.0)
    stage.submit(training(4), limits=deadline_in(stage, 6))
    stage.until(lambda run: run.counters.attempts == 1 and run.status == Status.RUNNING, H)
    assert "it does not pay for local, because nobody knows how much is left" in stage.texts("launching")[0]
    stage.until(is_completed, 6 * H)
    providers = [attempt.placement.provider for attempt in stage.attempts()]
    assert providers[0] == "lender", "free first: nobody knows how much is left"
    assert providers[-1] == "local"
    assert "it pays for local, because lender alone would miss the deadline 14:00 UTC" in stage.texts("launching")[-1]


def paid_late(stage: Lending) -> None:
    """The free platform refuses from its second session on. It is asked again as long as the deadline allows, then the
    paid machine ends the work in time."""
    stage.submit(training(3), limits=deadline_in(stage, 10))
    stage.until(lambda run: run.counters.attempts == 1 and run.status == Status.RUNNING, H)
    stage.lender.stockout(["lent-a"], None)
    stage.until(lambda run: run.provider == "local" and run.status == Status.RUNNING, 10 * H)
    [attempt] = [attempt for attempt in stage.attempts() if attempt.placement.provider == "local"]
    spare_s = (stage.run.policy.limits.deadline or 0.0) - attempt.started_at - 2 * H
    assert spare_s < 1.5 * H, "it pays only when it must"
    stage.until(is_completed, 4 * H)


def test_a_platform_that_refuses_is_paid_around_at_the_last_moment(stage: Lending) -> None:
    paid_late(stage)


@pytest.mark.parametrize("broken", ["at once", "never"])
def test_a_ladder_that_pays_at_once_or_never_is_caught(
    stage: Lending, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = paying._turn
    at = 0.0 if broken == "at once" else None
    monkeypatch.setattr(
        paying, "_turn", lambda run, *more: true(run, *more)._replace(at=at if run.chain.paces else None)
    )
    with pytest.raises(AssertionError):
        paid_late(stage)


def test_a_free_platform_may_refuse_for_days(tmp_path: Path) -> None:
    """Without a deadline nothing is paid, and one wait is one event."""
    stage = lending(tmp_path, poll=600.0)
    stage.lender.stockout(["lent-a"], 3 * DAY_S)
    stage.submit(training(0.5), limits={"wait_for_capacity_s": 5 * DAY_S})
    stage.run_for(3 * DAY_S - H)
    assert (stage.run.status, stage.run.cause, stage.run.provider) == (Status.WAITING, Cause.NO_CAPACITY, "lender")
    assert stage.sessions["paying"] == "it does not pay for local, because without a deadline nothing is paid"
    stage.until(is_completed, 4 * H)
    assert stage.run.money.cost_usd == 0.0
    assert len(stage.texts("waiting")) == 1
    stage.close()


# --- many sessions ----------------------------------------------------------------------------------------------------

MANY = examples(30, 200)


def trains_in(number: int, run: Run) -> bool:
    """It has made steps in the attempt of this number, or of a later one."""
    return run.counters.attempts >= number and run.pulse is not None and run.pulse.step is not None


def size(stage: Lending) -> tuple[int, int, int]:
    """(bytes of the row, machines that it keeps track of, zone records)"""
    run = stage.run
    return len(dumps(to_plain(run))), len(run.retiring), len(stage.rows.again("zones", run.cell))


def test_many_sessions_are_no_failures_and_nothing_grows(tmp_path: Path) -> None:
    stage = lending(tmp_path, poll=120.0)
    stage.lender.cap_s = 300.0
    stage.submit(Plan(steps=MANY * 250, checkpoint=10, restore=5.0), limits={"max_attempts": 3})
    sizes = []
    for number in (10, MANY - 5):
        stage.until(partial(trains_in, number), MANY * 400.0)
        sizes.append(size(stage))
    assert sizes[1][0] < sizes[0][0] + 40
    assert sizes[1][1:] == sizes[0][1:]
    stage.until(is_completed, MANY * 400.0, step_s=600.0)
    run, count = stage.run, stage.run.counters.attempts
    assert count >= MANY
    assert (run.counters.counted, run.counters.no_progress, run.counters.user_failures) == (0, 0, 0)
    ended = [text for text in stage.texts("attempt_ended") if "time_limit" in text]
    assert len(ended) == count - 1
    sent = {message.kind for message in stage.notifier.sent}
    assert {kind for kind in sent if KINDS[kind].usual} == {"completed"}, "no session is an alarm"
    now = stage.clock.now()
    drawn = timeline(run_json(run, now, {}), attempts_json(run, stage.attempts(), (), now), now)
    assert (len(drawn.bars), drawn.hidden) == (NEWEST, count - NEWEST)
    assert {bar.cause for bar in drawn.bars} == {"session cap", "finished"}
    stage.close()

"""The patrol's report: counts, spend and the oldest problem."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.run import Approval, Files, Outcome, Person, Run, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.events.patrol import Problem, Standing, back_again, problem, report, spent_usd
from supervisor.wording.run import status_text
from tests.lifecycle import hosts_world
from tests.lifecycle.hosts_world import approval, metered, verified
from tests.lifecycle.sample_runs import NOW, H, attempt, run_in

DAY = 24 * H
OUTCOME = Outcome("ab", 1, 1, NOW, 9)


def test_a_busy_day() -> None:
    problems = (
        Problem("late", NOW - H, False, "No machine."),
        Problem("probe-2", NOW - 14 * H, True, "Results verified. Next: approve."),
    )
    counts = {"running": 2, "waiting": 1, "awaiting_teardown": 1, "completed": 70}
    event = report(Standing(counts, 3.41, 41.7, DAY, problems), NOW)
    assert event.text == (
        "2 running, 1 waiting, 1 in between, 1 needs you. $3.41/h now, $41.70 in the last 24 h. "
        "Oldest problem: probe-2, for 14 h: Results verified. Next: approve."
    )
    assert (event.data["need_you"], event.data["oldest_problem"]) == (1, "probe-2")


def test_a_day_without_news_has_a_report_too() -> None:
    event = report(Standing({"completed": 3}, 0.0, 0.0, DAY), NOW)
    assert event.text == "Nothing runs and nothing waits. $0.00/h now, $0.00 in the last 24 h."


@pytest.mark.parametrize(
    ("run", "since", "of_person"),
    [
        (run_in(Status.WAITING, waiting=Waiting(since=NOW - H)), NOW - H, False),
        (run_in(Status.RECOVERING, hold="the object store cannot be read"), NOW - 4, False),
        (run_in(Status.FINISHING, person=Person(why="upload failed", since=NOW - 9)), NOW - 9, True),
        (run_in(Status.AWAITING_TEARDOWN, files=Files(outcome=OUTCOME)), NOW - 4, True),
        (
            run_in(Status.AWAITING_TEARDOWN, files=Files(outcome=OUTCOME), approval=Approval("ops", NOW, "m", "ab")),
            None,
            False,
        ),
        (run_in(Status.RECOVERING), None, False),
        (run_in(Status.RUNNING, attempt=attempt()), None, False),
        (run_in(Status.FAILED, person=Person(why="nobody came")), None, False),
    ],
)
def test_what_counts_as_a_problem(run: Run, since: float | None, of_person: bool) -> None:
    trouble = problem(run, NOW)
    assert (trouble is not None) == (since is not None)
    if trouble is not None:
        assert (trouble.since, trouble.of_person) == (since, of_person)
        assert trouble.sentence


@pytest.mark.parametrize(
    ("started", "gone", "usd"),
    [
        (NOW - 2 * H, None, 1.0),
        (NOW - 48 * H, None, 12.0),  # only the last day of it
        (NOW - 48 * H, NOW - 12 * H, 6.0),
        (NOW - 48 * H, NOW - 30 * H, 0.0),
        (NOW + H, None, 0.0),
    ],
)
def test_what_was_spent_within_a_day(started: float, gone: float | None, usd: float) -> None:
    assert spent_usd([attempt(started_at=started, gone_at=gone)], NOW - DAY, NOW) == pytest.approx(usd)


def test_a_machine_that_ran_no_more_was_not_paid_for() -> None:
    stopped = attempt(started_at=NOW - 4 * H, stopped_at=NOW - 2 * H, gone_at=NOW - H)
    unknown = attempt(started_at=NOW - 4 * H, price_usd_per_h=None)
    assert spent_usd([stopped, unknown], NOW - DAY, NOW) == pytest.approx(1.0)


def test_a_restart_reports_its_version_the_downtime_and_the_live_runs() -> None:
    event = back_again("1.2.3", 200.0, {"running": 5, "waiting": 7, "failed": 3})
    assert (
        event.text == "Supervisor 1.2.3 started again after 3 min 20 s away. 12 live runs found: 5 running, 7 waiting."
    )
    assert back_again("1.2.3", None, {"failed": 3}).text == "Supervisor 1.2.3 started again. No run is live."


def test_a_bill_whose_end_is_not_confirmed_is_a_problem_also_after_the_approval() -> None:
    run = replace(verified(metered()), approval=approval(hosts_world.NOW + 10))
    found = problem(run, hosts_world.NOW + 60)
    assert found is not None
    assert (found.of_person, found.sentence) == (True, status_text(run, hosts_world.NOW + 60))

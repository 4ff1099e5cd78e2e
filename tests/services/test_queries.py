"""What readers see: the newest pulse, attempts with their times and costs, events, signed cursors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.heartbeat import encode
from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.causes import Cause
from supervisor.domain.errors import CursorInvalid, NotFound
from supervisor.ports.store import RunFilter
from supervisor.services.reading.history import EventList, EventQuery, list_events
from supervisor.services.reading.queries import Queries
from supervisor.services.views import formats
from supervisor.services.views.attempt_view import attempts_json
from tests.services.bed import COMMAND, PLACE, Bed, beat


def test_a_training_run_shows_what_people_look_for(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "labels": {"team": "a"}, "limits": {"budget_usd": 5.0}})
    bed.train("digits-7")
    shown = bed.services.queries.show("digits-7")
    assert shown["attempt"] == 1
    assert shown["placement"] == {
        "provider": "local",
        "region": "local",
        "zone": "local-a",
        "shape": "cpu",
        "gpu": None,
        "spot": True,
        "market": "spot",
    }
    assert shown["machine_id"] == "id-1"
    assert shown["beat"] == {"age_s": 8.0, "phase": "training"}
    assert shown["stall"] == {"polls": 0, "limit": 10}
    assert shown["progress"]["step"] == 120
    assert shown["progress"]["eta_s"] == pytest.approx((1000 - 120) / 3.0 - 8, abs=0.1)
    assert shown["cost"] == {"usd": 0.001667, "on_demand_usd": 0.005, "budget_usd": 5.0, "known": True}
    assert shown["price_usd_per_h"] == 0.1
    assert shown["labels"] == {"team": "a"}
    assert shown["created_at"] == "2027-01-15T08:00:00.000Z"
    assert shown["status_text"].endswith(".")


def test_the_last_pushed_beat_is_shown_and_not_the_last_sample(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.inbox.receive("digits-7", encode(beat("digits-7", 9, step=150, checkpoint_step=140, phase="checkpoint")))
    bed.clock.advance(2)
    shown = bed.services.queries.show("digits-7")
    assert shown["beat"] == {"age_s": 2.0, "phase": "checkpoint"}
    assert (shown["progress"]["step"], shown["progress"]["total"], shown["checkpoint_step"]) == (150, 1000, 140)


def test_an_older_pushed_beat_is_not_shown(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.inbox.receive("digits-7", encode(beat("digits-7", 3, step=90)))
    assert bed.services.queries.show("digits-7")["progress"]["step"] == 120


def test_what_the_loop_holds_is_newer_than_the_row(bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.pulse is not None
    live = replace(run, pulse=replace(run.pulse, sequence=9, step=200, stall_polls=4))
    queries = Queries(bed.parts, bed.inbox, lambda: bed.loop, lambda key: live if key == run.key else None)
    shown = queries.show("digits-7")
    assert (shown["progress"]["step"], shown["stall"]["polls"]) == (200, 4)
    stale = replace(live, pulse=replace(run.pulse, launch_id="1.9.9", step=1))
    assert Queries(bed.parts, bed.inbox, lambda: bed.loop, lambda _: stale).show("digits-7")["progress"]["step"] == 120


def test_an_unknown_price_is_not_zero(bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.attempt is not None
    bed.change("digits-7", attempt=replace(run.attempt, price_usd_per_h=None))
    shown = bed.services.queries.show("digits-7")
    assert shown["price_usd_per_h"] is None
    assert shown["cost"]["known"] is False


@pytest.mark.parametrize("run_id", ["nobody", "", "a" * 64, "x\x00y", "../etc", "ä"])
def test_no_such_run(bed: Bed, run_id: str) -> None:
    with pytest.raises(NotFound):
        bed.services.queries.show(run_id)


# --- attempts ---------------------------------------------------------------------------------------------------------


def test_attempts_tell_where_time_and_steps_went(bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.run("digits-7")
    t = run.created_at
    first = Attempt(
        1, 1, "1.1.2", "m1", "id-1", PLACE, t + 5, t + 10, 0.1, 0.3, t + 10, t + 20, t + 30, t + 130, t + 190,
        Cause.PREEMPTED, "notice", step_from=None, step_last=100, step_kept=80,
    )  # fmt: skip
    second = Attempt(
        2, 1, "1.2.1", "m2", "id-2", PLACE, t + 135, t + 140, None, None, t + 140, t + 150, t + 170, step_from=80
    )
    tries = [
        Try(1, 1, "1.1.1", "m1-t1", PLACE, t + 1, ended_at=t + 4, outcome=Cause.NO_CAPACITY, detail="none left"),
        Try(1, 2, "1.1.2", "m1", PLACE, t + 5),
        Try(3, 1, "1.3.1", "m3", PLACE, t + 200, ended_at=t + 201, outcome=Cause.QUOTA),
    ]
    told = attempts_json(run, [first, second], tries, t + 200)
    one, two = told["attempts"]
    assert one["phase_s"] == {"waiting": 10.0, "boot": 10.0, "restore": 10.0, "training": 80.0, "lost": 20.0}
    assert sum(one["phase_s"].values()) == 130.0, "the phases are the whole time from the submit to the end"
    assert (one["steps_lost"], one["step_kept"], one["cause"]) == (20, 80, "preempted")
    assert one["cost_usd"] == pytest.approx(0.1 * 180 / 3600, abs=1e-6), "billed until the machine was gone"
    assert [(item["number"], item["cause"]) for item in one["tries"]] == [(1, "no_capacity")]
    assert two["phase_s"] == {"waiting": 10.0, "boot": 10.0, "restore": 20.0, "training": 30.0, "lost": 0.0}
    assert (two["steps_lost"], two["cost_usd"], two["ended_at"]) == (None, None, None)
    assert told["next"]["number"] == 3
    assert told["next"]["tries"][0]["cause"] == "quota"


TRAINED = ("1.1.1", "m1", "i", PLACE)


@pytest.mark.parametrize(
    ("cause", "kept", "stalled_s", "lost_s"),
    [
        (Cause.STALLED, 80, 0.0, 600.0),  # since its newest checkpoint
        (Cause.STALLED, 100, 0.0, 550.0),  # everything is saved: since its last step
        (Cause.PREEMPTED, 80, 100.0, 700.0),
        (Cause.PREEMPTED, 100, 100.0, 100.0),
        (Cause.FINISHED, None, 100.0, 100.0),
        (Cause.AGENT_LOST, None, 0.0, 890.0),
    ],
)
def test_the_time_since_the_newest_checkpoint_and_of_stalls_is_lost(
    bed: Bed, cause: Cause, kept: int | None, stalled_s: float, lost_s: float
) -> None:
    bed.submit("digits-7")
    run = bed.run("digits-7")
    t = run.created_at
    one = Attempt(1, 1, *TRAINED, t, t, running_at=t + 10, training_at=t + 10, ended_at=t + 900, cause=cause,
                  step_last=100, step_kept=kept, progress_at=t + 350, kept_at=None if kept is None else t + 300,
                  stalled_s=stalled_s)  # fmt: skip
    told = attempts_json(run, [one], [], t + 1000)["attempts"][0]
    assert (told["phase_s"]["lost"], told["phase_s"]["training"]) == (lost_s, 890.0 - lost_s)
    drawn = {span["phase"]: span["since"] for span in told["spans"]}
    assert drawn["lost"] == formats.time_text(t + 900 - lost_s)


def test_a_stall_that_lasts_is_lost_time_already(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    run = bed.run("digits-7")
    now = bed.clock.now()
    pulse = replace(run.pulse, progress_at=now - 30, checkpoint_at=now - 35, checkpoint_step=90)

    def lost_s(polls: int) -> float:
        stalls = replace(run, pulse=replace(pulse, stall_polls=polls))
        return attempts_json(stalls, [run.attempt], [], now)["attempts"][0]["phase_s"]["lost"]

    assert (lost_s(1), lost_s(2)) == (0.0, 35.0)


def test_an_attempt_that_began_from_nothing_lost_all_steps_of_the_one_before(bed: Bed) -> None:
    bed.submit("digits-7")
    run = bed.run("digits-7")
    t = run.created_at
    first = Attempt(1, 1, "1.1.1", "m1", "i", PLACE, t, t, training_at=t + 10, ended_at=t + 110, step_last=50)
    second = Attempt(2, 1, "1.2.1", "m2", "i", PLACE, t + 110, t + 110, training_at=t + 120)
    told = attempts_json(run, [first, second], [], t + 200)["attempts"][0]
    assert (told["steps_lost"], told["phase_s"]["lost"], told["phase_s"]["training"]) == (50, 100.0, 0.0)


def test_attempts_of_a_run_in_the_database(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    told = bed.services.queries.attempts("digits-7")
    (one,) = told["attempts"]
    assert (one["number"], one["step_last"], one["cause"], one["machine"]) == (1, 120, None, "m-a1")
    assert told["next"] is None


# --- events and lists -------------------------------------------------------------------------------------------------


def test_events_in_order_after_an_id_and_since_a_time(bed: Bed) -> None:
    bed.submit("digits-7")
    for number in range(2, 5):
        bed.end("digits-7")
        bed.clock.advance(60)
        bed.resume("digits-7")
        assert bed.run("digits-7").generation == number

    def events(**query: Any) -> EventList:
        return list_events(bed.parts, bed.run("digits-7"), EventQuery(**query))

    whole = events()
    ids = [event["id"] for event in whole["events"]]
    assert [event["kind"] for event in whole["events"]] == ["submitted", "resumed", "resumed", "resumed"]
    assert whole["complete"]
    first_two = events(limit=2)
    assert not first_two["complete"]
    rest = events(after=first_two["events"][-1]["id"])
    assert [event["id"] for event in [*first_two["events"], *rest["events"]]] == ids
    since = events(since=bed.clock.now() - 90)
    assert [event["generation"] for event in since["events"]] == [3, 4]
    newest = events(limit=2, newest_first=True)
    assert [event["id"] for event in newest["events"]] == ids[:1:-1]


def test_a_cursor_walks_through_all_runs_once(bed: Bed) -> None:
    for number in range(7):
        bed.submit(f"run-{number}")
    found, at, where = [], None, RunFilter()
    for _ in range(10):
        page = bed.services.queries.page(where, 3, at)
        found += [run["run_id"] for run in page["runs"]]
        assert page["summary"]["counts"] == {"pending": 7}
        at = page["next_cursor"]
        if at is None:
            break
    assert found == [f"run-{number}" for number in reversed(range(7))]


def test_a_cursor_that_was_changed_or_is_of_another_filter_or_database_is_refused() -> None:
    where = RunFilter(statuses=("running",))
    good = formats.make_cursor("sup-1", 123, where)
    assert formats.read_cursor("sup-1", good, where) == 123
    bad = [good[:-1], good + "A", ("A" if good[0] != "A" else "B") + good[1:], "", "A" * 30, "ä" * 20, good + "\n"]
    for text in bad:
        with pytest.raises(CursorInvalid):
            formats.read_cursor("sup-1", text, where)
    with pytest.raises(CursorInvalid):
        formats.read_cursor("sup-1", good, RunFilter())
    with pytest.raises(CursorInvalid):
        formats.read_cursor("sup-2", good, where)


@pytest.mark.parametrize(("rerun", "lost"), [(False, 20), (True, None)])
def test_what_a_resume_had_to_do_again_is_lost_but_a_start_over_is_wanted(
    bed: Bed, rerun: bool, lost: int | None
) -> None:
    bed.submit("digits-7")
    run = replace(bed.run("digits-7"), generation=2, rerun=rerun)
    t = run.created_at
    first = Attempt(1, 1, "1.1.1", "m1", "i", PLACE, t, t, training_at=t, ended_at=t + 10, step_last=100)
    step = None if rerun else 80
    second = Attempt(2, 2, "2.2.1", "m2", "i", PLACE, t + 20, t + 20, training_at=t + 20, step_from=step)
    assert attempts_json(run, [first, second], [], t + 30)["attempts"][0]["steps_lost"] == lost

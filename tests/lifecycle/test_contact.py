"""Contact with the host or zone of a machine: its loss and its return are told once, and nothing else follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.events import EventKind
from supervisor.domain.machines import Away, Machine
from supervisor.domain.observation import LISTING, WRITTEN_OFF, Absent, Observation, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.events.patrol import problem
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import MIN, NOW, WORLD, H, attempt, beat_of, machine_of, open_try, pulse, run_in

SINCE = NOW - 3 * MIN
AWAY = Away("gpu1", SINCE, "gpu1 cannot be reached: timed out", lasting=True)
LOST = Unknown("gpu1 cannot be reached: timed out", AWAY)
LIVE = attempt(zone="gpu1", training_at=NOW - H, running_at=NOW - H)
TRY = replace(open_try("gpu1", attempt_number=4), launch_id=LIVE.launch_id)
BACK = Seen(machine_of(LIVE, name=TRY.machine_name), 0.0, LISTING)


def running(status: Status = Status.RUNNING, **fields: object) -> Run:
    newest = pulse(step=1200, total=5000, steps_per_s=3.1, beat_at=NOW - 2 * H, first_progress_at=NOW - 3 * H)
    return run_in(status, **{"attempt": LIVE, "try_": TRY, "pulse": newest, "reported": True, **fields})


def after(run: Run, machine: Part[Machine], now: float = NOW) -> tuple[Run, list[str]]:
    decision = decide(run, Observation(machine, Unknown("no beat is there")), WORLD, now)
    assert decision.actions == ()
    return decision.run, [event.text for event in decision.events]


def test_a_loss_is_told_once_after_two_minutes() -> None:
    early, nothing = after(running(), LOST, SINCE + 119)
    assert (early.away, nothing) == (None, [])
    lost, texts = after(running(), LOST)
    text = "No contact with gpu1 for 3 min: gpu1 cannot be reached: timed out. Nothing is ended or started for that."
    assert (lost.away, texts) == (AWAY, [text])
    assert after(lost, Unknown("a moment later", replace(AWAY, reason="another"))) == (lost, []), (
        "the row is not written again"
    )


def test_its_return_is_told_with_how_long_it_lasted() -> None:
    lost, _ = after(running(), LOST)
    assert after(lost, Unknown("the listing is late")) == (lost, []), "that says nothing of the host"
    back, texts = after(lost, BACK, NOW + 2 * H)
    assert (back.away, texts) == (None, ["Contact with gpu1 again, after 2 h 03 min."])


def test_a_machine_that_is_written_off_is_no_contact() -> None:
    lost, _ = after(running(), LOST)
    decision = decide(lost, Observation(Absent(0.0, WRITTEN_OFF), Absent(), baton=Absent()), WORLD, NOW)
    assert decision.run.away is None
    assert EventKind.CONTACT_BACK not in [event.kind for event in decision.events]


def test_the_sentence_of_a_training_that_nobody_hears() -> None:
    lost = running(away=AWAY)
    assert status_text(lost, NOW) == (
        "No contact with gpu1 for 3 min: gpu1 cannot be reached: timed out. Last known: training at step 1,200 of "
        "5,000 (24 %), 3.1 steps/s. Next: nothing is ended or started elsewhere until it responds; if gpu1 is lost for "
        "good: `spot approve digits-7 --write-off REASON`."
    )
    assert next_action(lost, NOW).what == "no contact"
    found = problem(lost, NOW)
    assert found is not None
    assert (found.since, found.of_person) == (SINCE, False)


def test_the_sentence_while_its_beats_arrive_by_another_way() -> None:
    lost = replace(running(away=AWAY), pulse=pulse(step=1200, total=5000, steps_per_s=3.1))
    text = status_text(lost, NOW)
    assert text.startswith("Training at step 1,200 of 5,000 (24 %), 3.1 steps/s, ETA 20 min. Last beat 8 s ago. ")
    assert "No contact with gpu1 for 3 min: gpu1 cannot be reached: timed out. Attempt 4" in text
    assert next_action(lost, NOW).what == "ETA 20 min"


def test_a_host_whose_beats_came_with_its_listing_is_silent_before_the_limit_of_silence() -> None:
    lost = replace(running(away=AWAY), pulse=pulse(step=1200, total=5000, steps_per_s=3.1, beat_at=SINCE + 1))
    assert status_text(lost, NOW).startswith("No contact with gpu1 for 3 min: ")
    assert next_action(lost, NOW).what == "no contact"
    assert status_text(lost, NOW, live_age_s=8.0).startswith("Training at step 1,200 of 5,000")


def test_old_beats_promise_no_end() -> None:
    silent = running()
    assert "ETA" not in status_text(silent, NOW)
    assert next_action(silent, NOW).what == "no ETA"


def test_a_zone_of_a_cloud_comes_back_by_itself() -> None:
    lost = running(away=replace(AWAY, zone="us-east1-b", lasting=False))
    assert "write-off" not in status_text(lost, NOW)


@pytest.mark.parametrize("status", [Status.LAUNCHING, Status.FINISHING, Status.STOPPING, Status.STOPPED])
def test_the_way_out_is_said_in_every_status(status: Status) -> None:
    text = status_text(running(status=status, away=AWAY), NOW)
    assert "No contact with gpu1 for 3 min" in text
    assert text.endswith("`spot approve digits-7 --write-off REASON`.")


def test_a_run_that_trains_and_has_contact_takes_the_short_way_again() -> None:
    beat = Seen(beat_of(LIVE, 10, step=1201), 1.0, "push")
    decision = decide(running(away=AWAY), Observation(BACK, beat), WORLD, NOW)
    assert (decision.run.away, [event.kind for event in decision.events]) == (None, [EventKind.CONTACT_BACK])

"""Progress that was read from the log: people see it, marked as a guess, and no decision uses it."""

from __future__ import annotations

from dataclasses import replace

from supervisor.cli.views.runs import progress_text
from supervisor.cli.views.show import beat_lines
from supervisor.contract.heartbeat import TRAINING, Guess
from supervisor.dashboard.run_rows import row_of
from supervisor.domain.attempt import Attempt
from supervisor.domain.observation import Observation, Seen, World
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.services.views.run_view import run_json
from supervisor.wording.cells import cell_table
from supervisor.wording.run import next_action, status_text
from tests.lifecycle.sample_runs import MIN, NOW, attempt, pulse, run_in
from tests.lifecycle.strategies import Situation
from tests.lifecycle.test_decide_properties import Decide, check, fails

GUESS = Guess(1200, 5000, 4.0)


def guessed(obs: Observation, guess: Guess | None) -> Observation:
    beat = obs.beat
    return replace(obs, beat=replace(beat, value=beat.value._replace(guess=guess))) if isinstance(beat, Seen) else obs


def decides_the_same(rules: Decide, situation: Situation) -> None:
    run, obs, world = situation
    with_guess, without = (rules(run, guessed(obs, guess), world, NOW) for guess in (GUESS, None))
    assert unguessed(with_guess) == unguessed(without)


def where_no_step_is_reported(situation: Situation) -> Situation:
    run, obs, world = situation
    beat = obs.beat
    told = replace(beat, value=beat.value._replace(step=None, phase=TRAINING)) if isinstance(beat, Seen) else beat
    return run, replace(obs, beat=told), world


def unguessed(decision: Decision) -> Decision:
    run = decision.run
    return replace(decision, run=replace(run, pulse=run.pulse and replace(run.pulse, guess=None)))


def believing(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Takes a guess for a report."""
    beat = obs.beat
    if isinstance(beat, Seen) and beat.value.guess is not None and beat.value.step is None:
        obs = replace(obs, beat=replace(beat, value=beat.value._replace(step=beat.value.guess.step)))
    return decide(run, obs, world, now)


def test_no_decision_uses_a_guess() -> None:
    check(decides_the_same, decide, Status.RUNNING, Status.FINISHING, Status.STOPPING, examples=100)


def test_rules_that_believe_a_guess_are_noticed() -> None:
    fails(decides_the_same, believing, Status.RUNNING, where=where_no_step_is_reported)


def running(live: Attempt | None = None, **fields: object) -> Run:
    live = live or attempt(training_at=NOW - 42 * MIN)
    return run_in(Status.RUNNING, attempt=live, pulse=pulse(launch_id=live.launch_id, **fields))


def test_the_sentence_marks_it() -> None:
    text = status_text(running(guess=GUESS), NOW)
    assert text.startswith(
        "Training at step ≈ 1,200 of 5,000 (24 %), 4.0 steps/s, ETA ≈ 15 min (read from the log: the command "
        "reports no steps, and is watched by its motion). "
    )
    assert "See docs/training-contract.md to report steps in two lines" in text
    assert next_action(running(guess=GUESS), NOW).what == "ETA ≈ 15 min"
    bare = status_text(running(guess=Guess(7)), NOW)
    assert bare.startswith("Training at step ≈ 7 (read from the log: ")


def test_a_run_that_reports_steps_is_not_guessed_at() -> None:
    assert "≈" not in status_text(running(step=3, guess=GUESS), NOW)
    earlier = replace(running(guess=GUESS), reported=True)
    assert "without a step yet" in status_text(earlier, NOW)
    assert "≈" not in status_text(earlier, NOW)


def test_the_api_marks_it() -> None:
    shown = run_json(running(guess=GUESS), NOW, {})["progress"]
    assert shown == {
        "step": 1200, "total": 5000, "steps_per_s": 4.0, "eta_s": 942.0, "metrics": {}, "guessed": True,
    }  # fmt: skip
    reported = run_json(running(step=3, guess=GUESS), NOW, {})["progress"]
    assert reported is not None
    assert (reported["step"], reported["guessed"]) == (3, False)


def test_lists_and_pages_mark_it() -> None:
    shown = {**run_json(running(guess=GUESS), NOW, {}), "cost": {"usd": 0.0, "known": True}}
    row = row_of(shown, NOW)
    assert (row.steps, row.share, row.eta) == ("≈ 1,200 of 5,000", "≈ 24 %", "")
    assert progress_text(shown).startswith("≈ ")
    assert "step ≈ 1,200 of 5,000 (read from the log)" in beat_lines(shown)[0]
    assert cell_table([shown]).rows[0].step == "≈ 1,200 of 5,000"
    shown = {**shown, "progress": {**shown["progress"], "guessed": False}}
    assert "≈" not in row_of(shown, NOW).steps + progress_text(shown) + beat_lines(shown)[0]

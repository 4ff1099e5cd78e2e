"""A command that starts over beside its checkpoint: one event, and an end that no other attempt repeats."""

import json
from dataclasses import replace

import pytest

from supervisor.contract import drill, heartbeat, signs
from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import Signs
from supervisor.domain.attempt import Drills, Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty, Retry
from supervisor.domain.events import EventKind, announced
from supervisor.domain.observation import BEATS, Absent, Observation, Seen
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_document
from supervisor.lifecycle.living.beats import with_ignored_resume
from supervisor.lifecycle.living.drilling import verdict_of
from supervisor.wording.run import status_text
from supervisor.wording.why import restart_text
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, run_in

STARTED_OVER = (("checkpoint.opened", 0), ("step.first_after_restore", 1), ("step.from", 12_000))
WORDS = (
    "the command began again at step 1 and opened no file of the checkpoint of step 12000 that was restored for it; it "
    "was ended before it could replace it"
)
TOLD = "The command began again at step 1, and opened no file of the checkpoint of step 12,000 that was restored for it"
KILLED = Exit(None, 9, True, 20.0)


def trains(on_resume_ignored: str = "stop", notes: "tuple[tuple[str, float], ...]" = STARTED_OVER) -> Run:
    live = replace(attempt(), step_from=12_000)
    pulse = Pulse(live.launch_id, 9, "training", beat_at=NOW, signs=signs.encode(Signs(notes=notes)))
    return run_in(Status.RUNNING, attempt=live, pulse=pulse, policy=Policy(on_resume_ignored=on_resume_ignored))


def next_beat(run: Run, **fields: object) -> Observation:
    live = run.live_attempt
    assert live is not None
    beat = beat_of(live, 12, step=2, checkpoint_step=12_000)
    text = signs.encode(Signs(notes=STARTED_OVER))
    beat = beat._replace(**{"signs": text, **fields})  # type: ignore[arg-type]
    return Observation(machine=Seen(machine_of(live)), beat=Seen(beat, 1.0, BEATS), baton=Absent(), stop=Absent())


def test_one_event_an_attempt_with_both_steps() -> None:
    run, (event,) = with_ignored_resume(trains("warn"))
    assert event.text == f"{TOLD}: it goes on, because `on_resume_ignored` is `warn`."
    assert (event.data, announced(event)) == ({"step_from": 12_000, "first_step": 1, "stops": False}, "resume_ignored")
    assert with_ignored_resume(run) == (run, ()), "the next beat says the same"


@pytest.mark.parametrize("notes", [STARTED_OVER[1:], (), (("checkpoint.opened", 1),)])
def test_a_fall_of_the_steps_alone_is_no_such_event(notes: "tuple[tuple[str, float], ...]") -> None:
    run = trains("warn", notes)
    assert with_ignored_resume(run) == (run, ())


def test_warn_ends_nothing() -> None:
    run = trains("warn", ())
    decision = decide(run, next_beat(run), WORLD, NOW)
    assert decision.run.status == Status.RUNNING
    assert [event.kind for event in decision.events] == [EventKind.RESUME_IGNORED]


def test_a_drill_in_which_it_started_over_has_failed() -> None:
    """Broken variant: the beat that ends the attempt was read for its end only, so an older verdict stayed."""
    run = replace(trains(notes=()), drills=Drills(number=1, launch_id=attempt().launch_id, ordered_at=NOW))
    shown = drill.Round(
        drill.TRAINING, delivered=True, step=12_000, saved=12_000, leave_s=1.0, upload_s=1.0, resumed=drill.STEPPED,
        restored=12_000, first=1,
    )  # fmt: skip
    text = drill.encode(drill.Record(1, drill.OVER, (drill.TRAINING,), (shown,)))
    ends = next_beat(run, left=heartbeat.RESUME_IGNORED, phase="finished", exit=KILLED, drill=text)
    after = decide(run, ends, WORLD, NOW)
    verdict = verdict_of(after.run.drills)
    assert verdict is not None
    assert (verdict.word, after.run.drills.launch_id) == ("fails", "")
    assert EventKind.DRILLED in [event.kind for event in after.events]


def test_the_end_has_its_own_cause_and_is_not_repeated() -> None:
    """Broken variant: the agent's KILL was an end of its own (`superseded`), and the next attempt did the same."""
    run = trains(notes=())
    decision = decide(run, next_beat(run, left=heartbeat.RESUME_IGNORED, phase="finished", exit=KILLED), WORLD, NOW)
    after = decision.run
    assert (after.status, after.cause, after.detail) == (Status.FAILED, Cause.RESUME_IGNORED, WORDS)
    assert after.files.checkpoint_step == 12_000
    assert after.attempt is not None
    verdict = after.attempt.verdict
    assert verdict is not None
    assert (verdict.rule, verdict.certainty, verdict.retry) == ("RESUME.stopped", Certainty.CERTAIN, Retry.NEVER)
    assert [remedy.word for remedy in verdict.remedies] == ["load_checkpoint", "warn_only"]
    assert [(event.kind, announced(event)) for event in decision.events] == [
        (EventKind.RESUME_IGNORED, None), (EventKind.ATTEMPT_ENDED, None), (EventKind.FAILED, "failed"),
    ]  # fmt: skip
    assert decision.events[0].text == f"{TOLD}: it is ended before it can replace it."
    assert "Not retried: the same code would start over again" in status_text(after, NOW)
    assert "the same code would start over again" in restart_text(after, after.attempt, None, verdict.retry)


def test_the_stored_evidence_says_the_same_also_without_the_steps() -> None:
    agent = {"left": "resume_ignored", "signs": json.loads(signs.encode(Signs(notes=STARTED_OVER)))}
    verdict = diagnose(of_document({"cause": "resume_ignored", "agent": agent}))
    assert (verdict.cause, verdict.sentence) == (Cause.RESUME_IGNORED, WORDS)
    assert any(quote.text == "resume_ignored" for quote in verdict.quotes)
    short = diagnose(of_document({"cause": "resume_ignored", "agent": {"left": "resume_ignored"}}))
    assert short.sentence.startswith("the command began again and opened no file of the checkpoint that was restored")

"""Metrics that the spec watches: one event for each metric, word and attempt; only `nan: stop` ends the run."""

import json
from dataclasses import replace

import pytest

from supervisor.contract import heartbeat, signs
from supervisor.contract.heartbeat import Exit
from supervisor.contract.signs import FLAT, INF, NAN, NAN_STAYS, SPIKE, OddMetric, Signs
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Retry
from supervisor.domain.events import EventKind, announced
from supervisor.domain.observation import BEATS, Absent, Observation, Seen
from supervisor.domain.policies import MetricRule, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.diagnosis.collecting import Collected, add_signs
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.diagnosis.reading import of_document
from supervisor.lifecycle.living.beats import with_alerts
from supervisor.wording.run import status_text
from supervisor.wording.stalls import odd_text
from supervisor.wording.why import restart_text
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, beat_of, machine_of, run_in

BOTH = MetricRule("loss", nan="alert", spike="alert")
LOSS = OddMetric("loss", NAN, 1240, 60.0, 2.31, 1239)
JUMP = OddMetric("loss", SPIKE, 1250, 61.0, 2.0, None, 41.5)


def trains(*odds: OddMetric, rules: tuple[MetricRule, ...] = (BOTH,)) -> Run:
    live = attempt()
    pulse = Pulse(live.launch_id, 9, "training", signs=signs.encode(Signs(metrics=odds)))
    return run_in(Status.RUNNING, attempt=live, pulse=pulse, policy=Policy(watch=rules))


def test_one_event_with_the_figures() -> None:
    run, (event,) = with_alerts(trains(LOSS))
    assert event.text == (
        "loss is NaN since step 1,240; the last finite value was 2.31 at step 1,239. The training goes on."
    )
    assert event.data == {"metric": "loss", "found": "nan", "step": 1240, "before": 2.31, "value": None}
    assert with_alerts(run) == (run, ()), "the next beat says the same"


def test_an_agent_that_starts_again_announces_nothing_twice() -> None:
    """Broken variant: the signs of the beat before decided, which a restarted agent has lost."""
    run, _ = with_alerts(trains(LOSS))
    assert run.pulse is not None
    quiet, none = with_alerts(replace(run, pulse=replace(run.pulse, signs="")))
    assert none == ()
    again = replace(quiet, pulse=replace(run.pulse, signs=signs.encode(Signs(metrics=(LOSS._replace(step=1300),)))))
    assert with_alerts(again)[1] == ()


def test_each_word_of_a_metric_is_its_own() -> None:
    run, (event,) = with_alerts(trains(JUMP))
    assert event.text == "loss jumped to 41.5 at step 1,250; the median before was 2. The training goes on."
    assert run.pulse is not None
    _, (further,) = with_alerts(replace(run, pulse=replace(run.pulse, signs=signs.encode(Signs(metrics=(LOSS, JUMP))))))
    assert further.data["found"] == NAN


@pytest.mark.parametrize(
    "run",
    [
        trains(LOSS, rules=()),
        trains(LOSS._replace(name="val/auc")),
        trains(JUMP, rules=(MetricRule("loss", nan="alert"),)),
        trains(LOSS._replace(kind=INF), rules=(MetricRule("loss", spike="alert"),)),
        trains(),
    ],
)
def test_what_nobody_watches_is_not_announced(run: Run) -> None:
    assert with_alerts(run) == (run, ())


def test_beats_of_an_older_attempt_and_forged_signs_are_not_read() -> None:
    run = trains(LOSS)
    assert run.pulse is not None
    older = replace(run, pulse=replace(run.pulse, launch_id="1.1.1"))
    forged = replace(run, pulse=replace(run.pulse, signs='{"metrics": [["loss", "nan"]]}'))
    assert with_alerts(older)[1] == with_alerts(forged)[1] == ()
    assert with_alerts(trains(LOSS._replace(kind=FLAT)))[1] == (), "a hint that nobody asked for"


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (OddMetric("kl", INF, 0, 1.0), "kl is infinite since step 0; it was never finite in this attempt"),
        (OddMetric("kl", INF, 7, 1.0, back_step=8), "kl was infinite at step 7, and is finite again since step 8"),
        (OddMetric("kl", SPIKE, 7, 1.0), "kl jumped at step 7"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_said(odd: OddMetric, text: str) -> None:
    assert odd_text(odd) == text


def test_it_is_a_finding_that_acts_on_nothing() -> None:
    into = Collected()
    same = OddMetric("aux_loss", FLAT, 500, 1.0, value=0.5)
    add_signs(into, Signs(metrics=(LOSS, JUMP, same), nonfinite=("loss", "kl")))
    evidence = into.evidence()
    shown = {finding.rule: finding for finding in findings(evidence)}
    assert set(shown) == {"METRIC.nonfinite", "METRIC.spike", "METRIC.flat"}
    assert shown["METRIC.flat"].sentence == "aux_loss is 0.5 in every report since step 500"
    assert {finding.retry for finding in shown.values()} == {Retry.NONE}
    assert "loss is NaN since step 1,240" in shown["METRIC.nonfinite"].sentence
    assert "kl was not finite" in shown["METRIC.nonfinite"].sentence
    assert diagnose(evidence).cause == diagnose(Collected().evidence()).cause


# --- nan: stop --------------------------------------------------------------------------------------------------------

STOPS = MetricRule("loss", nan="stop")
STAYS = LOSS._replace(kind=NAN_STAYS)
WORDS = "loss stays NaN since step 1,240; the last finite value was 2.31 at step 1,239"
CRASHED = Exit(1, None, False, 900.0, "ValueError: loss is nan")


def next_beat(run: Run, *odds: OddMetric, **fields: object) -> Observation:
    live = run.live_attempt
    assert live is not None
    text = signs.encode(Signs(metrics=odds))
    beat = beat_of(live, 12, step=1300, checkpoint_step=1200)._replace(**{"signs": text, **fields})  # type: ignore[arg-type]
    return Observation(machine=Seen(machine_of(live)), beat=Seen(beat, 1.0, BEATS), baton=Absent(), stop=Absent())


def test_a_finding_that_may_end_the_run_says_so() -> None:
    _, (event,) = with_alerts(trains(LOSS, STAYS, rules=(STOPS,)))
    assert event.text.endswith("are held back until the metric is finite again, and the run ends if it stays so.")
    _, (event,) = with_alerts(trains(LOSS._replace(back_step=1241), rules=(STOPS,)))
    assert event.text.endswith("at step 1,239. The training goes on.")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"phase": heartbeat.FINISHED, "exit": CRASHED},  # it gave up by itself: that is not repeated for money either
        {"notice_s": 25.0},  # the next machine would do the same
    ],
)
def test_a_metric_that_stays_so_stops_the_run(fields: "dict[str, object]") -> None:
    run = trains(rules=(STOPS,))
    decision = decide(run, next_beat(run, LOSS, STAYS, **fields), WORLD, NOW)
    after = decision.run
    assert (after.status, after.detail) == (Status.STOPPING, WORDS)
    assert after.stop is not None
    assert (after.stop.cause, after.stop.by_metric) == (Cause.USER_ERROR, True)
    assert [event.text for event in decision.events if event.kind == EventKind.STOP_REQUESTED] == [
        f"{WORDS}. The run's `watch` ends it: no checkpoint that was saved since then is used."
    ]
    assert f"{WORDS}; the run's `watch` ends it" in status_text(after, NOW)


@pytest.mark.parametrize(
    ("rules", "odds", "fields"),
    [
        ((), (LOSS, STAYS), {}),
        ((BOTH,), (LOSS, STAYS), {}),
        ((STOPS,), (LOSS,), {}),  # not yet; or an agent that holds nothing back
        ((STOPS,), (STAYS._replace(name="val/auc"),), {}),
        ((STOPS,), (LOSS, STAYS), {"launch_id": "1.3.1", "attempt": 3}),  # of an attempt before a resume
        ((STOPS,), (LOSS, STAYS), {"phase": heartbeat.FINISHING}),  # the work is done
    ],
)
def test_what_does_not_stop_it(
    rules: tuple[MetricRule, ...], odds: tuple[OddMetric, ...], fields: "dict[str, object]"
) -> None:
    """Broken variant: `alert` alone was enough."""
    run = trains(rules=rules)
    assert run.pulse is not None
    run = replace(run, pulse=replace(run.pulse, beat_at=NOW))
    after = decide(run, next_beat(run, *odds, **fields), WORLD, NOW).run
    assert (after.stop, after.status) in ((None, Status.RUNNING), (None, Status.FINISHING))


def test_the_end_names_the_metric_its_rule_and_the_checkpoint_that_stays() -> None:
    run = trains(rules=(STOPS,))
    obs, kinds = next_beat(run, LOSS, STAYS), []
    for _ in range(8):
        decision = decide(run, obs, WORLD, NOW)
        run, kinds = decision.run, [*kinds, *decision.events]
        left = replace(next_beat(trains(rules=(STOPS,)), left=heartbeat.STOPPED), machine=Absent(), lookup=Absent())
        obs = replace(left, retiring=tuple(Absent() for _ in run.retiring))
        if run.terminal:
            break
    assert (run.status, run.cause, run.detail) == (Status.FAILED, Cause.USER_ERROR, WORDS)
    assert run.attempt is not None
    assert run.attempt.verdict is not None
    assert (run.attempt.verdict.rule, run.attempt.verdict.retry) == ("METRIC.stopped", Retry.NEVER)
    last = kinds[-1]
    assert last.text == f"Failed: user_error. {WORDS}. Checkpoint kept: 1,200; `spot resume` goes on from it."
    assert (announced(last), last.data["rule"], last.data["quote"]) == ("failed", "METRIC.stopped", f"own.end: {WORDS}")
    assert [announced(event) for event in kinds].count("failed") == 1
    assert f"Its `watch` ended it: {WORDS}. Not retried" in status_text(run, NOW)
    assert "the run's `watch` ends it there" in restart_text(run, run.attempt, None, Retry.NEVER)


def test_the_stored_evidence_says_the_same() -> None:
    """The agent left because it was stopped: that must not read as a stop by a person."""
    agent = {"left": "stopped", "signs": json.loads(signs.encode(Signs(metrics=(STAYS, LOSS))))}
    document = {"cause": "user_error", "detail": WORDS, "agent": agent}
    verdict = diagnose(of_document(document))
    assert (verdict.rule, verdict.cause, verdict.sentence) == ("METRIC.stopped", Cause.USER_ERROR, WORDS)
    assert [remedy.word for remedy in verdict.remedies] == ["lower_rate", "clip_gradients", "resume_kept"]
    without = {**document, "agent": {**agent, "signs": json.loads(signs.encode(Signs(metrics=(LOSS,))))}}
    assert diagnose(of_document(without)).rule == "OWN.stopped"

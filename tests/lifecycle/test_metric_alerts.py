"""Metrics that the spec watches: one event for each metric, word and attempt; nothing else follows from them."""

from dataclasses import replace

import pytest

from supervisor.contract import signs
from supervisor.contract.signs import INF, NAN, SPIKE, OddMetric, Signs
from supervisor.domain.attempt import Pulse
from supervisor.domain.diagnosis.verdict import Retry
from supervisor.domain.policies import MetricRule, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.diagnosis.collecting import Collected, add_signs
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.living.beats import with_alerts
from supervisor.wording.stalls import odd_text
from tests.lifecycle.sample_runs import attempt, run_in

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
    again = replace(quiet, pulse=replace(run.pulse, signs=signs.encode(Signs(metrics=(replace(LOSS, step=1300),)))))
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
        trains(replace(LOSS, name="val/auc")),
        trains(JUMP, rules=(MetricRule("loss", nan="alert"),)),
        trains(replace(LOSS, kind=INF), rules=(MetricRule("loss", spike="alert"),)),
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
    add_signs(into, Signs(metrics=(LOSS, JUMP), nonfinite=("loss", "kl")))
    evidence = into.evidence()
    shown = {finding.rule: finding for finding in findings(evidence)}
    assert set(shown) == {"METRIC.nonfinite", "METRIC.spike"}
    assert {finding.retry for finding in shown.values()} == {Retry.NONE}
    assert "loss is NaN since step 1,240" in shown["METRIC.nonfinite"].sentence
    assert "kl was not finite" in shown["METRIC.nonfinite"].sentence
    assert diagnose(evidence).cause == diagnose(Collected().evidence()).cause

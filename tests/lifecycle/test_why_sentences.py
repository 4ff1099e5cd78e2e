"""The words of a verdict: what ended an attempt, how sure that is, and the true answer to "was it restarted?"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.diagnosis.evidence import Source
from supervisor.domain.diagnosis.verdict import Certainty, Quote, Retry, Verdict, Where
from supervisor.domain.run import Person, Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.wording import why
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, ended, run_in

OOM = Verdict(
    "U9.counter", Certainty.CERTAIN, Cause.HOST_OOM, Where.DATA, False, Retry.NEVER, "oom_kill 0 → 1",
    (Quote("oom.kills", "1", Source.AGENT), Quote("exit", "Killed\n<!channel>", Source.LOG, 3.0)),
)  # fmt: skip
NOTHING = Verdict("UNKNOWN", Certainty.HINT, None, Where.UNKNOWN, None, Retry.ONCE_IDENTICAL, "no rule explains it")


def told(
    status: Status,
    cause: Cause = Cause.HOST_OOM,
    retry: Retry | None = Retry.NEVER,
    run_cause: Cause | None = None,
    **fields: object,
) -> str:
    verdict = replace(NOTHING, retry=retry) if retry == Retry.ASK else None
    over = ended(cause, 60, number=3, verdict=verdict)
    run: Run = run_in(status, attempt=over, cause=run_cause or cause)
    return why.restart_text(replace(run, **fields), over, None, retry)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (Cause.HOST_OOM, "the same configuration would be killed again"),
        (Cause.USER_ERROR, "the same code would fail again"),
        (Cause.KILLED, "another attempt would end the same way"),
        (Cause.DEADLINE, "the run ended as deadline"),
    ],
)
def test_a_run_that_is_over_was_not_restarted_and_says_why(cause: Cause, reason: str) -> None:
    assert told(Status.FAILED, cause) == f"No: {reason}"


def test_a_run_that_ended_for_another_reason_names_that_one() -> None:
    """Broken variant: a run that a person had stopped "would be killed again"."""
    assert told(Status.STOPPED, stop=StopRequest("ops", NOW)) == "No: a stop was requested"
    assert told(Status.FAILED, run_cause=Cause.NO_PROGRESS) == "No: the run ended as no_progress"
    assert told(Status.FAILED, Cause.KILLED, Retry.FREE_SAME) == "No: the run reached its limit of such ends"
    assert told(Status.FAILED, Cause.USER_ERROR, Retry.ONCE_IDENTICAL) == "No: the same code would fail again"
    twice = told(Status.FAILED, Cause.USER_ERROR, Retry.ONCE_IDENTICAL, detail=f"exit 1 ({SAME_FAILURE})")
    assert twice == "No: the same exit, last line and step came twice"


def test_a_run_that_goes_on_says_what_it_waits_for() -> None:
    assert told(Status.RECOVERING, Cause.PREEMPTED, Retry.FREE_ELSEWHERE) == "Yes: the next attempt is being placed"
    assert told(Status.WAITING, Cause.PREEMPTED, None) == "Not yet: the run waits for a machine"
    asks = told(Status.WAITING, Cause.KILLED, Retry.ASK)
    assert asks.startswith("Not yet: the run needs you: It was killed again at the same checkpoint.")
    assert told(Status.WAITING, Cause.KILLED, Retry.ASK, Cause.NO_CAPACITY) == "Not yet: the run waits for a machine"
    assert told(Status.FAILED, Cause.KILLED, Retry.ASK) == "No: nobody answered in time"
    needs = told(Status.WAITING, Cause.ORPHANED, None, person=Person(why="free some space", since=NOW))
    assert needs == "Not yet: the run needs you: free some space"
    assert told(Status.COMPLETED, Cause.FINISHED, None) == ""
    assert told(Status.PENDING, generation=2).startswith("Not by itself: the run was resumed")


def test_what_followed_is_named() -> None:
    """Broken variant: the class of the verdict answered, and a restarted run "would be killed again"."""
    first, later = ended(Cause.HOST_OOM, 60, number=3), attempt(number=4, step_from=8120)
    run = run_in(Status.RUNNING, attempt=later)
    zone = later.placement.zone
    assert why.restart_text(run, first, later, Retry.NEVER) == f"Yes: as attempt 4 in {zone}, from step 8,120"
    resumed = replace(later, generation=2, step_from=None)
    expected = f"Not by itself: a person resumed the run as attempt 4 in {zone}"
    assert why.restart_text(run, first, resumed, Retry.NEVER) == expected


def test_the_headline_is_that_of_the_issue() -> None:
    text = why.headline("llm-a, attempt 3", "host_oom", "certain", told(Status.FAILED))
    assert text == (
        "llm-a, attempt 3, ended: host_oom (certain). Restarted? No: the same configuration would be killed again."
    )
    assert why.headline("a, attempt 1", "finished", "", "") == "a, attempt 1, ended: finished."


def test_files_have_no_run_so_the_question_is_what_would_follow() -> None:
    assert why.offline_headline("t.log", OOM) == (
        "t.log: host_oom (certain). Would it be restarted? No: the same configuration would be killed again."
    )
    killed = replace(OOM, cause=Cause.KILLED, certainty=Certainty.LIKELY, retry=Retry.FREE_SAME)
    assert why.offline_headline("t.log", killed) == (
        "t.log: killed (likely). Would it be restarted? Yes, at the same place; it counts as no failure."
    )
    assert why.offline_headline("t.log", NOTHING) == "t.log: no rule explains it."


def test_every_class_of_retry_has_words() -> None:
    for retry in Retry:
        text = why.offline_headline("x", replace(OOM, retry=retry))
        assert text.endswith(".")
        assert ".." not in text


def test_a_message_carries_the_rule_and_one_quote_on_one_line() -> None:
    assert why.announced_facts(OOM) == {"rule": "U9.counter", "certainty": "certain", "quote": "Killed <!channel>"}
    assert why.announced_facts(replace(OOM, quotes=OOM.quotes[:1]))["quote"] == "oom.kills: 1"
    assert why.announced_facts(replace(OOM, quotes=()))["quote"] == "oom_kill 0 → 1"
    assert why.announced_facts(NOTHING) == why.announced_facts(None) == {}


def test_the_events_of_an_end_carry_it_for_every_receiver() -> None:
    """Slack, Discord and programs read these facts; a limit of the run is not explained by the rule of its last end."""
    run = run_in(Status.RUNNING, attempt=attempt())
    facts = why.announced_facts(OOM)
    decision = end_attempt(run, End(Cause.HOST_OOM, "memory limit hit", verdict=OOM), WORLD, NOW)
    assert [event.kind for event in decision.events] == ["attempt_ended", "failed"]
    assert all(facts.items() <= dict(event.data).items() for event in decision.events)
    weary = replace(run, counters=replace(run.counters, user_failures=99, counted=99))
    killed = replace(OOM, cause=Cause.KILLED, certainty=Certainty.LIKELY)
    ended_, failed = end_attempt(weary, End(Cause.KILLED, "killed", verdict=killed), WORLD, NOW).events
    assert ended_.data["rule"] == "U9.counter"
    assert (failed.data["cause"], "rule" in failed.data) == ("limit_reached", False)

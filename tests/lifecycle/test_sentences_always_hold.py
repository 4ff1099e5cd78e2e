"""For every run the sentence is complete: not empty, no None, at most 400 characters, and it
ends in a full stop or in the dots of a cut."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract.beat_telemetry import Gpus, Telemetry, encode
from supervisor.contract.heartbeat import PHASES, Exit
from supervisor.domain.attempt import Attempt, Pulse, Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Placement
from supervisor.domain.policies import Limits, Policy
from supervisor.domain.run import Counters, Files, Money, Outcome, Person, Run, StopRequest, Waiting
from supervisor.domain.status import Status
from supervisor.wording import attempt as sentences_attempt
from supervisor.wording import figures
from supervisor.wording import run as sentences
from supervisor.wording.run import next_action, status_text
from tests.properties import examples, with_defaults

NOW = 1_763_726_400.0
# Words of platforms and programs: any length, line breaks, quotes, but not the word the test looks for.
words = st.text(alphabet=st.sampled_from("ab .\n\x00`'é…"), max_size=400)
names = st.text(alphabet="abz-0", min_size=1, max_size=80)
times = st.floats(NOW - 1e7, NOW + 1e5)
maybe_step = st.none() | st.integers(0, 10**15)
placements = st.builds(Placement, st.just("gce"), names, names, names, st.booleans())
exits = st.builds(
    with_defaults(Exit), st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), st.booleans(), last_line=words
)
tries = st.builds(
    Try, st.integers(1, 99), st.integers(1, 99), st.just("1.4.1"), names, placements, times,
    ended_at=st.none() | times, outcome=st.none() | st.sampled_from(Cause), detail=words,
)  # fmt: skip
attempts = st.builds(
    Attempt, st.integers(1, 99), st.just(1), st.just("1.4.1"), names, names, placements, times, times,
    price_usd_per_h=st.none() | st.floats(0, 99), up_at=st.none() | times, running_at=st.none() | times,
    training_at=st.none() | times, ended_at=st.none() | times, gone_at=st.none() | times,
    cause=st.none() | st.sampled_from(Cause), evidence=words,
    step_from=maybe_step, step_last=maybe_step, step_kept=maybe_step, exit=st.none() | exits,
)  # fmt: skip
pulses = st.builds(
    Pulse, st.sampled_from(["1.4.1", "1.3.1"]), st.integers(0, 9), st.sampled_from(PHASES), times, times,
    step=maybe_step, total=maybe_step, checkpoint_step=maybe_step, first_progress_at=st.none() | times,
    progress_at=st.none() | times, stall_polls=st.integers(0, 20), stall_counted_at=times,
    steps_per_s=st.none() | st.floats(-1, 1e6), message=words,
    telemetry=st.sampled_from(["", "{", encode(Telemetry(gpus=Gpus(util_pct=(3.0,))))]),
)  # fmt: skip
policies = st.builds(
    Policy, zones=st.lists(names, max_size=9).map(tuple), shapes=st.lists(names, max_size=2).map(tuple),
    spot=st.booleans(), limits=st.builds(Limits, wait_for_capacity_s=st.floats(0, 1e9)),
    on_success=st.sampled_from(["release", "keep", "ask"]),
)  # fmt: skip
retiring = st.builds(Retiring, attempts.map(lambda a: a.ref), st.just("1.4.1"), times, times, words)
outcomes = st.builds(
    Outcome, st.just("0"), st.integers(0, 9), st.integers(0, 10**15), times, maybe_step,
    st.lists(words, max_size=3).map(tuple),
)  # fmt: skip
runs = st.builds(
    Run, st.just(1), st.just("r" * 63), st.just("local"), st.just("c"), st.just("gce"), st.integers(1, 3),
    st.sampled_from(Status), policies, times, times, times, cause=st.none() | st.sampled_from(Cause), detail=words,
    hold=words, next_at=st.none() | times, try_=st.none() | tries, attempt=st.none() | attempts,
    pulse=st.none() | pulses, retiring=st.lists(retiring, max_size=2).map(tuple),
    counters=st.builds(Counters, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    reported=st.booleans(), waiting=st.builds(Waiting, st.none() | times),
    avoid_zone=st.just("") | names,
    stop=st.none() | st.builds(StopRequest, words, times, st.sampled_from(Cause), st.sampled_from(["api", "marker"])),
    files=st.builds(Files, maybe_step, outcome=st.none() | outcomes),
    person=st.builds(Person, words), kept_until=st.none() | times,
    money=st.builds(Money, st.floats(0, 1e6), st.floats(0, 1e6), st.booleans()),
)  # fmt: skip


def assert_whole(text: str) -> None:
    assert text
    assert "None" not in text
    assert "nan" not in text
    assert text.endswith((".", "…"))
    assert len(text) <= sentences.LENGTH_LIMIT
    assert text.isprintable()


@given(run=runs, live_age_s=st.none() | st.floats(0, 1e7))
@settings(max_examples=examples(100, 600), deadline=None)
def test_any_run_has_a_whole_sentence_and_a_next_action(run: Run, live_age_s: float | None):
    assert_whole(status_text(run, NOW, live_age_s))
    todo = next_action(run, NOW)
    assert todo.what
    assert "None" not in todo.what
    assert todo.at is None or math.isfinite(todo.at)


@given(run=runs)
@settings(max_examples=150, deadline=None)
def test_what_a_person_must_do_is_never_cut_off(run: Run):
    needy = replace(run, person=replace(run.person, why="x" * 130), hold="y" * 100)
    text = status_text(needy, NOW)
    assert ("x" * 130 in text) is not run.terminal
    assert ("y" * 100 in text) is not run.terminal


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("cause", [None, *Cause])
def test_every_status_with_every_cause(status: Status, cause: Cause | None):
    place = Placement("gce", "us-east1", "us-east1-c", "L4", True)
    over = Attempt(1, 1, "1.1.1", "m", "id", place, NOW - 60, NOW - 50, ended_at=NOW, cause=cause, evidence="e")
    for attempt in (None, over, replace(over, ended_at=None, cause=None)):
        run = Run(1, "digits-7", "local", "c", "gce", 1, status, Policy(), NOW, NOW, NOW, cause=cause, attempt=attempt)
        assert_whole(status_text(run, NOW))


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_its_own_phrase(cause: Cause):
    phrases = sentences_attempt.PHRASES
    assert phrases[cause]
    assert list(phrases.values()).count(phrases[cause]) == 1


def test_a_sentence_that_puts_none_for_a_missing_figure_is_found(monkeypatch: pytest.MonkeyPatch):
    """Broken variant: an unknown step is shown as it is."""
    monkeypatch.setattr(sentences, "step_text", lambda step: f"step {step}")
    place = Placement("gce", "us-east1", "us-east1-c", "L4", True)
    live = Attempt(1, 1, "1.1.1", "m", "id", place, NOW, NOW)
    pulse = Pulse("1.1.1", 1, "checkpoint", NOW, NOW)
    run = Run(1, "digits-7", "local", "c", "gce", 1, Status.RUNNING, Policy(), NOW, NOW, NOW, attempt=live, pulse=pulse)
    with pytest.raises(AssertionError):
        assert_whole(status_text(run, NOW))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (-5, "0 s"), (8.9, "8 s"), (60, "1 min"), (200, "3 min 20 s"), (2525, "42 min"), (3600, "1 h"),
        (3720, "1 h 02 min"), (8040, "2 h 14 min"), (86400, "24 h"), (273600, "3 d 4 h"), (math.inf, "0 s"),
    ],
)  # fmt: skip
def test_ages_have_two_units_at_most(seconds: float, text: str):
    assert figures.age_text(seconds) == text


def test_money_sizes_rates_and_clocks_carry_their_units():
    assert [figures.money_text(usd) for usd in (0, 0.001, 6.12, 1204.1)] == ["$0.00", "<$0.01", "$6.12", "$1,204.10"]
    assert [figures.money_text(usd) for usd in (-0.001, -0.2, -1204.1)] == ["$0.00", "-$0.20", "-$1,204.10"], "credits"
    assert [figures.size_text(size) for size in (0, 999, 4_100_000_000, 412_000_000)] == [
        "0 B",
        "999 B",
        "4.1 GB",
        "412 MB",
    ]
    assert [figures.rate_text(rate) for rate in (3.1, 0.025)] == ["3.1 steps/s", "40 s per step"]
    assert figures.clock_text(NOW, NOW) == "12:00 UTC"
    assert figures.clock_text(NOW + 90000, NOW) == "2025-11-22 13:00 UTC"
    assert figures.clock_text(NOW + 13 * 3600, NOW) == "2025-11-22 01:00 UTC"
    assert figures.clock_text(1e300, NOW) == "an unknown time"
    assert [figures.plural(n, w) for n, w in ((1, "try"), (6, "try"), (3, "file"))] == ["1 try", "6 tries", "3 files"]


def test_a_thing_due_in_less_than_a_second_is_not_due_in_zero_seconds():
    assert figures.until_text(NOW + 0.2, NOW) == "1 s"

"""The clock matrix: every kind of limit and backoff x every step of the supervisor's wall clock, in virtual time.

One stage has a run for each kind. After ten minutes the wall clock steps; five minutes and an hour later every run must
be in the state that it would have without the step. Only limits in wall time follow a step that stays: a deadline at
once, the others when the new time is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.scenarios.expectations import unmet
from tests.scenarios.play import history, play_lines
from tests.scenarios.script import line_of
from tests.scenarios.stage import Settings, Stage

STEPS = ("+3s", "-3s", "+1h", "-1h", "+1d", "-1d")
ALL = ("none", *STEPS, *(f"spike {step}" for step in STEPS))
DAY_AHEAD = frozenset({"+1d"})  # it stays
DAY_SHOWN = frozenset({"+1d", "spike +1d"})


@dataclass(frozen=True)
class Kind:
    """`before`: verbs at the start; `at_step`: verbs just before the step. `soon`, `later`: expected 5 min and 65 min
    after it. `moved`: expected instead, soon and later, after the steps in `follows`."""

    name: str
    before: str
    soon: str
    later: str
    at_step: str = ""
    follows: frozenset[str] = field(default_factory=frozenset)
    moved: tuple[str, str] = ("", "")

    def expected(self, step: str) -> tuple[str, str]:
        return self.moved if step in self.follows else (self.soon, self.later)


RUNS = "status=running attempts=1"
FAILED = "status=failed cause="
KINDS = (
    Kind("silence of a healthy agent", "submit healthy zones=a,b push=no steps=90000", RUNS, RUNS),
    Kind("silence", "submit silent zones=a,b push=no steps=90000", "attempts<=2", "causes=agent_lost attempts=2",
         at_step="agent silent silent"),
    Kind("stall", "submit hung zones=a,b steps=90000 polls=40", RUNS, "causes=stalled",
         at_step="agent hung hung"),
    Kind("a phase's limit", "submit saves zones=a,b steps=90000", RUNS, "causes~stalled",
         at_step="agent saves phase checkpoint"),
    Kind("boot limit, not passed", "submit boots zones=a,b boot=21min steps=90000", "status=launching attempts=1",
         RUNS),
    Kind("boot limit, passed", "submit never zones=a,b starts=no", "status=launching attempts=1",
         "causes~boot_timeout"),
    Kind("training time", "submit runtime zones=a,b steps=90000 max_runtime=1h", RUNS, FAILED + "max_runtime"),
    Kind("training time, not used up", "submit longer zones=a,b push=no steps=90000 max_runtime=90min", RUNS,
         RUNS),
    Kind("budget", "submit budget zones=a,b steps=90000 budget_usd=0.1", RUNS, FAILED + "budget"),
    Kind("budget, not used up", "submit richer zones=a,b steps=90000 budget_usd=0.15", RUNS,
         RUNS + " cost_usd>=0.11 cost_usd<=0.13"),
    Kind("budget of a boot", "submit bootcost zones=a,b boot=21min steps=90000 budget_usd=0.15",
         "status=launching attempts=1", RUNS + " cost_usd>=0.11 cost_usd<=0.13"),
    Kind("budget of a silent boot", "submit mute zones=a,b boot=21min push=no steps=90000 budget_usd=0.19",
         "status=launching attempts=1", RUNS + " cost_usd>=0.10 cost_usd<=0.17"),
    Kind("deadline", "submit due zones=a,b steps=90000 deadline=4h", RUNS, RUNS,
         follows=DAY_SHOWN, moved=(FAILED + "deadline", FAILED + "deadline")),
    Kind("wait for capacity", "cloud stockout w\nsubmit waits zones=w wait_limit=5h", "status=waiting",
         "status=waiting", follows=DAY_AHEAD, moved=(FAILED + "no_capacity", FAILED + "no_capacity")),
    Kind("cool-down", "cloud stockout c\nsubmit cools zones=c steps=90000 wait_limit=3d", "status!=failed", RUNS,
         at_step="cloud capacity c"),
    Kind("recovery backoff", "submit fails zones=a,b checkpoint=50 steps=90000", "status=running attempts=2",
         "status=running attempts=2", at_step='agent fails exits "1:boom"\nplan fails exits=no'),
    Kind("stop grace", "submit stops zones=a,b grace=8min save=30min steps=90000", "status=stopping",
         "status=stopped", at_step="stop stops"),
    Kind("a machine that is kept", "submit keeps zones=a,b steps=60 on_success=keep keep=40min after=stays",
         "status=completed machines=1", "status=completed machines=0",
         follows=DAY_AHEAD | {"+1h"}, moved=("machines=0", "machines=0")),
    Kind("a machine that waits for approval", "submit asks zones=a,b steps=60 on_success=ask after=stays",
         "status=awaiting_teardown machines=1", "status=awaiting_teardown machines=1",
         follows=DAY_AHEAD, moved=("status=completed machines=0", "status=completed machines=0")),
    Kind("results that a person must accept", "submit unverified zones=a,b steps=60 uploads=no",
         "status=finishing needs_person~403 machines=1", "status=finishing machines=1",
         follows=DAY_AHEAD, moved=(FAILED + "results_unverified", FAILED + "results_unverified")),
)  # fmt: skip


def step_clock(stage: Stage, step: str) -> None:
    """Four ticks see a spike, which is over after three seconds."""
    by = step.rpartition(" ")[2]
    if step == "none":
        return
    play_lines(stage, f"clock {by}\nsupervisor ticks")
    if step.startswith("spike"):
        play_lines(stage, "wait 1s\nsupervisor ticks\nwait 1s\nsupervisor ticks\nwait 1s\nsupervisor ticks")
        play_lines(stage, f"clock {'-' if by[0] == '+' else '+'}{by[1:]}\nsupervisor ticks")


def problems(folder: Path, step: str, kinds: tuple[Kind, ...] = KINDS) -> list[str]:
    """Every kind that is not in its expected state, one line each."""
    stage, wrong_kinds = Stage(folder, Settings(zones=("a", "b", "c", "w"))), []
    try:
        for kind in kinds:
            play_lines(stage, kind.before)
        stage.run_for(600.0)
        for kind in kinds:
            play_lines(stage, kind.at_step)
        step_clock(stage, step)
        for when, wait_s in enumerate((300.0, 3600.0)):
            stage.run_for(wait_s)
            wrong_kinds += [
                f"{kind.name}, {('5 min', '65 min')[when]} after {step}: {'; '.join(wrong)}"
                for kind in kinds
                if (wrong := _unmet(stage, kind.before, kind.expected(step)[when]))
            ]
        assert stage.faults.seen == []
        return [*wrong_kinds, history(stage)] if wrong_kinds else []
    finally:
        stage.close()


def _unmet(stage: Stage, before: str, expected: str) -> list[str]:
    line = line_of(1, f"expect {before.partition('submit ')[2].partition(' ')[0]} {expected}")
    assert line is not None
    return unmet(stage, line)


@pytest.mark.parametrize("step", ALL)
def test_no_limit_and_no_backoff_follows_a_step_of_the_wall_clock(folder: Path, step: str) -> None:
    assert problems(folder, step) == []


def kinds_of(*names: str) -> tuple[Kind, ...]:
    kinds = tuple(kind for kind in KINDS if kind.name in names)
    assert len(kinds) == len(names)
    return kinds


class CredulousClock:
    """Broken: every step is accepted at once."""

    def __init__(self, clock: FakeClock, _poll_interval_s: float) -> None:
        self.now, self.wall, self.monotonic = clock.now, clock.wall, clock.monotonic


BROKEN: dict[str, tuple[str, object, str, str]] = {
    "a clock that accepts every step": (
        "tests.scenarios.stage.SteadyClock", CredulousClock, "spike +1d", "a machine that is kept"),
    "our own clock counts the training": (
        "supervisor.lifecycle.living.beats.with_agent_clock", lambda attempt, *_: attempt, "+1h",
        "training time, not used up"),
    "the tick after the step counts it": (
        "supervisor.lifecycle.living.limits._counted_until", lambda _run, _world, now: now, "+1d",
        "training time, not used up"),
    "a boot of any length is accepted": (
        "supervisor.lifecycle.living.beats.TOLERANCE_S", 1e9, "+1h", "budget of a silent boot"),
    "a time ahead of now is kept": (
        "supervisor.lifecycle.decide.righted", lambda run, *_: run, "-1h", "a machine that is kept"),
    "limits go on after a step": (
        "supervisor.reconciler.observing.observe.Freshness.check_clocks", lambda *_: False, "+1h", "a phase's limit"),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_the_matrix_can_fail(folder: Path, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, variant, step, kind = BROKEN[broken]
    monkeypatch.setattr(rule, variant)
    assert problems(folder, step, kinds_of(kind)) != []

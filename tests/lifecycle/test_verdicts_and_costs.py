"""The word of a verdict and what follows agree, for every rule of the table that acts; the exceptions are listed here.

Each rule is played in four situations: as the first end of its kind, with a newer checkpoint, where no repair helped,
and again after everything that is tried once was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from supervisor.domain.causes import Cause, Kind, rule_for
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.diagnosis.rule import Rule
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.retrying import ONCE, conditions
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, pulse, run_in

FIRST, NEWER, UNREPAIRED, AGAIN = "first", "newer", "unrepaired", "again"
SITUATIONS = (FIRST, NEWER, UNREPAIRED, AGAIN)
ACTING = [rule for rule in RULES if rule.certainty != Certainty.HINT and rule.cause is not None]

# retry class -> (kind of the row, does it leave the zone?)
FOLLOWS: dict[Retry, set[tuple[Kind, bool]]] = {
    Retry.FREE_ELSEWHERE: {(Kind.FREE, True), (Kind.PACED, True)},
    Retry.FREE_SAME: {(Kind.FREE, False)},
    Retry.ONCE_AFTER_REPAIR: {(Kind.PAID, False)},
    Retry.ONCE_IDENTICAL: {(Kind.PAID, False), (Kind.INFRA, True), (Kind.USER, False)},
    Retry.NEVER: {(Kind.FINAL, False)},
    Retry.ASK: {(Kind.ASK, False)},
    Retry.NONE: {(Kind.FINAL, False)},
}
GOES_ON = {Kind.FREE, Kind.PACED, Kind.INFRA, Kind.PAID, Kind.USER}


@dataclass(frozen=True)
class Agreed:
    """`applies`: to which rules; `when`: in which situations; `kind`: what follows instead."""

    why: str
    applies: Callable[[Rule], bool]
    when: tuple[str, ...]
    kind: Kind


def of_cause(*causes: Cause) -> Callable[[Rule], bool]:
    return lambda rule: rule.cause in causes


EXCEPTIONS = (
    Agreed(
        "a limit of time is free only with a newer checkpoint: without one it would meet the same limit for ever",
        of_cause(Cause.EXPIRED, Cause.TIME_LIMIT), (FIRST, UNREPAIRED, AGAIN), Kind.PAID,
    ),
    Agreed(
        "a certain signal is free once for each newest checkpoint, then a person is asked",
        lambda rule: rule.cause == Cause.KILLED and rule.retry == Retry.FREE_SAME and rule.certainty == "certain",
        (AGAIN,), Kind.ASK,
    ),
    Agreed(
        "a likely signal is free once too, and asks nobody: it may have been the kernel's",
        lambda rule: rule.cause == Cause.KILLED and rule.retry == Retry.FREE_SAME and rule.certainty == "likely",
        (AGAIN,), Kind.PAID,
    ),
    Agreed(
        "once after a repair, else ask", of_cause(Cause.DISK_FULL), (UNREPAIRED, AGAIN), Kind.ASK,
    ),
    Agreed(
        "what was delivered again once is not delivered a third time",
        lambda rule: (rule.cause, rule.retry) == (Cause.LAUNCH_REJECTED, Retry.ONCE_AFTER_REPAIR), (AGAIN,), Kind.FINAL,
    ),
    Agreed(
        "never here, and once elsewhere: another machine may have another driver",
        lambda rule: rule.id == "U28.start", (FIRST, NEWER, UNREPAIRED), Kind.FREE,
    ),
    Agreed(
        "what may be over later ends no run that has got further: the identical spec is repeated once",
        lambda rule: rule.may_pass, (NEWER,), Kind.USER,
    ),
    Agreed(
        "an unknown error of the command is repeated only where the attempt got further",
        lambda rule: rule.id == "CODE.exit", (FIRST, UNREPAIRED, AGAIN), Kind.FINAL,
    ),
    Agreed(
        "the person was asked while the run was finishing; this end is what followed",
        lambda rule: rule.id == "U33.unverified", SITUATIONS, Kind.FINAL,
    ),
)  # fmt: skip


def run_before(situation: str) -> Run:
    saved = pulse(checkpoint_step=300 if situation == NEWER else None)
    live = attempt(step_from=100, running_at=NOW - 900)
    run = run_in(Status.RUNNING, attempt=live, pulse=saved)
    files = replace(run.files, checkpoint_step=100)
    used = tuple(condition + at for condition in sorted(ONCE) for at in ("", " @100"))
    return replace(run, files=files, once=used if situation == AGAIN else ())


def verdict_of(rule: Rule) -> Verdict:
    return Verdict(rule.id, rule.certainty, rule.cause, rule.where, rule.can_go_on, rule.retry, "it ended")


def followed(rule: Rule, situation: str) -> tuple[Kind, bool]:
    """(kind, does it leave the zone?) by the table of causes; what the end itself does is the same."""
    assert rule.cause is not None
    run, freed = run_before(situation), situation in (FIRST, NEWER, AGAIN)
    step = 300 if situation == NEWER else 100
    holds = conditions(run, verdict_of(rule), step, WORLD, NOW, freed=freed)
    row = rule_for(rule.cause, situation == NEWER, False, holds)
    end = End(rule.cause, "it ended", verdict=verdict_of(rule), repaired=(1, int(freed)))
    after = end_attempt(run, end, WORLD, NOW)
    expected = Status.WAITING if row.kind == Kind.ASK else Status.RECOVERING if row.kind in GOES_ON else Status.FAILED
    assert after.run.status == expected, rule.id
    return row.kind, row.avoid_zone


def exception_for(rule: Rule, situation: str) -> Agreed | None:
    [*of_rule] = [each for each in EXCEPTIONS if each.applies(rule) and situation in each.when]
    assert len(of_rule) <= 1, (rule.id, [each.why for each in of_rule])
    return of_rule[0] if of_rule else None


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_verdict_says_what_follows(situation: str) -> None:
    wrong = {}
    for rule in ACTING:
        kind, leaves = followed(rule, situation)
        exception = exception_for(rule, situation)
        agrees = (kind, leaves) in FOLLOWS[rule.retry] if exception is None else kind == exception.kind
        if not agrees:
            wrong[rule.id] = (str(rule.retry), str(kind), leaves)
    assert not wrong


def test_each_exception_is_needed() -> None:
    for exception in EXCEPTIONS:
        for situation in exception.when:
            rules = [rule for rule in ACTING if exception.applies(rule)]
            assert rules, exception.why
            assert all(followed(rule, situation) not in FOLLOWS[rule.retry] for rule in rules), exception.why


def test_a_hint_names_no_cause_so_it_can_ask_and_end_nothing() -> None:
    assert all(rule.cause is None for rule in (*RULES, *LIVING) if rule.certainty == Certainty.HINT)


def test_a_third_boot_that_hangs_ends_the_tour_of_the_zones() -> None:
    run, end = run_before(FIRST), End(Cause.BOOT_TIMEOUT, "no beat after its claim within 1500 s")
    for zone in ("us-east1-d", "us-east1-c"):
        after = end_attempt(run, end, WORLD, NOW).run
        assert (after.status, after.counters.counted, after.avoid_zone, after.next_at) == (
            Status.RECOVERING, 0, run.attempt.placement.zone if run.attempt else "", NOW,
        )  # fmt: skip
        run = replace(after, status=Status.LAUNCHING, attempt=attempt(zone=zone), pulse=None)
    over = end_attempt(run, end, WORLD, NOW).run
    assert (over.status, over.cause) == (Status.FAILED, Cause.NO_PROGRESS)
    newer = replace(run, files=replace(run.files, checkpoint_step=300))
    assert end_attempt(newer, end, WORLD, NOW).run.status == Status.RECOVERING


def test_a_driver_that_does_not_fit_is_tried_on_one_other_machine() -> None:
    """Broken variant: it made a free tour of all zones, and each had the same driver."""
    message = "CUDA does not start: cuInit says 803 (driver and CUDA library do not fit); driver 535.161.07, CUDA 12.2"
    [rule] = [rule for rule in RULES if rule.id == "U28.start"]
    end = End(Cause.GPU_UNAVAILABLE, message, verdict=verdict_of(rule))
    first = end_attempt(run_before(FIRST), end, WORLD, NOW).run
    assert (first.status, first.counters.counted) == (Status.RECOVERING, 0)
    assert [item.zone for item in first.refusals] == ["us-east1-d"]
    again = replace(first, status=Status.LAUNCHING, attempt=attempt(zone="us-east1-c"))
    second = end_attempt(again, end, WORLD, NOW).run
    assert (second.status, second.cause) == (Status.FAILED, Cause.GPU_UNAVAILABLE)

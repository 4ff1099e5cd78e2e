"""The judges take no ignorance for health, read every fact, and each limit in them is held by a planted violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from supervisor.domain.gates.verdicts import State, Verdict, may_go_on
from supervisor.lifecycle.gates import access, audit, judging, launch, monitor, rules, teardown
from supervisor.lifecycle.gates.judging import Facts, judge
from supervisor.lifecycle.gates.rules import Skip
from tests.gates.setups import NOW, box, but
from tests.gates.test_healthy_setups import SETUPS, passages
from tests.gates.test_planted_violations import ALL

PARTS = ("audit", "access", "smoke", "launch", "monitor", "results", "teardown")
FACTS = [(part, field.name) for part in PARTS for field in fields(getattr(box(), part))]
NOT_READ_BY_RULES = {("results", "accepted_loss")}


def by_check(facts: Facts) -> dict[str, Verdict]:
    return {verdict.check: verdict for verdict in judge(facts)}


@pytest.mark.parametrize(("part", "name"), [fact for fact in FACTS if fact not in NOT_READ_BY_RULES])
def test_an_unread_fact_makes_its_checks_unknown_and_no_other_check_worse_or_better(part: str, name: str) -> None:
    before, after = by_check(box()), by_check(but(box(), **{part: {name: None}}))
    changed = {check for check in before if before[check] != after[check]}
    assert changed, "no check reads this fact"
    assert {after[check].state for check in changed} == {State.UNKNOWN}
    assert all(after[check].fact.startswith("could not be read: ") for check in changed)
    assert all(after[check].fix for check in changed)


@pytest.mark.parametrize(("part", "name"), [fact for fact in FACTS if fact not in NOT_READ_BY_RULES])
def test_a_skipped_fact_passes_its_checks_and_says_why(part: str, name: str) -> None:
    before, after = by_check(box()), by_check(but(box(), **{part: {name: Skip("it is a test")}}))
    changed = {check for check in before if before[check] != after[check]}
    assert changed
    assert {(after[check].state, after[check].fact) for check in changed} == {(State.PASS, "not needed: it is a test")}


def test_nothing_read_is_all_unknown_and_opens_no_strict_gate() -> None:
    nothing = Facts(run="digits-7", provider="lab", at=NOW)
    assert {verdict.state for verdict in judge(nothing)} == {State.UNKNOWN}
    assert [passage.gate for passage in passages(nothing) if passage.go] == ["G0", "G1", "G2", "G3", "G4"]


def test_the_verdict_has_the_time_and_the_reader() -> None:
    facts = replace(box(), by="gpu1", at=NOW - 5)
    assert {(verdict.at, verdict.by) for verdict in judge(facts)} == {(NOW - 5, "gpu1")}


# --- broken variants --------------------------------------------------------------------------------------------------


def story_holds(story: str) -> bool:
    """As tests/gates/test_planted_violations asks for it."""
    item = ALL[story]
    verdicts = judge(box(**item.parts))
    bad = [verdict for verdict in verdicts if verdict.state != State.PASS]
    return [(verdict.check, verdict.code) for verdict in bad] == [(item.check, item.code)]


def everything_holds() -> bool:
    healthy = all(
        not passage.stopped_by and not passage.warned for facts in SETUPS.values() for passage in passages(facts)
    )
    return healthy and all(map(story_holds, ALL))


LIMITS: list[tuple[Any, str, float]] = [
    (audit, "SPACE_FACTOR", 2), (audit, "SPACE_FACTOR", 4), (audit, "INODES_MAX_PCT", 95.0),
    (audit, "INODES_MAX_PCT", 80.0), (audit, "NOTICE_MARGIN_S", -200.0), (audit, "NOTICE_MARGIN_S", 61.0),
    (audit, "CHECKPOINTS_MIN", 2), (audit, "CHECKPOINTS_MIN", 4), (access, "LOGIN_MAX_S", 30.0),
    (access, "NOTICED_MAX_S", 20.0), (access, "SPEED_MIN_BYTES", 100_000), (launch, "FIRST_SIGN_S", 90.0),
    (launch, "FIRST_SIGN_S", 30.0), (monitor, "LONG_RUN_S", 1e6), (monitor, "LONG_RUN_S", 60.0),
    (monitor, "READ_MAX_S", 60.0), (monitor, "USED_MAX_PCT", 95.0), (monitor, "EXPECTED_MIN_PCT", 5.0),
    (monitor, "PATROLS_MISSED", 10),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "value"), LIMITS)
def test_another_limit_is_caught(module: Any, name: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert everything_holds()
    monkeypatch.setattr(module, name, value)
    assert not everything_holds()


def an_unread_value_is_health(patch: pytest.MonkeyPatch) -> None:
    real = rules.verdict

    def hopeful(check_id: str, rule: rules.Rule, facts: object, reader: rules.Reader) -> Verdict:
        verdict = real(check_id, rule, facts, reader)
        return replace(verdict, state=State.PASS) if verdict.state == State.UNKNOWN else verdict

    patch.setattr(judging, "verdict", hopeful)


def an_accepted_loss_passes_the_teardown_too(patch: pytest.MonkeyPatch) -> None:
    real = judging.judge

    def generous(facts: Facts, *gates: Any) -> tuple[Verdict, ...]:
        return tuple(teardown.give_up(verdict, facts.results.accepted_loss) for verdict in real(facts, *gates))

    patch.setattr("tests.gates.test_judging.judge", generous)


def nothing_read_opens_nothing() -> None:
    nothing = Facts(run="digits-7", provider="lab", at=NOW)
    assert not may_go_on(judging.Gate.VERIFY, judge(nothing), (), NOW).go


def a_loss_leaves_the_bill_open() -> None:
    lost = box(results={"verified": 0, "accepted_loss": "given up by ada: a test"}, teardown={"gone_at": None})
    assert may_go_on(judging.Gate.VERIFY, judge(lost), (), NOW).go
    assert not may_go_on(judging.Gate.TEARDOWN, judge(lost), (), NOW).go


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], None]] = {
    an_unread_value_is_health: nothing_read_opens_nothing,
    an_accepted_loss_passes_the_teardown_too: a_loss_leaves_the_bill_open,
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda item: item.__name__)
def test_a_broken_judge_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    BROKEN[broken]()
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        BROKEN[broken]()

"""From verdicts to "may go on": ages, waivers, ignorance and order; and broken variants that the properties catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.domain.gates import verdicts as module
from supervisor.domain.gates.checks import CHECKS, STRICT, Gate, checks_of
from supervisor.domain.gates.verdicts import Key, State, Verdict, Waiver, is_young, may_be_waived, may_go_on, to_ask
from supervisor.lifecycle.gates.judging import judge
from tests.gates.setups import NOW, box
from tests.properties import examples

GOOD = {verdict.check: verdict for verdict in judge(box())}
KEY = Key("gpu1", "sha256:12", "c0de", "5bec")


def with_one(check: str, state: State, at: float = NOW) -> list[Verdict]:
    return [replace(item, state=state, at=at) if item.check == check else item for item in GOOD.values()]


def waiver(check: str) -> Waiver:
    return Waiver(check, "a known trap of this box", "ada", NOW)


# --- by example -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", Gate)
def test_a_fail_stops(gate: Gate) -> None:
    check = checks_of(gate)[0].id
    passage = may_go_on(gate, with_one(check, State.FAIL), (), NOW)
    assert not passage.go
    assert [verdict.check for verdict in passage.stopped_by] == [check]


@pytest.mark.parametrize("gate", Gate)
def test_unknown_is_never_a_pass_and_holds_the_last_two_gates(gate: Gate) -> None:
    for check in checks_of(gate):
        passage = may_go_on(gate, with_one(check.id, State.UNKNOWN), (), NOW)
        assert passage.go == (gate not in STRICT)
        assert [verdict.check for verdict in (*passage.unread, *passage.stopped_by)] == [check.id]


@pytest.mark.parametrize("gate", Gate)
def test_a_waiver_covers_its_check_and_nothing_in_the_last_two_gates(gate: Gate) -> None:
    for check in checks_of(gate):
        passage = may_go_on(gate, with_one(check.id, State.FAIL), [waiver(check.id)], NOW)
        assert passage.go == (gate not in STRICT) == may_be_waived(check)
        assert [verdict.check for verdict in passage.waived] == ([check.id] if gate not in STRICT else [])


def test_a_waived_warning_is_not_shown_as_a_warning() -> None:
    passage = may_go_on(Gate.AUDIT, with_one("notice", State.WARN), [waiver("notice")], NOW)
    assert (passage.go, passage.warned, [verdict.check for verdict in passage.waived]) == (True, (), ["notice"])


def test_a_waiver_does_not_stand_for_a_reading() -> None:
    missing = [verdict for verdict in GOOD.values() if verdict.check != "inodes"]
    assert may_go_on(Gate.AUDIT, missing, [waiver("inodes")], NOW).to_ask == ("inodes",)


def test_an_accepted_loss_passes_the_results_as_a_warning_and_leaves_the_bill_open() -> None:
    lost = box(results={"verified": 3, "copies": None, "accepted_loss": "given up by ada: it was a test"})
    verdicts = judge(lost)
    verify = may_go_on(Gate.VERIFY, verdicts, (), NOW)
    assert verify.go
    assert {item.check: item.fact for item in verify.warned} == {
        "all_verified": "3 of 12 files are verified; given up by ada: it was a test",
        "copy_elsewhere": "could not be read: the copies of the results off the machine; "
        "given up by ada: it was a test",
    }
    billed = judge(box(results={"accepted_loss": "given up by ada: it was a test"}, teardown={"gone_at": None}))
    assert not may_go_on(Gate.TEARDOWN, billed, (), NOW).go


def test_an_old_verdict_is_asked_again_and_a_young_one_is_reused() -> None:
    kept = {KEY: tuple(GOOD.values())}
    asked = {check.id for gate in Gate for check in to_ask(gate, kept, KEY, NOW + 59)}
    assert asked == set()
    later = {check.id for check in to_ask(Gate.AUDIT, kept, KEY, NOW + 61)}
    assert later == {"gpus", "known_to_fail", "place_quarantined"}
    next_day = {check.id for gate in Gate for check in to_ask(gate, kept, KEY, NOW + 86_400)}
    assert {"disk_bytes", "inodes", "host_key"} <= next_day
    assert not {"checkpoint_tier", "smoke", "resumes", "approved", "meter_stopped"} & next_day


@pytest.mark.parametrize("field", ["machine", "image", "code", "spec"])
def test_another_machine_image_code_or_spec_asks_every_check(field: str) -> None:
    kept = {KEY: tuple(GOOD.values())}
    other = replace(KEY, **{field: "other"})
    assert [check.id for gate in Gate for check in to_ask(gate, kept, other, NOW)] == list(CHECKS)


def test_a_failed_reading_forgets_no_fail() -> None:
    readings = [*with_one("disk_bytes", State.FAIL, NOW - 100), replace(GOOD["disk_bytes"], state=State.UNKNOWN)]
    assert not may_go_on(Gate.AUDIT, readings, (), NOW).go
    assert may_go_on(Gate.AUDIT, [*readings, replace(GOOD["disk_bytes"], at=NOW + 1)], (), NOW + 1).go


def test_a_clock_that_was_set_back_ages_nothing() -> None:
    assert is_young(replace(GOOD["gpus"], at=NOW + 500), NOW)


# --- properties -------------------------------------------------------------------------------------------------------

STATES = st.sampled_from(State)
VERDICTS = st.lists(
    st.builds(
        Verdict, st.sampled_from(sorted(CHECKS)), STATES, st.sampled_from(["a", "b"]), st.just(""),
        st.integers(0, 5).map(lambda age: NOW - 30.0 * age), st.just("probe"),
    ),
    max_size=12,
)  # fmt: skip
WAIVERS = st.lists(st.sampled_from(sorted(CHECKS)).map(waiver), max_size=4)


def permission(verdicts: list[Verdict], waivers: list[Waiver]) -> set[Gate]:
    """The gates that these verdicts open, where everything else was good a long time ago."""
    base = [replace(item, at=NOW - 200.0) for item in GOOD.values() if CHECKS[item.check].young_s > 200]
    named = {item.check for item in verdicts}
    base += [item for item in GOOD.values() if CHECKS[item.check].young_s <= 200 and item.check not in named]
    return {gate for gate in Gate if may_go_on(gate, [*base, *verdicts], waivers, NOW).go}


def ignorance_adds_no_permission(verdicts: list[Verdict], waivers: list[Waiver], seed: int) -> None:
    for index, item in enumerate(verdicts):
        if item.state == State.PASS:
            unread = [*verdicts[:index], replace(item, state=State.UNKNOWN), *verdicts[index + 1 :]]
            assert permission(unread, waivers) <= permission(verdicts, waivers)


def ignorance_opens_no_strict_gate(verdicts: list[Verdict], waivers: list[Waiver], seed: int) -> None:
    for index, item in enumerate(verdicts):
        unread = [*verdicts[:index], replace(item, state=State.UNKNOWN), *verdicts[index + 1 :]]
        assert permission(unread, waivers) & STRICT <= permission(verdicts, waivers) & STRICT


def a_waiver_for_another_check_changes_nothing(verdicts: list[Verdict], waivers: list[Waiver], seed: int) -> None:
    for gate in Gate:
        here = [item for item in waivers if CHECKS[item.check].gate == gate]
        assert may_go_on(gate, verdicts, waivers, NOW) == may_go_on(gate, verdicts, here, NOW)
        if gate in STRICT:
            assert may_go_on(gate, verdicts, waivers, NOW) == may_go_on(gate, verdicts, (), NOW)
        fails = {item.check for item in may_go_on(gate, verdicts, (), NOW).stopped_by}
        others = [item for item in waivers if item.check not in fails]
        assert may_go_on(gate, verdicts, others, NOW).go == may_go_on(gate, verdicts, (), NOW).go


def order_does_not_matter(verdicts: list[Verdict], waivers: list[Waiver], seed: int) -> None:
    shuffled = sorted(verdicts, key=lambda item: hash((item, seed)))
    for gate in Gate:
        one, other = (may_go_on(gate, items, waivers, NOW) for items in (verdicts, shuffled))
        assert one == other
        assert may_go_on(gate, [*verdicts, *verdicts], waivers, NOW) == one


Property = Callable[[list[Verdict], list[Waiver], int], None]
PROPERTIES: tuple[Property, ...] = (
    ignorance_adds_no_permission,
    ignorance_opens_no_strict_gate,
    a_waiver_for_another_check_changes_nothing,
    order_does_not_matter,
)


def holds(property_: Property, count: int, *phases: Phase) -> None:
    @settings(max_examples=count, database=None, derandomize=True, report_multiple_bugs=False, phases=phases)
    @given(VERDICTS, WAIVERS, st.integers(0, 9))
    def check(verdicts: list[Verdict], waivers: list[Waiver], seed: int) -> None:
        property_(verdicts, waivers, seed)

    check()


@pytest.mark.parametrize("property_", PROPERTIES, ids=lambda item: item.__name__)
def test_the_property_holds(property_: Property) -> None:
    holds(property_, examples(150, 3000), Phase.generate, Phase.shrink)


def a_failed_reading_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The pass before an unread one goes on to count."""
    real = module.standing
    patch.setattr(module, "standing", lambda items, now: real([v for v in items if v.state != State.UNKNOWN], now))


def a_failed_reading_replaces_a_fail(patch: pytest.MonkeyPatch) -> None:
    def newest(items: list[Verdict], now: float) -> dict[str, Verdict]:
        return {item.check: item for item in sorted(items, key=module._rank) if is_young(item, now)}

    patch.setattr(module, "standing", newest)


def ignorance_excuses_a_check(patch: pytest.MonkeyPatch) -> None:
    """A check with an unread value is left out, with the fail that another reading saw."""
    real = module.standing

    def excused(items: list[Verdict], now: float) -> dict[str, Verdict]:
        unread = {item.check for item in items if item.state == State.UNKNOWN}
        return {name: GOOD[name] if name in unread else item for name, item in real(items, now).items()}

    patch.setattr(module, "standing", excused)


def unknown_does_not_hold_the_last_gates(patch: pytest.MonkeyPatch) -> None:
    real = module.may_go_on

    def lenient(gate: Gate, items: list[Verdict], waivers: list[Waiver], now: float) -> module.Passage:
        passage = real(gate, items, waivers, now)
        return replace(passage, stopped_by=tuple(v for v in passage.stopped_by if v.state == State.FAIL))

    patch.setattr("tests.gates.test_verdicts.may_go_on", lenient)


def any_waiver_waives_all(patch: pytest.MonkeyPatch) -> None:
    real = module.may_go_on

    def generous(gate: Gate, items: list[Verdict], waivers: list[Waiver], now: float) -> module.Passage:
        return real(gate, items, [waiver(name) for name in CHECKS] if waivers else [], now)

    patch.setattr("tests.gates.test_verdicts.may_go_on", generous)


def waivers_count_in_the_last_gates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "STRICT", frozenset())


def the_last_reading_of_a_moment_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_rank", lambda item: item.at)


BROKEN: dict[Callable[[pytest.MonkeyPatch], None], Property | Callable[[], None]] = {
    a_failed_reading_is_forgotten: ignorance_opens_no_strict_gate,
    a_failed_reading_replaces_a_fail: test_a_failed_reading_forgets_no_fail,
    ignorance_excuses_a_check: ignorance_adds_no_permission,
    unknown_does_not_hold_the_last_gates: ignorance_opens_no_strict_gate,
    any_waiver_waives_all: a_waiver_for_another_check_changes_nothing,
    waivers_count_in_the_last_gates: a_waiver_for_another_check_changes_nothing,
    the_last_reading_of_a_moment_counts: order_does_not_matter,
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda item: item.__name__)
def test_a_broken_variant_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    guard = BROKEN[broken]
    work = partial(holds, guard, 400, Phase.generate) if guard in PROPERTIES else guard
    with pytest.raises(AssertionError):
        work()

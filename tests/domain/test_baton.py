"""The baton as bytes, and the rules of RULES section 1 about waiting, leaving and dropping."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract import baton as real
from supervisor.contract.baton import Baton, BatonRefused, Done, FileEntry, Holder, Pointer
from tests.properties import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
FULL = json.loads(real.encode(
    Baton(
        "supervisor", 2, real.Next(3, 1, "2.3.1", "nonce"), Holder(2, "1.2.1", "m"),
        Pointer(5, "checkpoints/5/", (FileEntry("model.bin", 3, "ab"),), FileEntry("m/1", 2, "ee")),
        (Pointer(4, "checkpoints/4/", ()),),
        (Pointer(1, "checkpoints/1/", ()),), (Pointer(2, "checkpoints/best-2/", ()),),
        Done("1.2.1", "results/g1/", (FileEntry("out", 1, "cd"),), 5, 5, 1.5, lost=("x",)), "stopped", "77",
        FileEntry("results/saved/2", 2, "ff"),
    )
))  # fmt: skip


@given(raw=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_other_bytes_are_no_baton(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 json's own errors are welcome too
        real.decode(raw)


@settings(max_examples=examples(100, 400))
@given(name=st.sampled_from(sorted(FULL)), value=JSON, inner=st.text(max_size=8))
def test_a_baton_with_one_field_spoiled_is_read_or_refused(name: str, value: Any, inner: str) -> None:
    for spoiled in ({**FULL, name: value}, {**FULL, name: {**(FULL["done"] or {}), inner: value}}):
        try:
            assert isinstance(real.decode(json.dumps(spoiled).encode()), Baton)
        except ValueError:
            continue


@pytest.mark.parametrize("raw", [b"", b"[" * 100_000, b'{"generation": 1e999, "supervisor_id": ""}', b"\xff"])
def test_torn_bytes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 json's own errors are welcome too
        real.decode(raw)


def test_a_torn_write_is_never_read_as_a_baton() -> None:
    whole = json.dumps(FULL).encode()
    for length in range(len(whole)):
        with pytest.raises(ValueError):  # noqa: PT011 json's own errors are welcome too
            real.decode(whole[:length])


def test_a_baton_without_milestones_is_read() -> None:
    old = {name: value for name, value in FULL.items() if name not in ("kept", "best")}
    read = real.decode(json.dumps(old).encode())
    assert (read.kept, read.best) == ((), ())
    assert json.loads(real.encode(read)) == {**FULL, "kept": [], "best": []}


def moved(steps: list[int], keep: real.Keep, baton: Baton | None = None) -> Baton:
    """After a checkpoint at each of these steps, held by m1."""
    if baton is None:
        baton = real.claim(real.raise_next(real.create("s", 1), "1.1.1", "n", False), "1.1.1", "m1", 0)
    for step in steps:
        baton = real.move_checkpoint(baton, "1.1.1", "m1", Pointer(step, f"checkpoints/{step}/", ()), keep)
    return baton


def steps_of(baton: Baton) -> list[list[int]]:
    """[newest and previous, milestones]"""
    assert baton.checkpoint is not None
    newest = [baton.checkpoint.step, *(pointer.step for pointer in baton.previous)]
    return [newest, [pointer.step for pointer in baton.kept]]


def test_a_milestone_is_the_first_checkpoint_at_or_after_each_multiple() -> None:
    every = real.Keep(last=2, every=100)
    assert steps_of(moved([50, 100, 150, 200, 250, 300], every)) == [[300, 250], [200, 100]]
    assert steps_of(moved([90, 130, 170, 210, 250, 290, 330], every)) == [[330, 290], [210, 130]]
    assert steps_of(moved([90, 450, 460, 470], every)) == [[470, 460], [450]]  # nothing was saved for 100 to 300
    assert steps_of(moved([100, 160, 120, 140, 180], every)) == [[180, 140], [100]]  # after a resume from further back


def test_a_rule_that_changes_takes_effect_at_the_next_move() -> None:
    baton = moved([10, 20, 30, 40, 50, 60], real.Keep(last=3, every=10))
    assert steps_of(baton) == [[60, 50, 40], [30, 20, 10]]
    assert steps_of(moved([70], real.Keep(last=2, every=20), baton)) == [[70, 60], [40, 20]]
    assert steps_of(moved([70], real.Keep(last=2), baton)) == [[70, 60], []]
    assert steps_of(moved([70, 80], real.Keep(last=5, every=10), baton)) == [[80, 70, 60, 50, 40], [30, 20, 10]]
    assert steps_of(moved([70], real.Keep(last=1), baton))[0] == [70, 60]  # never fewer than two


def test_only_so_many_milestones_are_named_the_newest_ones() -> None:
    kept = moved(list(range(10, 1100, 10)), real.Keep(last=2, every=10)).kept
    assert [kept[0].step, kept[-1].step, len(kept)] == [1070, 80, real.MILESTONES_KEPT]


def test_when_the_newest_do_not_verify_milestones_follow_the_newest_first() -> None:
    baton = moved([10, 20, 30, 40, 50], real.Keep(last=2, every=10))
    steps = []
    while baton.checkpoint is not None:
        steps.append(baton.checkpoint.step)
        baton = real.drop_checkpoint(baton, "1.1.1", "m1")
    assert steps == [50, 40, 30, 20, 10]
    assert real.pointers(baton) == ()


def test_a_run_that_starts_over_keeps_its_best_until_there_are_new_ones() -> None:
    pointers = [Pointer(step, f"checkpoints/best-{step}/", ()) for step in (1, 2, 3)]
    baton = moved([10, 20, 30], real.Keep(last=2, every=10))
    for pointer in pointers:
        baton = real.keep_best(baton, "1.1.1", "m1", pointer, real.Keep(best=2))
    assert baton.best == (pointers[2], pointers[1])
    over = real.open_generation(baton, 2, True, None)
    assert real.pointers(over) == over.best == baton.best
    assert real.pointers(real.open_generation(baton, 2, False, None)) == real.pointers(baton)


def test_the_next_agent_waits_for_a_holder_that_neither_left_nor_is_gone() -> None:
    held = real.claim(real.raise_next(real.create("s", 1), "1.1.1", "n", False), "1.1.1", "m1", 0)
    raised = real.raise_next(held, "1.2.1", "n", False)
    assert real.standing(raised, "1.2.1", "m2", 0) == real.standing(raised, "1.2.1", "m2", 149.9) == real.WAIT
    assert real.standing(raised, "1.2.1", "m2", 150.0) == real.CLAIM
    assert real.standing(real.leave(raised, "1.1.1", "m1"), "1.2.1", "m2", 0) == real.CLAIM
    assert real.standing(real.mark_holder_gone(raised, "1.2.1"), "1.2.1", "m2", 0) == real.CLAIM
    assert real.standing(raised, "1.1.1", "m1", 0) == real.MINE
    assert real.standing(real.claim(raised, "1.2.1", "m2", 150), "1.1.1", "m1", 0) == real.OUTDATED


def test_an_agent_that_is_started_again_takes_its_baton_back_unless_others_go_on() -> None:
    held = real.claim(real.raise_next(real.create("s", 1), "1.1.1", "n", False), "1.1.1", "m1", 0)
    left = real.leave(held, "1.1.1", "m1")
    assert real.standing(left, "1.1.1", "m1", 0) == real.OUTDATED
    assert real.take_back(left, "1.1.1", "m1") == real.take_back(held, "1.1.1", "m1") == held
    assert real.take_back(left, "1.1.1", "m2") == left, "another machine"
    for after in (real.raise_next(left, "1.2.1", "n", False), real.close(left, "stopped"), real.create("s", 1)):
        assert real.take_back(after, "1.1.1", "m1") == after


def test_a_checkpoint_that_does_not_verify_is_replaced_by_the_previous_one() -> None:
    baton = real.claim(real.raise_next(real.create("s", 1), "1.1.1", "n", False), "1.1.1", "m1", 0)
    pointers = [Pointer(step, f"checkpoints/{step}/", ()) for step in (1, 2, 3, 4)]
    for pointer in pointers:
        baton = real.move_checkpoint(baton, "1.1.1", "m1", pointer)
    assert (baton.checkpoint, baton.previous) == (pointers[3], (pointers[2], pointers[1]))
    for expected in (pointers[2], pointers[1], None, None):
        baton = real.drop_checkpoint(baton, "1.1.1", "m1")
        assert baton.checkpoint == expected
    with pytest.raises(BatonRefused):
        real.drop_checkpoint(real.close(baton, "stopped"), "1.1.1", "m1")

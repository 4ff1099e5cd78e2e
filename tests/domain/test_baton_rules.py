"""Properties of the baton's functions on whatever batons a history can bring about (HOUSE invariants 2, 12 and 13).

Histories mix the deeds of a supervisor and of five agents, right and wrong ones; each deed is tried on the baton that
all those before it left. Each property must also fail on rules that are broken in the way it is there to catch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.domain import baton as real
from supervisor.domain.baton import Baton, BatonRefused, Done, FileEntry, Holder, Pointer
from supervisor.domain.identifiers import parse_launch_id

AGENTS = [("1.1.1", "m1"), ("1.2.1", "m2"), ("1.2.1", "m2-twin"), ("1.2.2", "m3"), ("2.3.1", "m4")]
LAUNCHES = sorted({launch_id for launch_id, _ in AGENTS})
BY_AGENTS, BY_SUPERVISOR = {"claim", "leave", "move", "drop", "finish"}, {"raise", "gone", "close", "open"}
OF_SUPERVISOR = ("supervisor_id", "generation", "next", "closed", "stop_consumed")


class Deed(NamedTuple):
    kind: str
    who: int  # index of the agent; of the launch id for a supervisor's deed
    number: int

    def on(self, baton: Baton, rules: Any) -> Baton:
        agent, launch = AGENTS[self.who], AGENTS[self.who][0]
        pointer = Pointer(self.number, f"checkpoints/{self.number}/", (FileEntry("model.bin", 3, "ab"),))
        calls: dict[str, Callable[[], Baton]] = {
            "claim": lambda: rules.claim(baton, *agent, 150.0 * self.number),
            "leave": lambda: rules.leave(baton, *agent),
            "move": lambda: rules.move_checkpoint(baton, *agent, pointer),
            "drop": lambda: rules.drop_checkpoint(baton, *agent),
            "finish": lambda: rules.finish(
                baton, agent[1], Done(launch, "results/g1/", pointer.files, self.number)
            ),
            "raise": lambda: rules.raise_next(baton, launch, f"nonce {launch}", False),
            "gone": lambda: rules.mark_holder_gone(baton, launch),
            "close": lambda: rules.close(baton, f"reason {self.number}"),
            "open": lambda: rules.open_generation(baton, 1 + self.number % 3, self.number == 4, "77"),
        }
        return calls[self.kind]()


DEEDS = st.builds(
    Deed, st.sampled_from(sorted(BY_AGENTS | BY_SUPERVISOR)), st.integers(0, 4), st.integers(0, 4)
)
USUAL = [
    Deed("raise", 0, 0),
    Deed("claim", 0, 1),
    Deed("move", 0, 1),
    Deed("raise", 1, 0),
    Deed("claim", 1, 1),
]
HISTORIES = st.tuples(st.integers(0, len(USUAL)), st.lists(DEEDS, max_size=25)).map(
    lambda t: USUAL[: t[0]] + t[1]
)


def told(history: list[Deed], rules: Any) -> Iterator[tuple[Deed, Baton, Baton | None]]:
    """Each deed with the baton before it and after it; None where it was refused."""
    baton = rules.create("supervisor", 1)
    for deed in history:
        try:
            after = deed.on(baton, rules)
        except BatonRefused:
            yield deed, baton, None
        else:
            yield deed, baton, after
            baton = after


def only_the_holder_writes(deed: Deed, before: Baton, after: Baton | None) -> None:
    if after is None or deed.kind == "open":
        return
    if (after.checkpoint, after.previous, after.done) != (before.checkpoint, before.previous, before.done):
        assert before.holder == Holder(parse_launch_id(AGENTS[deed.who][0])[1], *AGENTS[deed.who])
        assert before.closed is None


def everyone_keeps_to_his_own_fields(deed: Deed, before: Baton, after: Baton | None) -> None:
    if after is None or deed.kind == "open":
        return
    theirs = OF_SUPERVISOR if deed.kind in BY_AGENTS else ("holder", "checkpoint", "previous", "done")
    assert [getattr(after, name) for name in theirs] == [getattr(before, name) for name in theirs]


def the_baton_passes_to_the_next_alone(deed: Deed, before: Baton, after: Baton | None) -> None:
    if after is None or after.holder == before.holder:
        return
    assert after.holder is not None
    if after.holder.left and before.holder == replace(after.holder, left=False):
        return
    assert before.next is not None
    assert before.next.launch_id == after.holder.launch_id == AGENTS[deed.who][0]
    assert before.closed is before.done is None
    free = before.holder is None or before.holder.left or before.next.holder_gone
    assert free or 150.0 * deed.number >= real.CLAIM_WAIT_S
    assert before.holder is None or before.holder.launch_id != after.holder.launch_id, "a twin took it over"


def next_never_goes_back(_: Deed, before: Baton, after: Baton | None) -> None:
    if after is not None and before.next is not None and after.next is not None:
        assert parse_launch_id(after.next.launch_id) >= parse_launch_id(before.next.launch_id)


def over_stays_over(deed: Deed, before: Baton, after: Baton | None) -> None:
    if after is None or deed.kind == "open":
        return
    assert before.closed in {None, after.closed}
    if before.done is not None:
        assert after.done is not None
        assert after.done.launch_id == before.done.launch_id


def a_new_generation_gives_nobody_the_baton(deed: Deed, before: Baton, after: Baton | None) -> None:
    if after is None or deed.kind != "open" or after == before:
        return
    assert after.generation > before.generation
    assert after.closed is after.done is after.next is None
    for launch_id, machine_id in AGENTS:
        assert real.standing(after, launch_id, machine_id, 1e9) == real.OUTDATED
    assert after.checkpoint == (None if deed.number == 4 else before.checkpoint)


def few_pointers_are_kept(_: Deed, __: Baton, after: Baton | None) -> None:
    if after is not None:
        assert len(after.previous) < real.POINTERS_KEPT
        assert after.checkpoint is not None or after.previous == ()


PROPERTIES = [
    only_the_holder_writes,
    everyone_keeps_to_his_own_fields,
    the_baton_passes_to_the_next_alone,
    next_never_goes_back,
    over_stays_over,
    a_new_generation_gives_nobody_the_baton,
    few_pointers_are_kept,
]
Property = Callable[[Deed, Baton, "Baton | None"], None]


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@settings(max_examples=300)
@given(history=HISTORIES)
def test_in_every_history(holds: Property, history: list[Deed]) -> None:
    for deed, before, after in told(history, real):
        holds(deed, before, after)


@settings(max_examples=300)
@given(history=HISTORIES)
def test_twice_is_once(history: list[Deed]) -> None:
    for deed, _, after in told(history, real):
        if after is not None and deed.kind != "drop":  # said once more, that drops the one before, too
            assert deed.on(after, real) == after


@settings(max_examples=300)
@given(history=HISTORIES)
def test_what_is_written_is_read_again(history: list[Deed]) -> None:
    for _, before, after in told(history, real):
        assert real.decode(real.encode(before)) == before
        assert after is None or real.decode(real.encode(after)) == after


def rules_with(**broken: Callable[..., Baton]) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(real), **broken})


def move_without_looking(baton: Baton, _: str, __: str, pointer: Pointer) -> Baton:
    return replace(baton, checkpoint=pointer)


def claim_without_looking(baton: Baton, launch_id: str, machine_id: str, _: float) -> Baton:
    return replace(baton, holder=Holder(parse_launch_id(launch_id)[1], launch_id, machine_id))


def claim_and_point_to_oneself(baton: Baton, launch_id: str, machine_id: str, waited_s: float) -> Baton:
    return replace(real.claim(baton, launch_id, machine_id, waited_s), next=None)


def raise_any(baton: Baton, launch_id: str, nonce: str, holder_gone: bool) -> Baton:
    return real.raise_next(replace(baton, next=None), launch_id, nonce, holder_gone)


def close_anew(baton: Baton, reason: str) -> Baton:
    return replace(baton, closed=reason)


def move_and_keep_all(baton: Baton, launch_id: str, machine_id: str, pointer: Pointer) -> Baton:
    moved = real.move_checkpoint(baton, launch_id, machine_id, pointer)
    return replace(moved, previous=(pointer, *baton.previous))


def open_and_give_back(baton: Baton, generation: int, rerun: bool, stop_consumed: str | None) -> Baton:
    opened = real.open_generation(baton, generation, rerun, stop_consumed)
    return replace(opened, holder=baton.holder)


BROKEN = [
    (only_the_holder_writes, rules_with(move_checkpoint=move_without_looking)),
    (everyone_keeps_to_his_own_fields, rules_with(claim=claim_and_point_to_oneself)),
    (the_baton_passes_to_the_next_alone, rules_with(claim=claim_without_looking)),
    (next_never_goes_back, rules_with(raise_next=raise_any)),
    (over_stays_over, rules_with(close=close_anew)),
    (a_new_generation_gives_nobody_the_baton, rules_with(open_generation=open_and_give_back)),
    (few_pointers_are_kept, rules_with(move_checkpoint=move_and_keep_all)),
]


@pytest.mark.parametrize(("holds", "rules"), BROKEN, ids=[holds.__name__ for holds, _ in BROKEN])
def test_broken_rules_are_caught(holds: Property, rules: Any) -> None:
    @settings(max_examples=2000, derandomize=True, database=None, report_multiple_bugs=False)
    @given(history=HISTORIES)
    def in_every_history(history: list[Deed]) -> None:
        for deed, before, after in told(history, rules):
            holds(deed, before, after)

    with pytest.raises(AssertionError):
        in_every_history()

"""Properties of the baton's functions on all batons that a history can create (HOUSE invariants 2, 12 and 13).

Histories mix the actions of a supervisor and of five agents, right and wrong ones; each action is tried on the baton
that the earlier ones left. Each property must also fail on rules that are broken in the way it guards against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.contract import baton as real
from supervisor.contract.baton import Baton, BatonRefused, Done, FileEntry, Holder, Keep, Pointer
from supervisor.contract.identifiers import parse_launch_id
from tests.properties import examples

AGENTS = [("1.1.1", "m1"), ("1.2.1", "m2"), ("1.2.1", "m2-twin"), ("1.2.2", "m3"), ("2.3.1", "m4")]
LAUNCHES = sorted({launch_id for launch_id, _ in AGENTS})
BY_AGENTS = {"claim", "leave", "move", "best", "drop", "finish"}
BY_SUPERVISOR = {"raise", "gone", "close", "open", "purge"}
OF_SUPERVISOR = ("supervisor_id", "generation", "next", "closed", "stop_consumed")
NAMED = ("checkpoint", "previous", "kept", "best", "done")
KEEP = Keep(2, 1, 2)


class Action(NamedTuple):
    kind: str
    index: int  # index of the agent; of the launch id for a supervisor's action
    number: int

    def on(self, baton: Baton, rules: Any) -> Baton:
        agent, launch = AGENTS[self.index], AGENTS[self.index][0]
        pointer = Pointer(self.number, f"checkpoints/{self.number}/", (FileEntry("model.bin", 3, "ab"),))
        calls: dict[str, Callable[[], Baton]] = {
            "claim": lambda: rules.claim(baton, *agent, 150.0 * self.number),
            "leave": lambda: rules.leave(baton, *agent),
            "move": lambda: rules.move_checkpoint(baton, *agent, pointer, KEEP),
            "best": lambda: rules.keep_best(baton, *agent, pointer, KEEP),
            "purge": lambda: rules.purge(baton),
            "drop": lambda: rules.drop_checkpoint(baton, *agent),
            "finish": lambda: rules.finish(baton, agent[1], Done(launch, "results/g1/", pointer.files, self.number)),
            "raise": lambda: rules.raise_next(baton, launch, f"nonce {launch}", False),
            "gone": lambda: rules.mark_holder_gone(baton, launch),
            "close": lambda: rules.close(baton, f"reason {self.number}"),
            "open": lambda: rules.open_generation(baton, 1 + self.number % 3, self.number == 4, "77"),
        }
        return calls[self.kind]()


ACTIONS = st.builds(Action, st.sampled_from(sorted(BY_AGENTS | BY_SUPERVISOR)), st.integers(0, 4), st.integers(0, 4))
USUAL = [
    Action("raise", 0, 0),
    Action("claim", 0, 1),
    Action("move", 0, 1),
    Action("raise", 1, 0),
    Action("claim", 1, 1),
]
HISTORIES = st.tuples(st.integers(0, len(USUAL)), st.lists(ACTIONS, max_size=25)).map(lambda t: USUAL[: t[0]] + t[1])


def applied(history: list[Action], rules: Any) -> Iterator[tuple[Action, Baton, Baton | None]]:
    """Each action with the baton before it and after it; None where it was refused."""
    baton = rules.create("supervisor", 1)
    for action in history:
        try:
            after = action.on(baton, rules)
        except BatonRefused:
            yield action, baton, None
        else:
            yield action, baton, after
            baton = after


def only_the_holder_writes(action: Action, before: Baton, after: Baton | None) -> None:
    if after is None or action.kind in {"open", "purge"}:
        return
    if any(getattr(after, name) != getattr(before, name) for name in NAMED):
        assert before.holder == Holder(parse_launch_id(AGENTS[action.index][0])[1], *AGENTS[action.index])
        assert before.closed is None


def each_side_changes_its_own_fields(action: Action, before: Baton, after: Baton | None) -> None:
    if after is None or action.kind in {"open", "purge"}:
        return
    theirs = OF_SUPERVISOR if action.kind in BY_AGENTS else ("holder", *NAMED)
    assert [getattr(after, name) for name in theirs] == [getattr(before, name) for name in theirs]


def the_baton_passes_to_the_next_alone(action: Action, before: Baton, after: Baton | None) -> None:
    if after is None or after.holder == before.holder:
        return
    assert after.holder is not None
    if after.holder.left and before.holder == after.holder._replace(left=False):
        return
    assert before.next is not None
    assert before.next.launch_id == after.holder.launch_id == AGENTS[action.index][0]
    assert before.closed is before.done is None
    free = before.holder is None or before.holder.left or before.next.holder_gone
    assert free or 150.0 * action.number >= real.CLAIM_WAIT_S
    assert before.holder is None or before.holder.launch_id != after.holder.launch_id, "a twin took it over"


def next_never_goes_back(_: Action, before: Baton, after: Baton | None) -> None:
    if after is not None and before.next is not None and after.next is not None:
        assert parse_launch_id(after.next.launch_id) >= parse_launch_id(before.next.launch_id)


def over_stays_over(action: Action, before: Baton, after: Baton | None) -> None:
    if after is None or action.kind in {"open", "purge"}:
        return
    assert before.closed in {None, after.closed}
    if before.done is not None:
        assert after.done is not None
        assert after.done.launch_id == before.done.launch_id


def a_new_generation_gives_no_agent_the_baton(action: Action, before: Baton, after: Baton | None) -> None:
    if after is None or action.kind != "open" or after == before:
        return
    assert after.generation > before.generation
    assert after.closed is after.done is after.next is None
    for launch_id, machine_id in AGENTS:
        assert real.standing(after, launch_id, machine_id, 1e9) == real.OUTDATED
    assert after.checkpoint == (None if action.number == 4 else before.checkpoint)


def few_pointers_are_kept(_: Action, __: Baton, after: Baton | None) -> None:
    if after is not None:
        assert len(after.previous) < KEEP.last
        assert len(after.kept) <= 2  # steps 2 and 4
        assert len(after.best) <= KEEP.best
        assert after.checkpoint is not None or after.previous == after.kept == ()


def the_newest_two_stay_named(action: Action, before: Baton, after: Baton | None) -> None:
    """A move names the given checkpoint and the previous newest one; only a drop removes the newest."""
    if after is None or action.kind != "move" or after == before:
        return
    assert after.checkpoint is not None
    assert after.previous[:1] == (() if before.checkpoint is None else (before.checkpoint,))


def after_a_purge_nothing_is_named(action: Action, _: Baton, after: Baton | None) -> None:
    if after is not None and action.kind == "purge":
        assert real.pointers(after) == ()
        assert after.done is None
        assert {real.standing(after, *agent, 1e9) for agent in AGENTS} == {real.OVER}


PROPERTIES = [
    only_the_holder_writes,
    each_side_changes_its_own_fields,
    the_baton_passes_to_the_next_alone,
    next_never_goes_back,
    over_stays_over,
    a_new_generation_gives_no_agent_the_baton,
    few_pointers_are_kept,
    the_newest_two_stay_named,
    after_a_purge_nothing_is_named,
]
Property = Callable[[Action, Baton, "Baton | None"], None]


@settings(max_examples=examples(600, 3000))
@given(history=HISTORIES)
def test_in_every_history(history: list[Action]) -> None:
    """All properties at once: most of the time goes into the histories."""
    for action, before, after in applied(history, real):
        for holds in PROPERTIES:
            holds(action, before, after)


@settings(max_examples=examples(100, 300))
@given(history=HISTORIES)
def test_twice_is_once(history: list[Action]) -> None:
    for action, _, after in applied(history, real):
        if after is not None and action.kind != "drop":  # repeated, it also drops the previous one
            assert action.on(after, real) == after


@settings(max_examples=examples(100, 300))
@given(history=HISTORIES)
def test_a_written_baton_is_read_unchanged(history: list[Action]) -> None:
    for _, before, after in applied(history, real):
        assert real.decode(real.encode(before)) == before
        assert after is None or real.decode(real.encode(after)) == after


def rules_with(**broken: Callable[..., Baton]) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(real), **broken})


def move_without_looking(baton: Baton, _: str, __: str, pointer: Pointer, ___: Keep) -> Baton:
    return baton._replace(checkpoint=pointer)


def claim_without_looking(baton: Baton, launch_id: str, machine_id: str, _: float) -> Baton:
    return baton._replace(holder=Holder(parse_launch_id(launch_id)[1], launch_id, machine_id))


def claim_and_point_to_oneself(baton: Baton, launch_id: str, machine_id: str, waited_s: float) -> Baton:
    return real.claim(baton, launch_id, machine_id, waited_s)._replace(next=None)


def raise_any(baton: Baton, launch_id: str, nonce: str, holder_gone: bool) -> Baton:
    return real.raise_next(baton._replace(next=None), launch_id, nonce, holder_gone)


def close_anew(baton: Baton, reason: str) -> Baton:
    return baton._replace(closed=reason)


def move_and_keep_all(baton: Baton, launch_id: str, machine_id: str, pointer: Pointer, keep: Keep) -> Baton:
    moved = real.move_checkpoint(baton, launch_id, machine_id, pointer, keep)
    return moved._replace(previous=(pointer, *baton.previous))


def move_and_keep_one(baton: Baton, launch_id: str, machine_id: str, pointer: Pointer, keep: Keep) -> Baton:
    return real.move_checkpoint(baton, launch_id, machine_id, pointer, keep)._replace(previous=())


def purge_and_leave_it_open(baton: Baton) -> Baton:
    return real.purge(baton)._replace(closed=None)


def open_and_give_back(baton: Baton, generation: int, rerun: bool, stop_consumed: str | None) -> Baton:
    opened = real.open_generation(baton, generation, rerun, stop_consumed)
    return opened._replace(holder=baton.holder)


BROKEN = [
    (only_the_holder_writes, rules_with(move_checkpoint=move_without_looking)),
    (each_side_changes_its_own_fields, rules_with(claim=claim_and_point_to_oneself)),
    (the_baton_passes_to_the_next_alone, rules_with(claim=claim_without_looking)),
    (next_never_goes_back, rules_with(raise_next=raise_any)),
    (over_stays_over, rules_with(close=close_anew)),
    (a_new_generation_gives_no_agent_the_baton, rules_with(open_generation=open_and_give_back)),
    (few_pointers_are_kept, rules_with(move_checkpoint=move_and_keep_all)),
    (the_newest_two_stay_named, rules_with(move_checkpoint=move_and_keep_one)),
    (after_a_purge_nothing_is_named, rules_with(purge=purge_and_leave_it_open)),
]


@pytest.mark.parametrize(("holds", "rules"), BROKEN, ids=[holds.__name__ for holds, _ in BROKEN])
def test_broken_rules_are_caught(holds: Property, rules: Any) -> None:
    @settings(max_examples=2000, derandomize=True, database=None, phases=[Phase.generate])  # it need not shrink
    @given(history=HISTORIES)
    def in_every_history(history: list[Action]) -> None:
        for action, before, after in applied(history, rules):
            holds(action, before, after)

    with pytest.raises(AssertionError):
        in_every_history()

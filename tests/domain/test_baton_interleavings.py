"""No double writer (HOUSE invariant 2): every interleaving of old agent, supervisor and new agent over one baton.

The same walk over two objects, the fence in one and the pointer in the other, finds hundreds of wrong ends. That is why
the baton is one object (RULES section 1).
"""

from __future__ import annotations

import pytest

from supervisor.contract import baton as rules
from supervisor.contract.baton import Baton, Done, Holder, Next, Pointer
from tests.domain.baton_world import (
    CLAIM,
    CLOSE,
    FINISH,
    GONE,
    LEAVE,
    MOVE,
    RAISE,
    REOPEN,
    TAKE,
    UPLOAD,
    Change,
    Counted,
    Program,
    start,
    walk,
)

OLD, NEW = ("1.1.1", "machine-old"), ("1.2.1", "machine-new")
FIRST = Pointer(5, "checkpoints/5-a1/", ())
BATON = Baton("supervisor", 1, Next(1, 1, OLD[0], "nonce"), Holder(1, *OLD), FIRST)


def moves(agent: tuple[str, str], step: int) -> Change:
    pointer = Pointer(step, f"checkpoints/{step}/", ())
    return Change(MOVE, lambda baton, _: rules.move_checkpoint(baton, *agent, pointer))


def finishes(agent: tuple[str, str]) -> Change:
    return Change(FINISH, lambda baton, _: rules.finish(baton, agent[1], Done(agent[0], "results/g1/", ())))


def claims(agent: tuple[str, str]) -> Change:
    return Change(CLAIM, lambda baton, waited_s: rules.claim(baton, *agent, waited_s))


UPLOADS = Change(UPLOAD)
LEAVES = Change(LEAVE, lambda baton, _: rules.leave(baton, *OLD))
RAISES = Change(RAISE, lambda baton, _: rules.raise_next(baton, NEW[0], "nonce", False))
MARKS_GONE = Change(GONE, lambda baton, _: rules.mark_holder_gone(baton, NEW[0]))
CLOSES = Change(CLOSE, lambda baton, _: rules.close(baton, "stopped"))
REOPENS = Change(REOPEN, lambda baton, _: rules.open_generation(baton, 2, False, None))
STARTS_OVER = Change(REOPEN, lambda baton, _: rules.open_generation(baton, 2, True, None))

PURGES = Change(CLOSE, lambda baton, _: rules.purge(baton))

TAKES_BACK = Change(TAKE, lambda baton, _: rules.take_back(baton, *OLD))

OLD_ENDS = {
    "is killed": (),
    "leaves": (LEAVES,),
    "is relaunched": (LEAVES, TAKES_BACK, claims(OLD), moves(OLD, 25)),
    "finishes": (finishes(OLD),),
}
SUPERVISOR_DOES = {
    "raises": (RAISES,),
    "raises, marks gone": (RAISES, MARKS_GONE),
    "raises, closes": (RAISES, CLOSES),
    "closes": (CLOSES,),
    "closes, reopens": (CLOSES, REOPENS),
    "raises, closes, starts over": (RAISES, CLOSES, STARTS_OVER),
    "raises, closes, purges": (RAISES, CLOSES, PURGES),
    "closes, purges, reopens": (CLOSES, PURGES, REOPENS),
}


def walked(old_end: str, supervisor: str, *, split: bool = False, twin: bool = False, may_lose: int = 0) -> Counted:
    old = Program(*OLD, (UPLOADS, moves(OLD, 10), UPLOADS, moves(OLD, 20), *OLD_ENDS[old_end]))
    new = Program(*NEW, (claims(NEW), UPLOADS, moves(NEW, 30)))
    programs = [old, Program("", "supervisor", SUPERVISOR_DOES[supervisor]), new]
    if twin:  # the create call was ambiguous: a second machine of the same try started
        other = (NEW[0], "machine-twin")
        programs.append(Program(*other, (claims(other), moves(other, 31))))
    world = start(BATON, tuple(programs), owner=OLD[1], split=split, may_lose=may_lose)
    return walk(world, tuple(programs))


ALL = [(old_end, supervisor) for old_end in OLD_ENDS for supervisor in SUPERVISOR_DOES]


@pytest.mark.parametrize(("old_end", "supervisor"), ALL)
def test_no_agent_writes_that_lost_the_baton(old_end: str, supervisor: str) -> None:
    counted = walked(old_end, supervisor)
    assert counted.wrongs == frozenset()
    assert counted.wrong_paths == 0
    assert counted.paths > 500


# The walk of a relaunched agent is long, and one order of the supervisor has all that is new.
LOSSY = [case for case in ALL if case[0] not in ("is killed", "is relaunched")] + [("is relaunched", "raises")]


@pytest.mark.parametrize(("old_end", "supervisor"), LOSSY)
def test_no_agent_writes_that_lost_the_baton_with_lost_responses_and_repeated_writes(
    old_end: str, supervisor: str
) -> None:
    assert walked(old_end, supervisor, may_lose=1).wrongs == frozenset()


@pytest.mark.parametrize("supervisor", SUPERVISOR_DOES)
def test_no_agent_writes_that_lost_the_baton_with_two_machines_of_one_try(supervisor: str) -> None:
    counted = walked("leaves", supervisor, twin=True)
    assert counted.wrongs == frozenset()
    for end in counted.ends:
        new, twin = end.actors[2], end.actors[3]
        assert not (new.at > 0 and twin.at > 0), "both machines of one try claimed"


@pytest.mark.parametrize("supervisor", ["raises", "raises, marks gone", "raises, closes"])
def test_fence_and_pointer_in_two_objects_are_caught(supervisor: str) -> None:
    counted = walked("leaves", supervisor, split=True)
    assert 0 < counted.wrong_paths < counted.paths
    if supervisor == "raises, closes":
        assert "move after close" in counted.wrongs
    else:
        assert {"move by one who lost the baton", "a checkpoint was overwritten unseen"} <= counted.wrongs


def unfenced_move(baton: Baton, step: int) -> Baton:
    return baton._replace(checkpoint=Pointer(step, f"checkpoints/{step}/", ()))


def test_an_agent_that_does_not_check_the_holder_is_caught() -> None:
    careless = Change(MOVE, lambda baton, _: unfenced_move(baton, 10))
    programs = (
        Program(*OLD, (UPLOADS, careless)),
        Program("", "supervisor", (RAISES, MARKS_GONE)),
        Program(*NEW, (claims(NEW), moves(NEW, 30))),
    )
    assert walk(start(BATON, programs, OLD[1], split=False, may_lose=0), programs).wrong_paths > 0


def test_a_reopened_run_that_gives_the_baton_back_is_caught() -> None:
    """An agent that was out of reach while its run was closed must not be its holder again after a resume."""
    forgiving = Change(
        REOPEN, lambda baton, _: rules.open_generation(baton, 2, False, None)._replace(holder=baton.holder)
    )
    programs = (Program(*OLD, (UPLOADS, moves(OLD, 10))), Program("", "supervisor", (CLOSES, forgiving)))
    counted = walk(start(BATON, programs, OLD[1], split=False, may_lose=0), programs)
    assert "move by one who lost the baton" in counted.wrongs


def test_an_agent_that_is_next_gets_the_baton_in_the_end() -> None:
    for old_end in ("is killed", "leaves"):
        ends = walked(old_end, "raises").ends
        served = [end for end in ends if not end.actors[2].stopped]  # the others read the baton before they were named
        assert served
        for end in served:
            assert end.cells[0].baton.checkpoint == Pointer(30, "checkpoints/30/", ())
            assert end.cells[0].baton.previous[-1] in {FIRST, *(Pointer(n, f"checkpoints/{n}/", ()) for n in (10, 20))}


def test_the_first_of_done_and_closed_wins() -> None:
    results = set()
    for end in walked("finishes", "closes").ends:
        baton = end.cells[0].baton
        assert baton.closed == "stopped"
        results.add(baton.done is not None)
    assert results == {True, False}


@pytest.mark.parametrize("supervisor", ["raises, closes, purges", "closes, purges, reopens"])
def test_after_a_purge_nothing_is_named(supervisor: str) -> None:
    for old_end in OLD_ENDS:
        ends = walked(old_end, supervisor).ends
        purged = [end.cells[0].baton for end in ends if not end.actors[1].stopped]  # a raise after `done` is refused
        assert purged
        assert {(rules.pointers(baton), baton.done) for baton in purged} == {((), None)}


def test_a_purge_that_leaves_the_baton_open_is_caught() -> None:
    careless = Change(CLOSE, lambda baton, _: rules.purge(baton)._replace(closed=None))
    programs = (Program(*OLD, (UPLOADS, moves(OLD, 10))), Program("", "supervisor", (careless,)))
    counted = walk(start(BATON, programs, OLD[1], split=False, may_lose=0), programs)
    assert "move after close" in counted.wrongs


def test_done_is_never_undone_by_the_next_agent() -> None:
    for end in walked("finishes", "raises, marks gone").ends:
        baton = end.cells[0].baton
        if baton.done is not None:
            assert baton.holder == Holder(1, *OLD)
            assert baton.checkpoint is not None
            assert baton.checkpoint.step == 20

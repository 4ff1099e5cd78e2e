"""A small world in which all interleavings can be enumerated: a store of one cell or two, and its few writers.

An actor is a list of changes. Each change is a read of the store, then a write with if-generation-match on the
generation that was read; a refused write reads again, a change that the baton refuses stops the actor for good. The
walk covers every order of those steps, every moment at which the next agent stops waiting, and every write whose
response is lost and that is repeated. A ghost that knows nothing of baton.py's rules watches the writes: which actor
claimed last, whether the run is over, and which checkpoint each actor has seen. A writer that is not the last claimant,
or that overwrites a checkpoint it has never seen, is a double writer. With `split`, checkpoint and done are in a second
object beside the fence, which is forbidden.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.contract.baton import CLAIM_WAIT_S, WAIT, Baton, BatonRefused, standing

UPLOAD, CLAIM, MOVE, FINISH, LEAVE, TAKE, RAISE, GONE, CLOSE, REOPEN = (
    "upload", "claim", "move", "finish", "leave", "take", "raise", "gone", "close", "reopen",
)  # fmt: skip
OF_THE_POINTER = (MOVE, FINISH)


@dataclass(frozen=True, eq=False)
class Cell:
    """One object of the store. There is one of each (see `cell`), so comparing identities is enough."""

    baton: Baton
    generation: int


@functools.cache
def cell(baton: Baton, generation: int) -> Cell:
    return Cell(baton, generation)


@dataclass(frozen=True, eq=False)
class Change:
    kind: str
    apply: Callable[[Baton, float], Baton] = lambda baton, _: baton


@dataclass(frozen=True)
class Program:
    launch_id: str  # "" for the supervisor
    machine_id: str
    changes: tuple[Change, ...]


class Actor(NamedTuple):
    at: int = 0
    seen: tuple[Cell, ...] = ()  # the cells that were read for the present change, with generations
    stopped: bool = False
    saw_wait_at: int | None = None  # generation at which it had to wait
    waited_s: float = 0.0
    may_lose: int = 0  # responses to its writes that may still get lost
    knows: str | None = None  # the place of the checkpoint that it restored or wrote

    def with_seen(self, seen: tuple[Cell, ...], at: int | None = None) -> Actor:
        """Millions of steps are walked, and `_replace` costs four times as much as this."""
        at = self.at if at is None else at
        return Actor(at, seen, self.stopped, self.saw_wait_at, self.waited_s, self.may_lose, self.knows)

    def next(self, knows: str | None) -> Actor:
        """It has carried out its present change."""
        return Actor(self.at + 1, (), self.stopped, self.saw_wait_at, self.waited_s, self.may_lose, knows)


class Ghost(NamedTuple):
    owner: str | None = None  # machine id of the last claimant, until it leaves or the run is closed
    over: bool = False
    done: bool = False
    wrongs: frozenset[str] = frozenset()


class World(NamedTuple):
    cells: tuple[Cell, ...]
    actors: tuple[Actor, ...]
    ghost: Ghost


def start(baton: Baton, programs: tuple[Program, ...], owner: str | None, split: bool, may_lose: int) -> World:
    actors = tuple(
        Actor(may_lose=may_lose, knows=lies_at(baton) if program.machine_id == owner else None) for program in programs
    )
    return World((cell(baton, 1),) * (2 if split else 1), actors, Ghost(owner))


def lies_at(baton: Baton) -> str | None:
    return None if baton.checkpoint is None else baton.checkpoint.prefix


def successors(world: World, programs: tuple[Program, ...]) -> Iterator[World]:
    for index, program in enumerate(programs):
        actor = world.actors[index]
        if actor.stopped or actor.at == len(program.changes):
            continue
        change = program.changes[actor.at]
        for cells, moved, ghost in _steps(world, program, actor, change):
            actors = (*world.actors[:index], moved, *world.actors[index + 1 :])
            yield World(cells, actors, ghost)


Step = tuple[tuple[Cell, ...], Actor, Ghost]


def _steps(world: World, program: Program, actor: Actor, change: Change) -> Iterator[Step]:
    if change.kind == UPLOAD:
        yield world.cells, actor.with_seen(actor.seen, actor.at + 1), world.ghost
        return
    if actor.saw_wait_at is not None:
        yield world.cells, actor._replace(saw_wait_at=None, waited_s=CLAIM_WAIT_S), world.ghost
    needs = 2 if len(world.cells) == 2 and change.kind in OF_THE_POINTER else 1
    if len(actor.seen) < needs:
        if actor.saw_wait_at != world.cells[0].generation:
            yield world.cells, _read(world, program, actor, change), world.ghost
    else:
        yield from _write(world, program, actor, change)


def _read(world: World, program: Program, actor: Actor, change: Change) -> Actor:
    cell_read = world.cells[len(actor.seen)]
    if change.kind == CLAIM:
        verdict = standing(cell_read.baton, program.launch_id, program.machine_id, actor.waited_s)
        if verdict == WAIT:
            return actor._replace(saw_wait_at=cell_read.generation)
    if actor.saw_wait_at is not None:
        actor = actor._replace(saw_wait_at=None)
    return actor.with_seen((*actor.seen, cell_read))


@functools.lru_cache(100_000)  # many orders of the same steps ask for the same write
def _written(change: Change, seen: tuple[Cell, ...], waited_s: float) -> Cell | None:
    """What this change makes of the cell that was read last; None: the baton refuses it."""
    read = seen[0].baton
    if len(seen) == 2:
        pointer = seen[1].baton
        theirs = {name: getattr(pointer, name) for name in ("checkpoint", "previous", "kept", "best", "done")}
        read = read._replace(**theirs)
    try:
        return cell(change.apply(read, waited_s), seen[-1].generation + 1)
    except BatonRefused:
        return None


def _write(world: World, program: Program, actor: Actor, change: Change) -> Iterator[Step]:
    target = len(actor.seen) - 1
    written = _written(change, actor.seen, actor.waited_s)
    if written is None:
        yield world.cells, actor._replace(stopped=True, seen=()), world.ghost
        return
    if actor.seen[target].generation != world.cells[target].generation:
        yield world.cells, actor.with_seen(()), world.ghost
        return
    unseen = actor.knows != lies_at(world.cells[-1].baton)
    ghost = watch(world.ghost, program.machine_id, change.kind, unseen)
    cells = (*world.cells[:target], written, *world.cells[target + 1 :])
    wrote = actor.next(lies_at(cells[-1].baton))
    yield cells, wrote, ghost
    if actor.may_lose:
        yield cells, wrote._replace(at=actor.at, may_lose=actor.may_lose - 1), ghost


@functools.cache
def watch(ghost: Ghost, me: str, kind: str, unseen: bool) -> Ghost:
    """What the ghost says about this write of the machine `me`, which is being carried out. `unseen`: it does not know
    the checkpoint that lies there."""
    wrongs = set()
    if kind in OF_THE_POINTER:
        if ghost.owner != me:
            wrongs.add(f"{kind} by one who lost the baton")
        if ghost.over:
            wrongs.add(f"{kind} after close")
        if unseen:
            wrongs.add("a checkpoint was overwritten unseen")
    if kind == CLAIM and (ghost.over or ghost.done):
        wrongs.add("claim of a run that is over")
    changed = {
        CLAIM: {"owner": me},
        FINISH: {"done": True},
        LEAVE: {"owner": None if ghost.owner == me else ghost.owner},
        CLOSE: {"over": True, "owner": None},
        REOPEN: {"over": False, "done": False, "owner": None},
    }.get(kind, {})
    return ghost._replace(wrongs=ghost.wrongs | wrongs, **changed)


@dataclass(frozen=True)
class Counted:
    paths: int
    wrong_paths: int
    wrongs: frozenset[str]
    ends: frozenset[World]


def walk(world: World, programs: tuple[Program, ...]) -> Counted:
    """Count every order of steps from here to the state without a possible step, and how many of them went wrong."""
    counts: dict[World, tuple[int, int]] = {}
    wrongs: set[str] = set()
    ends: set[World] = set()

    def count(at: World) -> tuple[int, int]:
        if at not in counts:
            paths = wrong_paths = 0
            for after in successors(at, programs):
                known = counts.get(after) or count(after)
                paths, wrong_paths = paths + known[0], wrong_paths + known[1]
            if not paths:
                ends.add(at)
                wrongs.update(at.ghost.wrongs)
                paths, wrong_paths = 1, 1 if at.ghost.wrongs else 0
            counts[at] = (paths, wrong_paths)
        return counts[at]

    total, wrong = count(world)
    return Counted(total, wrong, frozenset(wrongs), frozenset(ends))

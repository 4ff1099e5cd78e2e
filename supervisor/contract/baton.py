"""The baton: one object per run. It says who may write, which checkpoint counts, and whether the run is over.

Every function takes the baton that was read and returns the baton to write with if-generation-match on the generation
that was read, or raises `BatonRefused`. It is one object because with a fence and a pointer in two objects an old agent
can move the pointer after the fence has changed (RULES section 1). The supervisor may create, raise_next,
mark_holder_gone, order_drill, close, open_generation, move_in, move_out, write_off and purge; an agent may claim,
take_back, leave, move_checkpoint, keep_best, drop_checkpoint, keep_results and finish.

A run on a host that cannot reach the supervisor's store has its baton in a folder there, its `home`. The supervisor's
own object then says where that is, and holds its last state whose files are all in the supervisor's store.

The baton names every checkpoint that is kept (`pointers`), each with the manifest of the results of the same moment
(runfiles.py). An object that the baton does not name may be deleted, but only after the baton has changed.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, NamedTuple, Optional, Tuple

from supervisor.contract.drill import DrillOrder
from supervisor.contract.identifiers import parse_launch_id

CLAIM_WAIT_S = 150.0  # how long the next agent waits for a holder that has neither left nor been marked gone
NEWEST_KEPT = 2  # whatever the rule says: when the newest does not verify on a new machine, the previous one remains
MILESTONES_KEPT = 100
PURGED = "purged"
MOVED = "moved away"  # begins why a baton in a home is closed that the run leaves; the reason before it follows

# Verdicts of `standing`: what an agent with this launch id and machine id is to the baton.
MINE, CLAIM, WAIT, OVER, OUTDATED = "mine", "claim", "wait", "over", "outdated"


class BatonRefused(Exception):
    """This caller may not make the change; the text says why. The caller stops and writes nothing more."""


class FileEntry(NamedTuple):
    name: str
    size: int
    sha256: str


class Pointer(NamedTuple):
    """One verified checkpoint: the prefix of its files, and what they must contain.

    `results`: the manifest of the results of the same moment; its name is an object key. None: an older agent saved the
    checkpoint without them, or no resume starts from this entry (best*). `reported`, `total`: of the training at that
    time; None: nothing, or an older agent saved it."""

    step: int
    prefix: str
    files: Tuple[FileEntry, ...]
    results: Optional[FileEntry] = None
    reported: Optional[int] = None
    total: Optional[int] = None


class Keep(NamedTuple):
    """The run's rule: the newest `last`, the newest `best` named best*, and one milestone for every `every` steps."""

    last: int = 3
    best: int = 1
    every: Optional[int] = None


KEEP = Keep()


class Next(NamedTuple):
    attempt: int
    try_number: int
    launch_id: str
    nonce: str
    holder_gone: bool = False


class Holder(NamedTuple):
    attempt: int
    launch_id: str
    machine_id: str
    left: bool = False


class Done(NamedTuple):
    """The holder writes it when the work is done, after it has verified the results in the store. `lost`: results that
    the run has written and that are missing, each as a phrase with the reason."""

    launch_id: str
    prefix: str
    results: Tuple[FileEntry, ...]
    step: Optional[int] = None
    total: Optional[int] = None
    training_s: float = 0.0
    from_zero: bool = False  # the steps are counted from 0: the last step is total - 1
    lost: Tuple[str, ...] = ()
    error: str = ""  # how the command failed after its last step; "" = exit 0


class Home(NamedTuple):
    """The folder on a host that the baton lies in. `stay`: names the folder. `ready`: its baton counts; until then the
    object that says so counts, and nothing was started on that host."""

    provider: str
    zone: str
    stay: str
    ready: bool = False


class Baton(NamedTuple):
    supervisor_id: str
    generation: int
    next: Optional[Next] = None
    holder: Optional[Holder] = None
    checkpoint: Optional[Pointer] = None
    previous: Tuple[Pointer, ...] = ()  # the checkpoints before it, newest first
    kept: Tuple[Pointer, ...] = ()  # milestones that left `previous`, highest step first
    best: Tuple[Pointer, ...] = ()  # entries named best*, newest first; never resumed from
    done: Optional[Done] = None
    closed: Optional[str] = None
    stop_consumed: Optional[str] = None  # object generation of the .stop marker that a resume has consumed
    last: Optional[FileEntry] = None  # manifest of the results at the end of an attempt; never resumed from
    home: Optional[Home] = None  # None = here
    drill: Optional[DrillOrder] = None  # the newest order


# --- the supervisor's changes -------------------------------------------------------------------------------------


def create(supervisor_id: str, generation: int) -> Baton:
    return Baton(supervisor_id, generation)


def raise_next(baton: Baton, launch_id: str, nonce: str, holder_gone: bool) -> Baton:
    """Name the try that may claim next. It never goes back: a delayed raise of an older try is refused."""
    generation, attempt, try_number = parse_launch_id(launch_id)
    if baton.closed is not None:
        raise BatonRefused("closed: %s" % baton.closed)
    if baton.done is not None:
        raise BatonRefused("the work is done")
    if generation != baton.generation:
        raise BatonRefused("the baton is of generation %d" % baton.generation)
    if baton.next is not None and parse_launch_id(baton.next.launch_id) > (generation, attempt, try_number):
        raise BatonRefused("try %s is already next" % baton.next.launch_id)
    return baton._replace(next=Next(attempt, try_number, launch_id, nonce, holder_gone))


def mark_holder_gone(baton: Baton, launch_id: str) -> Baton:
    """The machine of every holder older than `launch_id` is gone for certain: the next agent need not wait."""
    if baton.next is None or baton.next.launch_id != launch_id:
        raise BatonRefused("another try is next")
    return baton._replace(next=baton.next._replace(holder_gone=True))


def order_drill(baton: Baton, order: DrillOrder) -> Baton:
    """Changes nothing where the baton is over, or names this order or a later one: an order never goes back."""
    is_late = baton.drill is not None and baton.drill.number >= order.number
    return baton if is_late or baton.closed is not None or baton.done is not None else baton._replace(drill=order)


def close(baton: Baton, reason: str) -> Baton:
    """No agent writes after this. The first reason stays."""
    return baton if baton.closed is not None else baton._replace(closed=reason)


def open_generation(baton: Baton, generation: int, rerun: bool, stop_consumed: Optional[str]) -> Baton:
    """A resume: it clears `done` and `closed` and keeps the checkpoints, unless the run starts over (`rerun`). The best
    checkpoints stay even then, until there are new ones, because it is unknown yet whether the new ones are better.

    The holder counts as left. Its agent may have been out of reach while the baton was closed; the resume must not give
    it the right to write again.
    """
    if generation <= baton.generation:
        return baton
    holder = None if baton.holder is None else baton.holder._replace(left=True)
    return Baton(
        supervisor_id=baton.supervisor_id,
        generation=generation,
        holder=holder,
        checkpoint=None if rerun else baton.checkpoint,
        previous=() if rerun else baton.previous,
        kept=() if rerun else baton.kept,
        best=baton.best,
        last=None if rerun else baton.last,
        stop_consumed=stop_consumed or baton.stop_consumed,
        home=baton.home,
    )


def move_in(baton: Baton, home: Home) -> Baton:
    """The run gets its home there, which is not ready yet. Its holder here may write nothing more."""
    return fence(baton)._replace(home=home._replace(ready=False))


def move_out(baton: Baton) -> Baton:
    """For a baton in its home: nothing more is written there, and its content goes on elsewhere."""
    if is_moved(baton):
        return baton
    return fence(baton)._replace(closed=MOVED + (": " + baton.closed if baton.closed else ""))


def is_moved(baton: Baton) -> bool:
    return baton.closed is not None and baton.closed.startswith(MOVED)


def moved_content(baton: Baton) -> Baton:
    """What goes on elsewhere of a baton after `move_out`."""
    return baton._replace(closed=(baton.closed or "")[len(MOVED + ": ") :] or None, home=None)


def write_off(baton: Baton) -> Baton:
    """For the supervisor's own object: the home is lost, and what is here goes on."""
    return fence(baton)._replace(home=None)


def fence(baton: Baton) -> Baton:
    """The present holder counts as left: it may write nothing more."""
    return baton._replace(holder=None if baton.holder is None else baton.holder._replace(left=True))


def purge(baton: Baton) -> Baton:
    """The run's files are about to be deleted: the baton names nothing any more, and no agent writes after this."""
    return baton._replace(
        checkpoint=None, previous=(), kept=(), best=(), last=None, done=None, closed=PURGED, home=None
    )


# --- the agent's changes ------------------------------------------------------------------------------------------


def standing(baton: Baton, launch_id: str, machine_id: str, waited_s: float) -> str:
    """What this agent may do: MINE (it is the holder), CLAIM (it may claim now), WAIT, OVER (closed or done), OUTDATED
    (it must stop).

    `waited_s`: seconds on the agent's own monotonic clock since it first saw its launch as next.
    """
    holder = baton.holder
    if baton.closed is not None or (baton.done is not None and baton.done.launch_id != launch_id):
        return OVER
    if holder is not None and holder.launch_id == launch_id:
        return MINE if holder.machine_id == machine_id and not holder.left else OUTDATED
    if baton.next is None or baton.next.launch_id != launch_id:
        return OUTDATED
    free = holder is None or holder.left or baton.next.holder_gone
    return CLAIM if free or waited_s >= CLAIM_WAIT_S else WAIT


def claim(baton: Baton, launch_id: str, machine_id: str, waited_s: float) -> Baton:
    verdict = standing(baton, launch_id, machine_id, waited_s)
    if verdict == MINE:
        return baton
    if verdict != CLAIM or baton.next is None:
        raise BatonRefused("cannot claim: %s" % verdict)
    return baton._replace(holder=Holder(baton.next.attempt, launch_id, machine_id))


def take_back(baton: Baton, launch_id: str, machine_id: str) -> Baton:
    """For an agent that is started again on its machine: its own earlier process, which is dead for certain, may have
    left at the shutdown of the computer. Unchanged where the run is over, or where a newer try is next."""
    holder, own = baton.holder, baton.next is not None and baton.next.launch_id == launch_id
    is_over = baton.closed is not None or baton.done is not None
    if holder is None or not own or is_over or (holder.launch_id, holder.machine_id) != (launch_id, machine_id):
        return baton
    return baton._replace(holder=holder._replace(left=False))


def leave(baton: Baton, launch_id: str, machine_id: str) -> Baton:
    """The holder has finished its last save. Allowed after `closed` too: it only says that no agent writes."""
    holder = baton.holder
    if holder is None or (holder.launch_id, holder.machine_id) != (launch_id, machine_id):
        raise BatonRefused("not the holder")
    return baton._replace(holder=holder._replace(left=True))


def move_checkpoint(baton: Baton, launch_id: str, machine_id: str, pointer: Pointer, keep: Keep = KEEP) -> Baton:
    """Point to a verified checkpoint, and name no longer what `keep` does not keep. A newer `next` does not forbid it:
    the holder finishes its save first. `last` is cleared, because those results are older than this checkpoint's."""
    _require_holder(baton, launch_id, machine_id)
    if baton.checkpoint == pointer:
        return baton
    before = () if baton.checkpoint is None else (baton.checkpoint, *baton.previous)
    previous_kept = max(NEWEST_KEPT, keep.last) - 1
    kept = milestones((*baton.kept, *reversed(before[previous_kept:])), keep.every)
    best = baton.best[: keep.best]
    return baton._replace(checkpoint=pointer, previous=before[:previous_kept], kept=kept, best=best, last=None)


def milestones(pointers: Iterable[Pointer], every: Optional[int]) -> Tuple[Pointer, ...]:
    """The first checkpoint at or after each full `every` steps, highest first; beyond MILESTONES_KEPT the oldest go. A
    checkpoint that misses the multiple (after a resume, or because steps are saved by the clock) counts for it."""
    first: Dict[int, Pointer] = {}
    for pointer in pointers:
        reached = pointer.step // every if every else 0
        if reached and (reached not in first or pointer.step < first[reached].step):
            first[reached] = pointer
    return tuple(first[reached] for reached in sorted(first, reverse=True)[:MILESTONES_KEPT])


def keep_best(baton: Baton, launch_id: str, machine_id: str, pointer: Pointer, keep: Keep = KEEP) -> Baton:
    """Name a verified entry called best*; the newest `keep.best` of these entries stay."""
    _require_holder(baton, launch_id, machine_id)
    return baton if baton.best[:1] == (pointer,) else baton._replace(best=(pointer, *baton.best)[: keep.best])


def drop_checkpoint(baton: Baton, launch_id: str, machine_id: str) -> Baton:
    """The newest checkpoint did not verify: the previous one counts now, and after the last previous one the newest
    milestone."""
    _require_holder(baton, launch_id, machine_id)
    if baton.previous:
        return baton._replace(checkpoint=baton.previous[0], previous=baton.previous[1:])
    return baton._replace(checkpoint=next(iter(baton.kept), None), kept=baton.kept[1:])


def keep_results(baton: Baton, launch_id: str, machine_id: str, manifest: FileEntry) -> Baton:
    """Name the results at the end of an attempt: they are for people, no resume starts from them."""
    _require_holder(baton, launch_id, machine_id)
    return baton._replace(last=manifest)


def saved_results(baton: Baton) -> Tuple[FileEntry, ...]:
    """Every manifest of results that is kept, the newest first."""
    newest = () if baton.last is None else (baton.last,)
    return (*newest, *(pointer.results for pointer in pointers(baton) if pointer.results is not None))


def pointers(baton: Baton) -> Tuple[Pointer, ...]:
    """Every checkpoint that is kept: the newest first, then milestones, then the best ones."""
    return (*((baton.checkpoint,) if baton.checkpoint else ()), *baton.previous, *baton.kept, *baton.best)


def finish(baton: Baton, machine_id: str, done: Done) -> Baton:
    _require_holder(baton, done.launch_id, machine_id)
    return baton._replace(done=done, last=None)


def _require_holder(baton: Baton, launch_id: str, machine_id: str) -> None:
    verdict = standing(baton, launch_id, machine_id, 0.0)
    if verdict != MINE:
        raise BatonRefused("not the holder: %s" % verdict)


# --- bytes --------------------------------------------------------------------------------------------------------


def encode(baton: Baton) -> bytes:
    return json.dumps(_plain(baton), indent=1, sort_keys=True).encode()


def _plain(value: Any) -> Any:
    """As JSON: each record here becomes an object, each other tuple a list."""
    if not isinstance(value, tuple):
        return value
    names = getattr(value, "_fields", None)
    return [*map(_plain, value)] if names is None else dict(zip(names, map(_plain, value)))


def decode(raw: bytes) -> Baton:
    """The baton in `raw`; ValueError when it is torn or not a baton."""
    try:
        data = json.loads(raw)
        return Baton(
            supervisor_id=data["supervisor_id"],
            generation=int(data["generation"]),
            next=Next(**data["next"]) if data.get("next") else None,
            holder=Holder(**data["holder"]) if data.get("holder") else None,
            checkpoint=_pointer(data.get("checkpoint")),
            previous=_pointers(data.get("previous")),
            kept=_pointers(data.get("kept")),
            best=_pointers(data.get("best")),
            last=_entry(data.get("last")),
            done=_done(data.get("done")),
            closed=data.get("closed"),
            stop_consumed=data.get("stop_consumed"),
            home=Home(**data["home"]) if data.get("home") else None,
            drill=DrillOrder(**data["drill"]) if data.get("drill") else None,
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("not a baton: %s" % error) from None


def _pointer(data: Optional[Dict[str, Any]]) -> Optional[Pointer]:
    if not data:
        return None
    files = tuple(FileEntry(**entry) for entry in data["files"])
    counts = (None if data.get(name) is None else int(data[name]) for name in ("reported", "total"))
    return Pointer(int(data["step"]), data["prefix"], files, _entry(data.get("results")), *counts)


def _entry(data: Optional[Dict[str, Any]]) -> Optional[FileEntry]:
    return FileEntry(**data) if data else None


def _pointers(data: Optional[Iterable[Any]]) -> Tuple[Pointer, ...]:
    """`data` None: the baton was written before this field existed."""
    return tuple(pointer for pointer in map(_pointer, data or ()) if pointer is not None)


def _done(data: Optional[Dict[str, Any]]) -> Optional[Done]:
    files = tuple(FileEntry(**entry) for entry in data["results"]) if data else ()
    return Done(**{**data, "results": files, "lost": tuple(data.get("lost") or ())}) if data else None

"""The supervisor's changes of the baton. Each is a compare-and-set that is retried when an agent was faster."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, BatonRefused
from supervisor.contract.drill import DrillOrder
from supervisor.domain.run import Run
from supervisor.lifecycle.ending.retiring import lost_launches
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed, StoreUnavailable

ROUNDS = 8


def change(objects: ObjectStore, run_id: str, step: Callable[[Baton | None], Baton | None]) -> Baton | None:
    """Read, change, and write if the object has not changed. `step` gets None where there is no baton, and returns None
    or the same baton for "nothing to write". Raises StoreUnavailable, BatonRefused; ValueError when the baton is
    torn."""
    key = runfiles.baton(run_id)
    for _ in range(ROUNDS):
        try:
            raw, info = objects.get(key)
            before, generation = batons.decode(raw), info.generation
        except ObjectMissing:
            before, generation = None, ABSENT
        after = step(before)
        if after is None or after == before:
            return before
        try:
            objects.put(key, batons.encode(after), if_generation=generation)
            return after
        except PreconditionFailed:
            continue
    raise StoreUnavailable(f"the baton of {run_id} changed {ROUNDS} times while it was being written")


def current_generation(baton: Baton | None, run: Run, supervisor_id: str) -> Baton:
    """The baton in this run's generation: created, or opened again after a resume."""
    if baton is None:
        return batons.create(supervisor_id, run.generation)
    return batons.open_generation(baton, run.generation, run.rerun, run.stop_consumed)


def raise_next(
    objects: ObjectStore, run: Run, launch_id: str, holder_gone: bool, supervisor_id: str, *, beside: str = ""
) -> tuple[str, bool]:
    """Let this try claim next: (its nonce, whether it is new). The nonce is the one that is already there (a repeat
    after a crash), else a new one: then no create call with it can have been made. `beside`: the first launch of the
    race in which this one was the second; its nonce follows from that one's."""
    fresh, lost = secrets.token_hex(16), lost_launches(run)

    def step(baton: Baton | None) -> Baton:
        now = current_generation(baton, run, supervisor_id)
        nonce, next_ = fresh, now.next
        if next_ is not None and next_.launch_id == launch_id:
            nonce = next_.nonce
        elif next_ is not None and beside and next_.launch_id == beside:
            nonce = rival_nonce(next_.nonce, launch_id)
        # From here on a machine that lost cannot claim; it may have done so before.
        lost_holds = now.holder is not None and now.holder.launch_id in lost
        return batons.raise_next(now, launch_id, nonce, holder_gone and not lost_holds)

    after = change(objects, run.run_id, step)
    if after is None or after.next is None or after.next.launch_id != launch_id:
        raise BatonRefused(f"try {launch_id} is not next")
    return after.next.nonce, after.next.nonce == fresh


def rival_nonce(nonce: str, launch_id: str) -> str:
    """Of the second launch of a race: the baton has one nonce, and after a crash both are needed again."""
    return hashlib.sha256(f"{nonce} {launch_id}".encode()).hexdigest()[:32]


def mark_holder_gone(objects: ObjectStore, run_id: str, launch_id: str) -> None:
    change(objects, run_id, lambda baton: baton and batons.mark_holder_gone(baton, launch_id))


def order_drill(objects: ObjectStore, run_id: str, order: DrillOrder) -> None:
    change(objects, run_id, lambda baton: baton and batons.order_drill(baton, order))


def close(objects: ObjectStore, run: Run, reason: str, supervisor_id: str) -> bool:
    """No agent writes after this. A baton of an earlier generation is opened first: the close belongs to this one.
    False when a resume has opened a later generation in between: its agents go on, and nothing of the run may be
    cleaned up."""

    def step(baton: Baton | None) -> Baton | None:
        if baton is None or baton.generation > run.generation:
            return baton
        return batons.close(current_generation(baton, run, supervisor_id), reason)

    after = change(objects, run.run_id, step)
    return after is None or after.generation == run.generation


def write_stop(objects: ObjectStore, run_id: str, actor: str) -> None:
    """Its existence requests the stop; a marker that is already there stays as it is."""
    try:
        objects.put(runfiles.stop_marker(run_id), json.dumps({"by": actor}).encode(), if_generation=ABSENT)
    except PreconditionFailed:
        return

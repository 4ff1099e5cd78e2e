"""The orders of a run (contract/runfiles.py), as the supervisor writes them: one object, changed by compare-and-set.

Nothing of them is in the database or in a tick. The agent learns of a change by the response to its next beat, and
beats come faster for a while.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.contract import runfiles
from supervisor.contract.runfiles import Orders
from supervisor.domain.errors import NotSupportedHere, RunEnded, Unavailable
from supervisor.domain.profile import Reach
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import RACES_MAX

Step = Callable[[Orders], Orders]


def read_orders(objects: ObjectStore, run_id: str) -> tuple[Orders, str]:
    """(empty ones where there are none, their generation). Raises StoreUnavailable, Unavailable (torn)."""
    try:
        raw, info = objects.get(runfiles.orders(run_id))
        return runfiles.decode_orders(raw), info.generation
    except ObjectMissing:
        return Orders(), ABSENT
    except ValueError:
        text = f"The orders of {run_id} in the object store cannot be parsed. Delete {runfiles.orders(run_id)} there."
        raise Unavailable(text, {"run_id": run_id}) from None


def change_orders(objects: ObjectStore, run_id: str, step: Step) -> Orders:
    """`step` gets the present orders, again after each race. Raises what `step` and `read_orders` raise."""
    for _ in range(RACES_MAX):
        orders, generation = read_orders(objects, run_id)
        after = step(orders)
        if after == orders:
            return orders
        after = after._replace(number=orders.number + 1)
        try:
            objects.put(runfiles.orders(run_id), runfiles.encode_orders(after), generation)
        except PreconditionFailed:
            continue
        return after
    raise Unavailable(f"The orders of {run_id} kept changing; nothing was done. Retry.", {"run_id": run_id})


def refuse_unreachable(parts: Parts, run: Run) -> None:
    """Raises RunEnded; NotSupportedHere where the run's machines cannot reach our object store."""
    if run.terminal:
        text = f"{run.run_id} is {run.status}: it has no machine, and gets none before a resume."
        raise RunEnded(text, {"run_id": run.run_id, "status": run.status})
    for name in run.providers:
        provider = parts.providers.get(name)
        if provider is not None and provider.profile().store_reach.value is Reach.RELAY:
            text = f"The machines of {run.run_id} on {name} cannot reach the object store, which carries this. "
            text += f"`spot attach {run.run_id}` opens a shell there."
            raise NotSupportedHere(text, {"run_id": run.run_id, "provider": name})

"""Parts of an observation that are read only when a decision asks for them: baton, stop marker, one machine by id.

Bounded threads: a thousand runs that want their stop marker at once do not make a thousand connections. With several
providers their machines are asked for beside that, each provider with its bound (reconciler/fleet).
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton
from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.machines import Machine, MachineRef
from supervisor.domain.observation import BATON, LOOKUP, STOP, Absent, Observation, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.reconciler.fleet import LookedUp, fleet_of

Wanted = list[tuple[Run, Observation, frozenset[str]]]


def read_baton(objects: ObjectStore, run_id: str) -> Part[Baton]:
    try:
        raw, _ = objects.get(runfiles.baton(run_id))
        return Seen(batons.decode(raw), 0.0, "store")
    except ObjectMissing:
        return Absent(0.0, "store")
    except StoreUnavailable as error:
        return Unknown(str(error))
    except ValueError as error:
        return Unknown(f"the baton cannot be understood: {error}", torn=True)


def read_stop(objects: ObjectStore, run_id: str) -> Part[str]:
    """The .stop marker's generation: existence is the message."""
    try:
        return Seen(objects.stat(runfiles.stop_marker(run_id)).generation, 0.0, "store")
    except ObjectMissing:
        return Absent(0.0, "store")
    except StoreUnavailable as error:
        return Unknown(str(error))


def look_up(provider: Provider, ref: MachineRef, launch_id: str) -> Part[Machine]:
    try:
        return judged(provider.find(ref), ref, launch_id)
    except ProviderUnavailable as error:
        return Unknown(str(error))


def judged(answer: LookedUp, ref: MachineRef, launch_id: str) -> Part[Machine]:
    """The answer to `find`, and whether it is the machine of this launch."""
    machine = answer
    if isinstance(machine, ProviderUnavailable):
        return Unknown(str(machine))
    if machine is None or not (_same(machine, ref) or machine.launch_id == launch_id):
        return Absent(0.0, "lookup")
    return Seen(machine, 0.0, "lookup")


def _same(machine: Machine, ref: MachineRef) -> bool:
    """A machine is what its id says: of one that is gone the platform may know no label any more."""
    return bool(ref.machine_id) and machine.machine_id == ref.machine_id


class Readers:
    def __init__(
        self,
        objects: ObjectStore,
        providers: Mapping[str, Provider],
        threads: int = 8,
        executor: Executor | None = None,
    ) -> None:
        self._objects = objects
        self._fleet = fleet_of(providers)
        self._pool = executor or ThreadPoolExecutor(threads, thread_name_prefix="read")

    def read(self, wanted: Wanted) -> list[dict[str, object]]:
        """Of each observation the parts that were wanted, by their names, in the same order."""
        parts_of = partial(self._parts, self._lookups(wanted))
        asked = [(run, wants) for run, _, wants in wanted]
        if len(asked) == 1:
            return [parts_of(*asked[0])]
        return list(self._pool.map(lambda item: parts_of(*item), asked))

    def _lookups(self, wanted: Wanted) -> Mapping[MachineRef, LookedUp]:
        """Of several providers; a lone one is asked with all the rest."""
        if self._fleet.lone:
            return {}
        owners = [_owner(run) for run, _, wants in wanted if LOOKUP in wants]
        return self._fleet.lookups([owner.ref for owner in owners if owner is not None])

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _parts(self, lookups: Mapping[MachineRef, LookedUp], run: Run, wants: frozenset[str]) -> dict[str, object]:
        parts: dict[str, object] = {}
        if BATON in wants:
            parts["baton"] = read_baton(self._objects, run.run_id)
        if STOP in wants:
            parts["stop"] = read_stop(self._objects, run.run_id)
        if LOOKUP in wants:
            parts["lookup"] = self._look_up(run, lookups)
        return parts

    def _look_up(self, run: Run, lookups: Mapping[MachineRef, LookedUp]) -> Part[Machine]:
        owner = _owner(run)
        if owner is None:
            return Unknown("there is no machine to look up")
        if owner.ref in lookups:
            return judged(lookups[owner.ref], owner.ref, owner.launch_id)
        return look_up(self._fleet, owner.ref, owner.launch_id)


def _owner(run: Run) -> Attempt | Try | None:
    """Whose machine is asked for."""
    return run.live_attempt or run.open_try

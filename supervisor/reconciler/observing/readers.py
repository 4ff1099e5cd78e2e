"""Parts of an observation that are read for single runs: baton, stop marker, one machine by its id.

A decision requests them (`wants`). The stop marker of each active run is also read once in ten minutes, in rotation.
Threads are bounded: a thousand runs that want their stop marker at once do not open a thousand connections. With
several providers their machines are looked up beside that, within the bound of each provider (reconciler/fleet).
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
from supervisor.domain.observation import (
    BATON,
    LOOKUP,
    STOP,
    Absent,
    Observation,
    Part,
    Seen,
    Unknown,
    unless_written_off,
)
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.reconciler.fleet import LookedUp, fleet_of

Wanted = list[tuple[Run, Observation, frozenset[str]]]


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
        """For each observation the wanted parts by their names, in the same order."""
        parts_of = partial(self._parts, self._lookups(wanted))
        if len(wanted) == 1:
            run, _, wants = wanted[0]
            return [parts_of(run, wants)]
        return list(self._pool.map(parts_of, [run for run, _, _ in wanted], [wants for _, _, wants in wanted]))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _lookups(self, wanted: Wanted) -> Mapping[MachineRef, LookedUp]:
        """With several providers; a lone provider is called together with the other reads."""
        if self._fleet.lone:
            return {}
        owners = [_owner(run) for run, _, wants in wanted if LOOKUP in wants]
        return self._fleet.lookups([owner.ref for owner in owners if owner is not None])

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
            part = _looked_up(lookups[owner.ref], owner.ref, owner.launch_id)
        else:
            part = look_up(self._fleet, owner.ref, owner.launch_id)
        return unless_written_off(part, owner.launch_id, run.written_off)


def _owner(run: Run) -> Attempt | Try | None:
    """The attempt or try whose machine is looked up."""
    return run.live_attempt or run.open_try


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
    """The .stop marker's generation. Its existence requests the stop."""
    try:
        return Seen(objects.stat(runfiles.stop_marker(run_id)).generation, 0.0, "store")
    except ObjectMissing:
        return Absent(0.0, "store")
    except StoreUnavailable as error:
        return Unknown(str(error))


def look_up(provider: Provider, ref: MachineRef, launch_id: str) -> Part[Machine]:
    try:
        return _looked_up(provider.find(ref), ref, launch_id)
    except ProviderUnavailable as error:
        return Unknown(str(error))


def _looked_up(answer: LookedUp, ref: MachineRef, launch_id: str) -> Part[Machine]:
    """A machine is identified by its id: of one that is gone the platform may not show labels any more."""
    if isinstance(answer, ProviderUnavailable):
        return Unknown(str(answer))
    if answer is None:
        return Absent(0.0, "lookup")
    same = bool(ref.machine_id) and answer.machine_id == ref.machine_id
    return Seen(answer, 0.0, "lookup") if same or answer.launch_id == launch_id else Absent(0.0, "lookup")

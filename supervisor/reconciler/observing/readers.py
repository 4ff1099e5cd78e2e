"""Parts of an observation that are read only when a decision asks for them: baton, stop marker, one machine by id."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton
from supervisor.domain.machines.machine import Machine, MachineRef
from supervisor.domain.observation import BATON, LOOKUP, STOP, Absent, Observation, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.ports.provider import Provider, ProviderUnavailable

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
        machine = provider.find(ref)
    except ProviderUnavailable as error:
        return Unknown(str(error))
    if machine is None or not (_same(machine, ref) or machine.launch_id == launch_id):
        return Absent(0.0, "lookup")
    return Seen(machine, 0.0, "lookup")


def _same(machine: Machine, ref: MachineRef) -> bool:
    """A machine is what its id says: of one that is gone the platform may know no label any more."""
    return bool(ref.machine_id) and machine.machine_id == ref.machine_id


class Readers:
    """Bounded threads: a thousand runs that want their stop marker at once do not make a thousand connections."""

    def __init__(
        self,
        objects: ObjectStore,
        providers: dict[str, Provider],
        threads: int = 8,
        executor: Executor | None = None,
    ) -> None:
        self._objects = objects
        self._providers = providers
        self._pool = executor or ThreadPoolExecutor(threads, thread_name_prefix="read")

    def read(self, wanted: Wanted) -> list[Observation]:
        """Each observation with the parts that were wanted, in the same order."""
        if len(wanted) == 1:
            return [self._one(*wanted[0])]
        return list(self._pool.map(lambda item: self._one(*item), wanted))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _one(self, run: Run, obs: Observation, wants: frozenset[str]) -> Observation:
        parts: dict[str, object] = {}
        if BATON in wants:
            parts["baton"] = read_baton(self._objects, run.run_id)
        if STOP in wants:
            parts["stop"] = read_stop(self._objects, run.run_id)
        if LOOKUP in wants:
            parts["lookup"] = self._look_up(run)
        return replace(obs, **parts)  # type: ignore[arg-type]

    def _look_up(self, run: Run) -> Part[Machine]:
        attempt, try_ = run.live_attempt, run.open_try
        ref = attempt.ref if attempt is not None else try_.ref if try_ is not None else None
        launch_id = attempt.launch_id if attempt is not None else try_.launch_id if try_ is not None else ""
        if ref is None:
            return Unknown("there is no machine to look up")
        return look_up(self._providers[run.provider], ref, launch_id)

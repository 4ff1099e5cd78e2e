"""The end of a machine: asked for once, not waited for, and believed when the platform says so twice.

Overlapping deletes are answered with 403 first and 404 later, and a listing may leave out a machine that is still going
away. So a machine that is going already is left to go, and one that we released and that a later listing leaves out is
asked for by name and id before it counts as gone.

Taking a Spot VM away on purpose: Google's own simulation, which ends in a real preemption with its record.

https://cloud.google.com/compute/docs/instances/simulating-host-maintenance. The VM is looked at first: only the one
with this id, of a supervisor, and only a Spot VM; an on-demand one would be stopped, and nothing is learnt from that.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from supervisor.domain.machines import SUPERVISOR_LABEL, Machine, MachineRef, MachineState
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.machines.machine import GOING, machine_of
from supervisor.providers.gce.machines.records import RELEASES, release_request_id

CONFIRMED_PER_TICK = 64  # the others wait for the next tick and are listed as ending meanwhile


@dataclass(slots=True)
class _Released:
    machine: Machine
    number: int = 1  # of the delete's request id


class Releaser:
    def __init__(self, compute: Compute, threads: Executor) -> None:
        self._compute, self._threads = compute, threads
        self._lock = threading.Lock()
        self._released: dict[str, _Released] = {}  # machine id -> what we asked for

    def release(self, ref: MachineRef) -> None:
        """Returns when Google has accepted, or the machine is gone, or it is going. ProviderUnavailable."""
        try:
            item = self._compute.get(ref.zone, ref.name)
            if item is None or (ref.machine_id and str(item["id"]) != ref.machine_id):
                return
            released = self._remember(machine_of(item, ref.zone))
            if str(item.get("status")) not in GOING:
                self._delete(ref, released)
        except ApiError as error:
            raise ProviderUnavailable(f"release of {ref.name}: {error}") from error

    def _delete(self, ref: MachineRef, released: _Released) -> None:
        machine_id = released.machine.machine_id
        try:
            operation = self._compute.delete(ref.zone, ref.name, release_request_id(machine_id, released.number))
        except ApiError as error:
            if error.status not in (403, 404, 409) or error.transient:
                raise
            # Somebody's delete came first, or we may not delete at all: the machine itself tells which.
            item = self._compute.get(ref.zone, ref.name)
            if item is None or str(item["id"]) != machine_id or str(item.get("status")) in GOING:
                return
            raise
        failures = (operation.get("error") or {}).get("errors")
        if failures:
            # The same request id would be told of the same failure for ever.
            released.number = released.number % RELEASES + 1
            said = "; ".join(f"{one.get('code')}: {one.get('message')}" for one in failures)
            raise ProviderUnavailable(f"release of {ref.name}: {said}")

    def _remember(self, machine: Machine) -> _Released:
        ending = replace(machine, state=MachineState.ENDING, detail="being deleted")
        with self._lock:
            return self._released.setdefault(machine.machine_id, _Released(ending))

    def unconfirmed(self, listed: Collection[str], unreachable: Collection[str]) -> list[Machine]:
        """Machines that we released, that the listing (ids) leaves out, and that are not known to be gone."""
        with self._lock:
            left_out = [
                released.machine
                for machine_id, released in self._released.items()
                if machine_id not in listed and released.machine.zone not in unreachable
            ]
        asked, silent = left_out[:CONFIRMED_PER_TICK], set[str]()
        answers = self._threads.map(lambda machine: self._is_gone(machine, silent), asked)
        gone = {machine.machine_id for machine, is_gone in zip(asked, answers, strict=True) if is_gone}
        with self._lock:
            for machine in asked:  # those that are left go to the end: the others come first next time
                released = self._released.pop(machine.machine_id, None)
                if released is not None and machine.machine_id not in gone:
                    self._released[machine.machine_id] = released
        return [machine for machine in left_out if machine.machine_id not in gone]

    def _is_gone(self, machine: Machine, silent: set[str]) -> bool:
        """`silent`: zones that gave no answer in this tick, which waits for each; they are left for the next."""
        if machine.zone in silent:
            return False
        try:
            item = self._compute.get(machine.zone, machine.name)
        except ApiError:
            silent.add(machine.zone)
            return False
        return item is None or str(item["id"]) != machine.machine_id


FIELDS = "id,labels,status,scheduling/provisioningModel"
ELSEWHERE = "on Google Cloud a machine can be preempted only (spot dev preempt); the rest is for local machines"


class GceDisasters:
    """Disasters of ports/provider.py. The notice is that of the VM (`gce_notice_s`): nobody can choose another one."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        place = f"zones/{ref.zone}/instances/{ref.name}"
        try:
            vm = self._compute.read(place, fields=FIELDS)
            if not ref.machine_id or str(vm.get("id")) != ref.machine_id or vm.get("status") != "RUNNING":
                raise MachineMissing(ref.name)
            if not (vm.get("labels") or {}).get(SUPERVISOR_LABEL):
                raise MachineMissing(ref.name)
            if (vm.get("scheduling") or {}).get("provisioningModel") != "SPOT":
                raise NotSupported(f"{ref.name} is no Spot VM: Google would stop it, and no preemption would be seen")
            self._compute.post(f"{place}/simulateMaintenanceEvent", None)
        except ApiError as error:
            if error.missing:
                raise MachineMissing(ref.name) from error
            raise ProviderUnavailable(f"preemption of {ref.name}: {error}") from error

    def kill(self, ref: MachineRef) -> None:
        raise NotSupported(ELSEWHERE)

    def freeze(self, ref: MachineRef) -> None:
        raise NotSupported(ELSEWHERE)

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        raise NotSupported(ELSEWHERE)

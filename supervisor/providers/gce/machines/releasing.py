"""How the supervisor ends machines: releases, and preemptions on purpose.

A release is requested once and not waited for. Google answers overlapping deletes with 403 first and 404 later, and a
listing may leave out a machine that is still being deleted. So a machine that is already ending is not deleted again.
A released machine that a later listing leaves out counts as gone only after a get by its name and id says so too.

`spot dev preempt` uses Google's own simulation, which ends in a real preemption with its record:
https://cloud.google.com/compute/docs/instances/simulating-host-maintenance. It first reads the VM: the id must be the
same, a supervisor must own it, and it must be a Spot VM (Google would only stop an on-demand VM).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from supervisor.domain.machines import SUPERVISOR_LABEL, Machine, MachineRef, MachineState
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, as_unavailable
from supervisor.providers.gce.machines.machine import GOING, machine_of
from supervisor.providers.gce.machines.records import RELEASES, release_request_id

CONFIRMED_PER_TICK = 64  # the others wait for the next tick and are listed as ending until then
FIELDS = "id,labels,status,scheduling/provisioningModel"
ONLY_LOCAL = "on Google Cloud a machine can only be preempted (spot dev preempt); the rest is for local machines"


@dataclass(slots=True)
class _Released:
    machine: Machine
    number: int = 1  # of the delete's request id


class Releaser:
    def __init__(self, compute: Compute, threads: Executor) -> None:
        self._compute, self._threads = compute, threads
        self._lock = threading.Lock()
        self._released: dict[str, _Released] = {}  # by machine id

    def release(self, ref: MachineRef) -> None:
        """Returns when Google accepted the delete, or the machine is ending or gone. ProviderUnavailable."""
        with as_unavailable(f"release of {ref.name}"):
            item = self._compute.get(ref.zone, ref.name)
            if item is None or (ref.machine_id and str(item["id"]) != ref.machine_id):
                return
            released = self._remember(machine_of(item, ref.zone))
            if str(item.get("status")) not in GOING:
                self._delete(ref, released)

    def unconfirmed(self, listed: Collection[str], unreachable: Collection[str]) -> list[Machine]:
        """Released machines that the listing (ids) leaves out, and that may still exist."""
        with self._lock:
            left_out = [
                released.machine
                for machine_id, released in self._released.items()
                if machine_id not in listed and released.machine.zone not in unreachable
            ]
        checked, silent_zones = left_out[:CONFIRMED_PER_TICK], set[str]()
        results = self._threads.map(lambda machine: self._is_gone(machine, silent_zones), checked)
        gone = {machine.machine_id for machine, is_gone in zip(checked, results, strict=True) if is_gone}
        with self._lock:
            for machine in checked:  # the rest of these move to the end: the others come first in the next tick
                released = self._released.pop(machine.machine_id, None)
                if released is not None and machine.machine_id not in gone:
                    self._released[machine.machine_id] = released
        return [machine for machine in left_out if machine.machine_id not in gone]

    def _delete(self, ref: MachineRef, released: _Released) -> None:
        machine_id = released.machine.machine_id
        try:
            operation = self._compute.delete(ref.zone, ref.name, release_request_id(machine_id, released.number))
        except ApiError as error:
            if error.status not in (403, 404, 409) or error.transient:
                raise
            # Another delete came first, or this account may not delete at all: the machine itself shows which.
            item = self._compute.get(ref.zone, ref.name)
            if item is None or str(item["id"]) != machine_id or str(item.get("status")) in GOING:
                return
            raise
        failures = (operation.get("error") or {}).get("errors")
        if failures:
            # Google would answer the same request id with the same failure forever.
            released.number = released.number % RELEASES + 1
            text = "; ".join(f"{failure.get('code')}: {failure.get('message')}" for failure in failures)
            raise ProviderUnavailable(f"release of {ref.name}: {text}")

    def _remember(self, machine: Machine) -> _Released:
        ending = replace(machine, state=MachineState.ENDING, detail="being deleted")
        with self._lock:
            return self._released.setdefault(machine.machine_id, _Released(ending))

    def _is_gone(self, machine: Machine, silent_zones: set[str]) -> bool:
        """`silent_zones`: zones without a response in this tick. The tick waits for each one, so their other machines
        are left for the next tick."""
        if machine.zone in silent_zones:
            return False
        try:
            item = self._compute.get(machine.zone, machine.name)
        except ApiError:
            silent_zones.add(machine.zone)
            return False
        return item is None or str(item["id"]) != machine.machine_id


class GceDisasters:
    """Disasters of ports/provider.py. The length of the notice is that of the VM (`gce_notice_s`)."""

    def __init__(self, compute: Compute) -> None:
        self._compute = compute

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        path = f"zones/{ref.zone}/instances/{ref.name}"
        try:
            vm = self._compute.read(path, fields=FIELDS)
            is_same = ref.machine_id and str(vm.get("id")) == ref.machine_id and vm.get("status") == "RUNNING"
            if not is_same or not (vm.get("labels") or {}).get(SUPERVISOR_LABEL):
                raise MachineMissing(ref.name)
            if (vm.get("scheduling") or {}).get("provisioningModel") != "SPOT":
                raise NotSupported(f"{ref.name} is not a Spot VM: Google would stop it instead of preempting it")
            self._compute.post(f"{path}/simulateMaintenanceEvent", None)
        except ApiError as error:
            if error.missing:
                raise MachineMissing(ref.name) from error
            raise ProviderUnavailable(f"preemption of {ref.name}: {error}") from error

    def kill(self, ref: MachineRef) -> None:
        raise NotSupported(ONLY_LOCAL)

    def freeze(self, ref: MachineRef) -> None:
        raise NotSupported(ONLY_LOCAL)

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        raise NotSupported(ONLY_LOCAL)

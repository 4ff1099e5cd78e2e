"""Taking a Spot VM away on purpose: Google's own simulation, which ends in a real preemption with its record.

https://cloud.google.com/compute/docs/instances/simulating-host-maintenance. The VM is looked at first: only the one
with this id, of a supervisor, and only a Spot VM; an on-demand one would be stopped, and nothing is learnt from that.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.domain.machines.machine import SUPERVISOR_LABEL, MachineRef
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError

FIELDS = "id,labels,status,scheduling/provisioningModel"
ELSEWHERE = (
    "on Google Cloud a machine can be preempted only (spot dev preempt); the rest is for local machines"
)


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
                raise NotSupported(
                    f"{ref.name} is no Spot VM: Google would stop it, and no preemption would be seen"
                )
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

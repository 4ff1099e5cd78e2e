"""What a test lets happen to machines: preemption, a host that breaks, a person who deletes, a guest that switches off.

All of it is safe from any thread; hooks are called on the way out, in the caller's thread unless the fake is live.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.cloud.compute_faults import Faults
from tests.cloud.compute_instances import Instance
from tests.cloud.compute_operations import Operation


class Controls(Faults):
    def __init__(self, clock: Callable[[], float], project: str, live: bool) -> None:
        super().__init__(clock, project, live)
        self._fated: dict[str, tuple[float, float | None]] = {}
        self.on_serial: Callable[[Instance, bytes], None] | None = None

    def preempt(
        self,
        name: str,
        zone: str | None = None,
        *,
        record: bool = True,
        notice: bool = True,
        record_after_s: float = 0.0,
    ) -> None:
        """After the VM's preemptionNoticeDuration (0 or 120 s): STOPPING, then its termination action. `record`: the
        operation compute.instances.preempted is kept, `record_after_s` later than it says. `notice`: the machine is
        told (on_notice)."""
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self._preempt(vm, now, notice, record_after_s if record else None)
        self._settle()

    def simulate(self, vm: Instance, user: str, now: float) -> Operation:
        """simulateMaintenanceEvent: of a Spot VM it is a preemption; any other is stopped by its maintenance."""
        operation = self.begin("simulateMaintenanceEvent", vm, user, now)
        if vm.spot:
            self._preempt(vm, now, notice=True, late_s=0.0)
        else:
            self.record("terminateOnHostMaintenance", vm, "Instance terminated during maintenance.", now)
            self.stop(vm, user, now)
        self.end(operation, now)
        return self.operations.get(operation.zone, operation.name)

    def _preempt(self, vm: Instance, now: float, notice: bool, late_s: float | None) -> None:
        notice_s = vm.seconds("preemptionNoticeDuration") or 0.0
        if notice and vm.powered:
            self.later(self.on_notice, vm, notice_s)
        self.plan_for(vm, now + notice_s, lambda at: self.take_away(vm, at, late_s))

    def preempt_when_created(self, zone: str, after_s: float, *, record: bool = True) -> None:
        """Every machine that is inserted there from now on is preempted so long after its insert (also while it is
        still being created), without a notice."""
        self._fated[zone] = (after_s, 0.0 if record else None)

    def host_error(self, name: str, zone: str | None = None) -> None:
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self.crash(vm, now)
        self._settle()

    def delete_by(self, user: str, name: str, zone: str | None = None) -> None:
        """A person deletes it."""
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self.delete(vm, user, now)
        self._settle()

    def stop_by(self, user: str, name: str, zone: str | None = None) -> None:
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self.stop(vm, user, now)
        self._settle()

    def guest_powered_off(self, name: str, zone: str | None = None, machine_id: str | None = None) -> None:
        """Nothing happens if that machine is gone, or `machine_id` no longer has that name."""
        now = self.catch_up()
        with self.lock:
            for (in_zone, called), vm in list(self.instances.items()):
                if called == name and zone in (None, in_zone) and machine_id in (None, vm.id):
                    self.power_off(vm, now)
        self._settle()

    def append_serial(self, name: str, zone: str, data: bytes) -> None:
        """What the machine wrote to its first serial port. Nothing happens when it is gone."""
        with self.lock:
            vm = self.instances.get((zone, name))
            if vm is not None:
                vm.serial.append(data)
                if self.on_serial is not None:
                    self.on_serial(vm, data)

    def zombie(self, zone: str) -> None:
        """Machines that come up there from now on are RUNNING and boot nothing."""
        self.zombie_zones.add(zone)

    def fill(self, resources: Sequence[Mapping[str, Any]]) -> list[Instance]:
        """RUNNING machines at once, without operations or hooks, of anybody: each `{"name", "zone", ...}` as in an
        insert; nothing is checked, and the defaults make a Spot VM without labels."""
        now, made = self.catch_up(), []
        with self.lock:
            for given in resources:
                zone = str(given["zone"]).rsplit("/", 1)[-1]
                resource = {
                    "machineType": "zones/%s/machineTypes/n1-standard-8" % zone,
                    "scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"},
                    **given,
                }
                vm = Instance(self.project, zone, self.new_id(), resource, now)
                vm.change(status="RUNNING", lastStartTimestamp=vm.body["creationTimestamp"])
                self.put(vm)
                made.append(vm)
        return made

    def add_instances(
        self, count: int, zones: Sequence[str] | None = None, labels: Callable[[int], dict[str, str]] | None = None
    ) -> list[Instance]:
        """fill with vm-00000, vm-00001 ..., spread over the zones."""
        places = list(zones or self.catalog.zones)
        return self.fill(
            [
                {"name": "vm-%05d" % at, "zone": places[at % len(places)], "labels": labels(at) if labels else {}}
                for at in range(count)
            ]
        )

    def create(self, zone: str, resource: dict[str, Any], user: str, now: float) -> Operation:
        operation = super().create(zone, resource, user, now)
        if zone in self._fated:
            after_s, late_s = self._fated[zone]
            vm = self.instances[(zone, resource["name"])]
            self.plan_for(vm, now + after_s, lambda at: self.take_away(vm, at, late_s))
        return operation

    def _settle(self) -> None:
        self.catch_up()
        if not self.live:
            self.call_hooks()

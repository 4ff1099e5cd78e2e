"""The life of a VM: PROVISIONING, STAGING, RUNNING, STOPPING, then TERMINATED or gone, and who ended it.

Every change of course raises `life`, so that what was planned before (the end of a creation, the time limit) is off.
A machine that stops first gets a signal (ACPI soft off: `on_stop(vm, False)`), then is cut off (`on_stop(vm, True)`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cloud.compute_bill import Bill
from tests.cloud.compute_errors import ApiError, OperationFailure, rfc3339
from tests.cloud.compute_instances import ASKED, Instance
from tests.cloud.compute_operations import Operation
from tests.cloud.compute_rules import incompatible
from tests.cloud.compute_world import World

LIVING = ("RUNNING", "REPAIRING")


class Life(World):
    """Durations in seconds, set by tests. `account`: the user of requests over HTTP."""

    queue_s = 0.2  # PENDING -> RUNNING of an operation
    create_s = 4.0
    look_s = 30.0  # how often a waiting request looks for capacity
    fail_s = 2.0  # until a stock-out is reported
    delete_s = 3.0
    stop_s = 3.0
    preempted_stop_s = 30.0  # "best effort and up to 30 s"; less when the guest is off before
    account = "spot@p.iam.gserviceaccount.com"

    def __init__(self, clock: Callable[[], float], project: str, live: bool) -> None:
        super().__init__(clock, project, live)
        self.zombie_zones: set[str] = set()
        self.bill = Bill()

    def judge(self, vm: Instance, now: float) -> OperationFailure | None:
        """What becomes of an insert that was accepted; the faults' say."""
        raise NotImplementedError

    # beginning

    def create(self, zone: str, resource: dict[str, Any], user: str, now: float) -> Operation:
        vm = Instance(self.project, zone, self.new_id(), resource, now)
        vm.insert_operation = operation = self._asked("insert", vm, user, now)
        for disk in resource["disks"]:
            if "source" in disk:
                self.catalog.disks[(zone, disk["source"].rsplit("/", 1)[-1])]["users"].append(vm.link)
        self.put(vm)
        self.bill.created(vm, resource["disks"], self.catalog.machine_types.get(vm.machine_type, {}), now)
        waits_s = resource.get("params", {}).get("requestValidForDuration")
        if waits_s is not None and incompatible(resource) is None:
            self._await_capacity(vm, now, now + float(waits_s["seconds"]))
            return operation
        failure = incompatible(resource) or self.judge(vm, now)
        if failure is not None:
            self.plan_for(vm, now + self.fail_s, lambda at: self._never(vm, at, failure))
            return operation
        self._take_in(vm, now)
        return operation

    def _take_in(self, vm: Instance, now: float) -> None:
        self.plan_for(vm, now + self.create_s * 0.6, lambda _: vm.change(status="STAGING"))
        self.plan_for(vm, now + self.create_s, lambda at: self._up(vm, at))

    def _await_capacity(self, vm: Instance, now: float, until: float) -> None:
        """A flex-start request: PENDING while its zone has no machine, and deleted with an error at its end."""
        vm.change(status="PENDING")

        def look(at: float) -> None:
            failure = self.judge(vm, at)
            if failure is None:
                vm.change(status="PROVISIONING")
                self._take_in(vm, at)
            elif at >= until:
                self._never(vm, at, failure)
            else:
                self.plan_for(vm, min(until, at + self.look_s), look)

        look(now)

    def start(self, vm: Instance, user: str, now: float) -> Operation:
        if vm.status != "TERMINATED":
            raise ApiError(400, "The resource '%s' is not ready" % vm.link, "resourceNotReady")
        operation = self._asked("start", vm, user, now)
        vm.life += 1
        vm.change(status="PROVISIONING")
        failure = self.judge(vm, now)
        if failure is not None:
            self.plan_for(vm, now + self.fail_s, lambda at: self._not_started(vm, at, failure))
            return operation
        self.plan_for(vm, now + self.create_s * 0.6, lambda _: vm.change(status="STAGING"))
        self.plan_for(vm, now + self.create_s, lambda at: self._up(vm, at))
        return operation

    def _asked(self, kind: str, vm: Instance, user: str, now: float) -> Operation:
        operation = self.begin(kind, vm, user, now)
        vm.open_operations.append(operation)

        def run(_: float) -> None:
            if self.operations.get(operation.zone, operation.name).status == "PENDING":
                self.operations.change(operation, status="RUNNING")

        self.plan(now + self.queue_s, run)
        return operation

    def _arrived(self, vm: Instance, now: float) -> None:
        """All operations on it have ended one way or the other, also those that a later operation replaced."""
        for operation in vm.open_operations:
            self.end(operation, now)
        vm.open_operations = []

    def _never(self, vm: Instance, now: float, failure: OperationFailure) -> None:
        self.end(vm.insert_operation, now, failure=failure)
        self.bill.gone(vm, now, void=True)
        self.drop(vm)

    def _not_started(self, vm: Instance, now: float, failure: OperationFailure) -> None:
        """It is off again, as before its start."""
        for operation in vm.open_operations:
            self.end(operation, now, failure=failure)
        vm.open_operations = []
        vm.life += 1
        vm.change(status="TERMINATED")

    def _up(self, vm: Instance, now: float) -> None:
        vm.zombie = vm.zombie or vm.zone in self.zombie_zones
        vm.change(status="RUNNING", lastStartTimestamp=rfc3339(now))
        self.bill.on(vm, now)
        limit_s = vm.seconds("maxRunDuration")
        if limit_s is not None:
            vm.change(resourceStatus={"scheduling": {"terminationTimestamp": rfc3339(now + limit_s)}})
            self.plan_for(vm, now + limit_s, lambda at: self._expire(vm, at))
        self._arrived(vm, now)
        if not vm.zombie:
            vm.powered = True
            self.later(self.on_running, vm)

    # ending

    def delete(self, vm: Instance, user: str, now: float) -> Operation:
        vm.delete_operation = operation = self._asked("delete", vm, user, now)
        self._stopping(vm, now, self.delete_s, lambda at: self._gone(vm, at))
        return operation

    def stop(self, vm: Instance, user: str, now: float) -> Operation:
        operation = self._asked("stop", vm, user, now)
        if vm.status == "TERMINATED":
            self._arrived(vm, now)
        else:
            self._stopping(vm, now, self.stop_s, lambda at: self._off(vm, at))
        return operation

    def take_away(self, vm: Instance, now: float, record_after_s: float | None) -> None:
        """The preemption itself, after the notice. The operation says the moment, and may be listed only later."""
        if vm.status not in (*ASKED, *LIVING):
            return
        if record_after_s is not None:
            self.plan(now + record_after_s, lambda _: self.record("preempted", vm, "Instance was preempted.", now))
        if vm.status in ASKED:
            message = "Instance '%s' creation failed: The instance was preempted while being created." % vm.name
            if "lastStartTimestamp" in vm.body:
                self._not_started(vm, now, OperationFailure("UNSUPPORTED_OPERATION", message))
                return
            self._never(vm, now, OperationFailure("UNSUPPORTED_OPERATION", message))
            return
        self._stopping(vm, now, self.preempted_stop_s, self._by_termination_action(vm))

    def _expire(self, vm: Instance, now: float) -> None:
        event, done = ("deferredDelete", "deleted") if vm.deleted_at_end else ("deferredStop", "stopped")
        self.record(event, vm, "Instance was %s: its maximum run duration has passed." % done, now)
        self._stopping(vm, now, self.preempted_stop_s, self._by_termination_action(vm))

    def crash(self, vm: Instance, now: float) -> None:
        """A host error: cut off at once; started again where automaticRestart says so."""
        self.record("hostError", vm, "Instance terminated by Compute Engine due to a host error.", now)
        self._cut_off(vm)
        if not vm.scheduling["automaticRestart"]:
            self._terminated(vm, now)
            return
        vm.change(status="REPAIRING", resourceStatus=None)
        self.bill.off(vm, now)

        def again(at: float) -> None:
            self.record("automaticRestart", vm, "Instance automatically restarted by Compute Engine.", at)
            self._up(vm, at)

        self.plan_for(vm, now + self.create_s, again)

    def power_off(self, vm: Instance, now: float) -> None:
        """The guest has shut itself down, by itself or after a signal."""
        if vm.status == "STOPPING" and vm.finish is not None:
            vm.finish(now)
        elif vm.status in LIVING:
            self.record("guestTerminate", vm, "Instance terminated by guest OS shutdown.", now)
            self._off(vm, now)

    def _by_termination_action(self, vm: Instance) -> Callable[[float], None]:
        return lambda at: self._gone(vm, at) if vm.deleted_at_end else self._off(vm, at)

    def _stopping(self, vm: Instance, now: float, for_s: float, then: Callable[[float], None]) -> None:
        was = vm.status
        if was in ASKED:
            message = "Instance '%s' creation failed: The instance was deleted while being created." % vm.name
            self.end(vm.insert_operation, now, failure=OperationFailure("UNSUPPORTED_OPERATION", message))
        vm.life += 1
        vm.change(status="STOPPING", resourceStatus=None)
        self.bill.off(vm, now)
        if vm.powered and was in LIVING:
            self.later(self.on_stop, vm, False)
        vm.finish = then
        self.plan_for(vm, now + for_s, then)

    def _off(self, vm: Instance, now: float) -> None:
        self._cut_off(vm)
        self._terminated(vm, now)

    def _terminated(self, vm: Instance, now: float) -> None:
        vm.change(status="TERMINATED", lastStopTimestamp=rfc3339(now), resourceStatus=None)
        self.bill.off(vm, now)
        self._arrived(vm, now)

    def _gone(self, vm: Instance, now: float) -> None:
        self._cut_off(vm)
        self._arrived(vm, now)
        self.bill.gone(vm, now)
        self.drop(vm)

    def _cut_off(self, vm: Instance) -> None:
        vm.life += 1
        vm.finish = None
        if vm.powered:
            vm.powered = False
            self.later(self.on_stop, vm, True)

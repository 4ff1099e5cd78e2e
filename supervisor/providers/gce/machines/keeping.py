"""Machines that are switched off and started again with their disks (KeepsMachines of ports/provider.py).

A start is three requests: the metadata of the new launch, its labels, then instances.start with the request id of the
try. The labels carry the last start of the machine as it was before. So a listing shows whether a machine that is off
was started for the launch that it names, also when the response of the start was lost. Metadata and labels are changed
only while the machine is off: what boots there next is the new launch, and no earlier one.

Documents: https://cloud.google.com/compute/docs/instances/stop-start-instance and the discovery document of compute v1
(`instances.start`, `instances.stop`, `discardLocalSsd`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from supervisor.domain.machines import RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineRef, MachineState
from supervisor.ports.provider import LaunchRejected, LaunchRequest, ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, as_unavailable, failure_of_operation, failure_of_request
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.machines.launching import Launcher, Operation, PayloadUpload
from supervisor.providers.gce.machines.machine import (
    GOING,
    STARTED_LABEL,
    STATES,
    Item,
    is_prepared,
    machine_of,
    started_digits,
)
from supervisor.providers.gce.machines.records import stop_request_id

NOT_READY = "resourceNotReady"  # it is still switching off


class Keeper:
    def __init__(self, config: GceConfig, compute: Compute, launcher: Launcher, upload: PayloadUpload) -> None:
        self._config, self._compute, self._launcher, self._upload = config, compute, launcher, upload

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        item = self._own(request, ref)
        zone = request.placement.zone
        with self._launcher.wait_limit_s() as limit_s:
            end = self._launcher.monotonic() + limit_s
            try:
                if machine_of(item, zone).launch_id != request.launch_id:
                    self._prepare(request, item, end)
                elif not (_is_off(item) and is_prepared(item)):
                    return machine_of(item, zone)  # it was started for this launch, whatever became of it since
                operation = self._launcher.ended(zone, self._start(request), end)
            except ApiError as error:
                raise self._meaning(error, request) from error
        failures = (operation.get("error") or {}).get("errors") or []
        if failures:
            raise failure_of_operation(failures, request.placement.region)
        return machine_of(self._own(request, ref), zone)

    def stop(self, ref: MachineRef) -> None:
        """Returns when Google accepted the stop, or the machine is ending, off or gone. ProviderUnavailable."""
        with as_unavailable(f"stop of {ref.name}"):
            item = self._compute.get(ref.zone, ref.name)
            is_same = item is not None and (not ref.machine_id or str(item["id"]) == ref.machine_id)
            if item is None or not is_same or _is_off(item) or str(item.get("status")) in GOING:
                return
            query: dict[str, str | int] = {
                "requestId": stop_request_id(str(item["id"]), item.get("lastStartTimestamp"))
            }
            if any(disk.get("type") == "SCRATCH" for disk in item.get("disks") or ()):
                query["discardLocalSsd"] = "true"  # Google refuses the stop otherwise
            operation = self._compute.change(ref.zone, ref.name, "stop", None, **query)
        failures = (operation.get("error") or {}).get("errors")
        if failures:
            raise ProviderUnavailable(f"stop of {ref.name}: {failures[0].get('code')}: {failures[0].get('message')}")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _own(self, request: LaunchRequest, ref: MachineRef) -> Item:
        """The machine. LaunchRejected where it is gone or another run's, ProviderUnavailable."""
        with as_unavailable(f"machine {request.name}"):
            item = self._compute.get(request.placement.zone, request.name)
        if item is None or (ref.machine_id and str(item["id"]) != ref.machine_id):
            raise LaunchRejected(f"the machine {request.name} does not exist any more")
        machine, labels = machine_of(item, request.placement.zone), instance.labels(self._config, request)
        if (machine.supervisor_id, machine.run_id) != (labels[SUPERVISOR_LABEL], labels[RUN_LABEL]):
            raise LaunchRejected(f"machine {request.name} is not of run {request.run_id}: it carries {machine.run_id}")
        return item

    def _prepare(self, request: LaunchRequest, item: Item, end: float) -> None:
        """Metadata first: a machine whose labels name a launch boots into that launch."""
        if not _is_off(item):
            raise ProviderUnavailable(f"{request.name} is not off yet: {item.get('status')}")
        body = instance.build(self._config, request, self._upload.payload())
        metadata = {"fingerprint": (item.get("metadata") or {}).get("fingerprint"), **body["metadata"]}
        self._change(request, "setMetadata", metadata, end)
        labels = {**body["labels"], STARTED_LABEL: started_digits(item)}
        self._change(request, "setLabels", {"labels": labels, "labelFingerprint": item.get("labelFingerprint")}, end)

    def _change(self, request: LaunchRequest, verb: str, body: Mapping[str, Any], end: float) -> None:
        zone, request_id = request.placement.zone, str(uuid.uuid5(uuid.UUID(request.request_id), verb))
        operation = self._compute.change(zone, request.name, verb, body, requestId=request_id)
        operation = self._launcher.ended(zone, operation, end)
        failures = (operation.get("error") or {}).get("errors")
        if failures:
            text = f"{failures[0].get('code')}: {failures[0].get('message')}"
            raise ProviderUnavailable(f"{verb} of {request.name}: {text}")

    def _start(self, request: LaunchRequest) -> Operation:
        zone = request.placement.zone
        return self._compute.change(zone, request.name, "start", None, requestId=request.request_id)

    def _meaning(self, error: ApiError, request: LaunchRequest) -> Exception:
        """Only a permission, a missing machine, and Google's own words about capacity, quota or the request are
        definite."""
        if error.missing:
            return LaunchRejected(f"the machine {request.name} does not exist any more")
        if error.reason == NOT_READY or error.status == 412:
            return ProviderUnavailable(f"start of {request.name}: {error}")
        return failure_of_request(error, request.placement.region)


def _is_off(item: Item) -> bool:
    return STATES.get(str(item.get("status"))) is MachineState.ENDED

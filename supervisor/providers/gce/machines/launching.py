"""One create call, from its request to a definite end.

The insert carries the request id of the try: Google answers a repeat with the operation of the first call, so a lost
response can be requested again. The operation is polled for some time. If it takes longer, the call ends without a
result, and a later tick repeats the same launch and learns the result.

After an accepted insert only the error of the operation itself is a definite no. An error of any later request (the
poll, a get, the same insert again) says nothing about the machine: it is looked up by its name and adopted if it
exists. A refused insert is definite only if no earlier call with its request id can have created a machine.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.contract import runfiles
from supervisor.domain.causes import Cause
from supervisor.domain.machines import RUN_LABEL, SUPERVISOR_LABEL, Machine
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ABSENT, ObjectStore, PreconditionFailed, StoreUnavailable
from supervisor.ports.provider import (
    LaunchFailed,
    LaunchPending,
    LaunchRejected,
    LaunchRequest,
    NoCapacity,
    ProviderUnavailable,
)
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import (
    ApiError,
    as_unavailable,
    failure_of_operation,
    failure_of_request,
    upper_snake,
)
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.machines.instance import Payload
from supervisor.providers.gce.machines.machine import machine_of
from supervisor.providers.gce.machines.records import Records

UPLOAD_AGAIN_S = 3600.0  # the bucket may have been emptied since
WAIT_S = 25.0  # from the insert on, for a single launch; launches at the same time share it
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.3, 3.0
REMEMBERED = 10_000  # request ids
SETTLED_S = 180.0  # how long an insert without a clear response may still create its machine
EXISTS = "RESOURCE_ALREADY_EXISTS"

Operation = Mapping[str, Any]
NAME_TAKEN: Operation = {"status": "DONE", "error": {"errors": [{"code": EXISTS}]}}


class PayloadUpload:
    """Puts the agent into the object store, where every machine fetches it by the hash of its content. `agent`: the
    zipapp of this version."""

    def __init__(self, objects: ObjectStore, agent: Path | None, monotonic: Callable[[], float]) -> None:
        self._objects, self._agent, self._monotonic = objects, agent, monotonic
        self._lock = threading.Lock()
        self._uploaded: tuple[Payload, float] | None = None  # with the last time that it was seen in the store

    def payload(self) -> Payload:
        """The payload of new machines; its agent is in the store now. LaunchRejected, ProviderUnavailable."""
        with self._lock:
            uploaded = self._uploaded
        if uploaded is not None and self._monotonic() - uploaded[1] < UPLOAD_AGAIN_S:
            return uploaded[0]
        payload, agent = instance.payload_of(self._agent)
        try:
            with suppress(PreconditionFailed):  # it is already there
                self._objects.put(runfiles.agent(payload.agent_sha256), agent, if_generation=ABSENT)
        except StoreUnavailable as error:
            raise ProviderUnavailable(f"the agent cannot be put into the store: {error}") from error
        with self._lock:
            self._uploaded = (payload, self._monotonic())
        return payload


@dataclass(slots=True)
class _Sent:
    """What this process knows about one request id. `operation`: the name of its operation, "" = unknown. `accepted`:
    Google answered with an operation. `unclear_until` (monotonic): until then a call without a clear response may
    still create a machine."""

    operation: str = ""
    accepted: bool = False
    unclear_until: float = float("-inf")


class Launcher:
    def __init__(
        self,
        config: GceConfig,
        compute: Compute,
        records: Records,
        upload: PayloadUpload,
        *,
        clock: Clock,
        pause: Callable[[float], None],
    ) -> None:
        self._config, self._compute, self._records, self._upload = config, compute, records, upload
        self._clock, self._pause = clock, pause
        self._lock = threading.Lock()
        self._waiting = 0
        self._requests: OrderedDict[str, _Sent] = OrderedDict()  # by request id

    def launch(self, request: LaunchRequest) -> Machine:
        """As Provider.launch of ports/provider.py."""
        zone, sent = request.placement.zone, self._sent(request)
        with self.wait_limit_s() as limit_s:
            # A flex-start request may wait for hours: each call looks once, so no thread waits with it.
            end = self._clock.monotonic() + (0.0 if request.waits_s else limit_s)
            try:
                operation = self._inserted(request, sent)
            except LaunchFailed as refusal:
                return self.unless_present(request, refusal)
            try:
                operation = self.ended(zone, operation, end)
            except ApiError as error:
                if not error.transient:
                    sent.operation = ""  # the same insert, repeated, responds with its operation too
                return self._unread(request, error)
        failures = (operation.get("error") or {}).get("errors") or []
        if not failures:
            return self._created(request, str(operation.get("targetId") or ""))
        if any(upper_snake(str(failure.get("code", ""))) == EXISTS for failure in failures):
            return self._adopt(request)
        raise failure_of_operation(failures, request.placement.region)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def unless_present(self, request: LaunchRequest, refusal: LaunchFailed) -> Machine:
        """The machine of this launch, if an earlier call created it. Otherwise raises `refusal`, or ProviderUnavailable
        while an earlier call may still create one."""
        sent = self._sent(request)
        unsettled = sent.accepted or self._clock.monotonic() < sent.unclear_until
        try:
            machine = self.present(request)
        except ProviderUnavailable:
            if unsettled:
                raise
            raise refusal from None
        if machine is not None:
            return machine
        if unsettled:
            raise ProviderUnavailable(
                f"{request.name} was requested before and may still appear. The repeat was refused: {refusal}"
            ) from refusal
        raise refusal

    def present(self, request: LaunchRequest) -> Machine | None:
        """The machine of this very launch, if it exists. None: it does not. ProviderUnavailable."""
        with as_unavailable(f"machine {request.name}"):
            item = self._compute.get(request.placement.zone, request.name)
        machine = None if item is None else machine_of(item, request.placement.zone)
        return machine if machine is not None and self._is_of(machine, request) else None

    # --- the operation ------------------------------------------------------------------------------------------------

    def _sent(self, request: LaunchRequest) -> _Sent:
        """A request that an earlier process may have sent is as unclear as a request whose response was lost."""
        with self._lock:
            sent = self._requests.get(request.request_id)
            if sent is None:
                settled_at = self._clock.monotonic() + SETTLED_S if request.repeated else float("-inf")
                sent = self._requests[request.request_id] = _Sent(unclear_until=settled_at)
            while len(self._requests) > REMEMBERED:
                self._requests.popitem(last=False)
            return sent

    def _inserted(self, request: LaunchRequest, sent: _Sent) -> Operation:
        """The operation as it is now: that of an earlier call, or that of this insert. LaunchFailed: the insert was
        refused, or could not be sent."""
        zone = request.placement.zone
        if sent.operation:
            try:
                return self._compute.operation(zone, sent.operation)
            except ApiError as error:
                if error.transient:
                    return {"name": sent.operation}  # it is polled again
                sent.operation = ""
        body = instance.build(self._config, request, self._upload.payload())
        try:
            operation = self._compute.insert(zone, body, request.request_id)
        except ApiError as error:
            if error.name_taken:
                return NAME_TAKEN
            if error.transient or error.after_unclear:
                sent.unclear_until = self._clock.monotonic() + SETTLED_S
            raise failure_of_request(error, request.placement.region) from error
        sent.accepted, sent.operation = True, str(operation["name"])
        return operation

    def _unread(self, request: LaunchRequest, error: ApiError) -> Machine:
        """The operation of an accepted insert cannot be read: the machine itself is the result, if it exists."""
        machine = self.present(request)
        if machine is not None:
            return machine
        raise ProviderUnavailable(f"{request.name} was requested, and the result cannot be read: {error}") from error

    def ended(self, zone: str, operation: Operation, end: float) -> Operation:
        """The operation when it is done. `end`: the limit of the wait, monotonic. ApiError, LaunchPending."""
        backoff_s = FIRST_BACKOFF_S
        while operation.get("status") != "DONE":
            if self._clock.monotonic() + backoff_s > end:
                raise LaunchPending("the machine is still being created: Google is looking for capacity")
            self._pause(backoff_s)
            backoff_s = min(LONGEST_BACKOFF_S, 1.6 * backoff_s)
            operation = self._compute.operation(zone, str(operation["name"]))
        return operation

    @contextmanager
    def wait_limit_s(self) -> Iterator[float]:
        """How long this call may wait: a thousand launches at the same time must not queue behind each other."""
        with self._lock:
            self._waiting += 1
            waiting = self._waiting
        try:
            yield WAIT_S / waiting
        finally:
            with self._lock:
                self._waiting -= 1

    # --- the machine --------------------------------------------------------------------------------------------------

    def _created(self, request: LaunchRequest, machine_id: str) -> Machine:
        zone = request.placement.zone
        with as_unavailable(f"{request.name} was created, and could not be read"):
            item = self._compute.get(zone, request.name)
            if item is not None and str(item.get("id")) == machine_id:
                return self._own(request, machine_of(item, zone))
            end = self._records.end_of_gone(zone, machine_id)
        if end is None and self._records.may_come(machine_id):
            raise ProviderUnavailable(f"{request.name} was created and does not exist: Google does not say why yet")
        gone = f"{request.name} was created and does not exist any more: "
        if end is None:  # no reason will come either: without an end the same question would repeat forever
            raise NoCapacity(f"{gone}Google has no record of the reason")
        record = end.record
        text = f"{gone}{end.word if record is None else record.detail}"
        if record is not None and record.cause in (Cause.PREEMPTED, Cause.HOST_ERROR):
            raise NoCapacity(text)
        raise LaunchRejected(text)

    def _adopt(self, request: LaunchRequest) -> Machine:
        """The name is taken: by this launch's own machine, or by another one, which stays untouched."""
        zone = request.placement.zone
        with as_unavailable(f"{request.name} exists, and could not be read"):
            item = self._compute.get(zone, request.name)
        if item is None:
            raise ProviderUnavailable(f"Google says both that {request.name} exists and that it does not")
        return self._own(request, machine_of(item, zone))

    def _own(self, request: LaunchRequest, machine: Machine) -> Machine:
        if self._is_of(machine, request):
            return machine
        raise LaunchRejected(
            f"machine {request.name} already exists, of launch {machine.launch_id or 'unknown'} of "
            f"run {machine.run_id or 'unknown'}, with the id {machine.machine_id}"
        )

    def _is_of(self, machine: Machine, request: LaunchRequest) -> bool:
        labels = instance.labels(self._config, request)
        expected = (labels[SUPERVISOR_LABEL], labels[RUN_LABEL], request.launch_id)
        return (machine.supervisor_id, machine.run_id, machine.launch_id) == expected

"""One create call from its intent to a definite end.

Insert carries the try's request id: Google answers a repeat with the operation that the first call started, so a lost
answer is found again. The operation is polled for a while; when it takes longer, the call ends without an answer, and
the same launch, asked again by a later tick, learns how it ended.

Once an insert was accepted, only the operation's own error is a definite no. An error of anything asked afterwards
(the poll, a get, the same insert again) says nothing about the machine: it is looked up by its name, and adopted when
it is there. A refused insert is definite only if no earlier call with its request id can have made a machine.

The agent's zipapp in the object store, where every machine fetches it: named by its content, uploaded once.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from supervisor.providers.gce.calls import errors
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.machines.instance import Parcel, startup_script
from supervisor.providers.gce.machines.machine import machine_of
from supervisor.providers.gce.machines.records import Records

LOOK_AGAIN_S = 3600.0  # somebody may have emptied the bucket meanwhile


class ParcelPost:
    """`agent`: the zipapp of this version."""

    def __init__(self, objects: ObjectStore, agent: Path | None, monotonic: Callable[[], float]) -> None:
        self._objects, self._agent, self._monotonic = objects, agent, monotonic
        self._lock = threading.Lock()
        self._made: tuple[Parcel, float] | None = None  # and when it was last known to be in the store

    def ready(self) -> Parcel:
        """What machines are started with; it is in the store now. LaunchRejected, ProviderUnavailable."""
        with self._lock:
            made = self._made
        if made is not None and self._monotonic() - made[1] < LOOK_AGAIN_S:
            return made[0]
        try:
            if self._agent is None:
                raise LaunchRejected("this installation has no agent; `make agent` builds it")
            data = self._agent.read_bytes()
            script = startup_script()
        except OSError as error:
            raise LaunchRejected(f"this installation is not complete: {error}") from error
        parcel = Parcel(script, hashlib.sha256(data).hexdigest())
        try:
            self._objects.put(runfiles.agent(parcel.agent_sha256), data, if_generation=ABSENT)
        except PreconditionFailed:
            pass  # it is there
        except StoreUnavailable as error:
            raise ProviderUnavailable(f"the agent cannot be put into the store: {error}") from error
        with self._lock:
            self._made = (parcel, self._monotonic())
        return parcel


WAIT_S = 25.0  # from the insert on, where nobody else waits; many at once wait shorter
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 3.0
REMEMBERED = 10_000  # request ids
SETTLED_S = 180.0  # an insert without a clear answer may still make its machine for so long
EXISTS = "RESOURCE_ALREADY_EXISTS"

Operation = Mapping[str, Any]
NAME_TAKEN: Operation = {"status": "DONE", "error": {"errors": [{"code": EXISTS}]}}


@dataclass(slots=True)
class _Known:
    """What this process knows of one request id. `operation`: the name of its operation, "" = unknown. `unclear_until`:
    a call without a clear answer may make a machine until then, monotonic."""

    operation: str = ""
    accepted: bool = False
    unclear_until: float = float("-inf")


class Launcher:
    def __init__(
        self,
        config: GceConfig,
        compute: Compute,
        records: Records,
        parcels: ParcelPost,
        clock: Clock,
        pause: Callable[[float], None],
    ) -> None:
        self._config, self._compute, self._records, self._parcels = config, compute, records, parcels
        self._clock, self._pause = clock, pause
        self._lock = threading.Lock()
        self._waiting = 0
        self._requests: OrderedDict[str, _Known] = OrderedDict()  # by request id

    def launch(self, request: LaunchRequest) -> Machine:
        """The promise of ports/provider.py."""
        zone, known = request.placement.zone, self._known(request)
        with self._waiters() as patience_s:
            end = self._clock.monotonic() + patience_s
            try:
                operation = self._inserted(request, known)
            except LaunchFailed as refusal:
                return self.unless_present(request, refusal)
            try:
                operation = self._ended(zone, operation, end)
            except ApiError as error:
                if not error.transient:
                    known.operation = ""  # the same insert, asked again, answers with its operation too
                return self._unread(request, error)
        failures = (operation.get("error") or {}).get("errors") or []
        if not failures:
            return self._made(request, str(operation.get("targetId") or ""))
        if any(errors.word(str(failure.get("code", ""))) == EXISTS for failure in failures):
            return self._adopt(request)
        raise errors.of_codes(failures, request.placement.region)

    def unless_present(self, request: LaunchRequest, refusal: LaunchFailed) -> Machine:
        """The machine of this launch, where an earlier call has made it; else `refusal` is raised, or
        ProviderUnavailable while such a call may still make one."""
        known = self._known(request)
        unsettled = known.accepted or self._clock.monotonic() < known.unclear_until
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
                f"{request.name} was asked for before, and may still come. The repeat was refused: {refusal}"
            ) from refusal
        raise refusal

    def present(self, request: LaunchRequest) -> Machine | None:
        """The machine of this very launch, where it is there already. None: it is not. ProviderUnavailable."""
        try:
            item = self._compute.get(request.placement.zone, request.name)
        except ApiError as error:
            raise ProviderUnavailable(f"machine {request.name}: {error}") from error
        machine = None if item is None else machine_of(item, request.placement.zone)
        return machine if machine is not None and self._is_of(machine, request) else None

    # --- the operation ------------------------------------------------------------------------------------------------

    def _known(self, request: LaunchRequest) -> _Known:
        """A request that an earlier process may have sent is as unclear as one whose answer was lost."""
        with self._lock:
            known = self._requests.get(request.request_id)
            if known is None:
                settled_at = self._clock.monotonic() + SETTLED_S if request.repeated else float("-inf")
                known = self._requests[request.request_id] = _Known(unclear_until=settled_at)
            while len(self._requests) > REMEMBERED:
                self._requests.popitem(last=False)
            return known

    def _inserted(self, request: LaunchRequest, known: _Known) -> Operation:
        """The operation as it is now: that of an earlier call, or that of this insert. LaunchFailed: the insert was
        refused, or could not be sent."""
        zone = request.placement.zone
        if known.operation:
            try:
                return self._compute.operation(zone, known.operation)
            except ApiError as error:
                if error.transient:
                    return {"name": known.operation}  # it is polled again
                known.operation = ""
        body = instance.build(self._config, request, self._parcels.ready())
        try:
            operation = self._compute.insert(zone, body, request.request_id)
        except ApiError as error:
            if error.exists:
                return NAME_TAKEN
            if error.transient or error.after_unclear:
                known.unclear_until = self._clock.monotonic() + SETTLED_S
            raise errors.of_request(error, request.placement.region) from error
        known.accepted, known.operation = True, str(operation["name"])
        return operation

    def _unread(self, request: LaunchRequest, error: ApiError) -> Machine:
        """An accepted insert whose operation cannot be read: the machine tells how it ended, where it is there."""
        machine = self.present(request)
        if machine is not None:
            return machine
        raise ProviderUnavailable(f"{request.name} was asked for, and how that went cannot be read: {error}") from error

    def _ended(self, zone: str, operation: Operation, end: float) -> Operation:
        """`end`: until when it may be waited for, monotonic."""
        pause_s = FIRST_PAUSE_S
        while operation.get("status") != "DONE":
            if self._clock.monotonic() + pause_s > end:
                raise LaunchPending("the machine is still being created: Google is looking for room")
            self._pause(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 1.6 * pause_s)
            operation = self._compute.operation(zone, str(operation["name"]))
        return operation

    @contextmanager
    def _waiters(self) -> Iterator[float]:
        """How long this call may wait, in seconds: a thousand launches at once must not stand behind each other."""
        with self._lock:
            self._waiting += 1
            waiting = self._waiting
        try:
            yield WAIT_S / waiting
        finally:
            with self._lock:
                self._waiting -= 1

    # --- the machine --------------------------------------------------------------------------------------------------

    def _made(self, request: LaunchRequest, machine_id: str) -> Machine:
        zone = request.placement.zone
        try:
            item = self._compute.get(zone, request.name)
            if item is not None and str(item.get("id")) == machine_id:
                return self._own(request, machine_of(item, zone))
            end = self._records.ask(zone, machine_id)
        except ApiError as error:
            raise ProviderUnavailable(f"{request.name} was created, and could not be read: {error}") from error
        if end is None and self._records.may_come(machine_id):
            raise ProviderUnavailable(f"{request.name} was created, and is not there: Google does not say why yet")
        gone = f"{request.name} was created and is gone already: "
        if end is None:  # nor will it: the same question would be asked for ever
            raise NoCapacity(f"{gone}Google has no record of why")
        record = end.record
        text = f"{gone}{end.word if record is None else record.detail}"
        if record is not None and record.cause in (Cause.PREEMPTED, Cause.HOST_ERROR):
            raise NoCapacity(text)
        raise LaunchRejected(text)

    def _adopt(self, request: LaunchRequest) -> Machine:
        """The name is taken: by this launch's own machine, or by another's, which is left alone."""
        zone = request.placement.zone
        try:
            item = self._compute.get(zone, request.name)
        except ApiError as error:
            raise ProviderUnavailable(f"{request.name} exists, and could not be read: {error}") from error
        if item is None:
            raise ProviderUnavailable(f"{request.name} exists, and then it does not")
        return self._own(request, machine_of(item, zone))

    def _own(self, request: LaunchRequest, machine: Machine) -> Machine:
        if self._is_of(machine, request):
            return machine
        raise LaunchRejected(
            f"machine {request.name} is there already, of launch {machine.launch_id or 'unknown'} of "
            f"run {machine.run_id or 'unknown'}, with the id {machine.machine_id}"
        )

    def _is_of(self, machine: Machine, request: LaunchRequest) -> bool:
        wanted = instance.labels(self._config, request)
        return (machine.supervisor_id, machine.run_id, machine.launch_id) == (
            wanted[SUPERVISOR_LABEL],
            wanted[RUN_LABEL],
            request.launch_id,
        )

"""Why machines ended, read from Google's list of operations.

Each tick sends one request for each zone, newest operations first, down to the last known one. Operations exist longer
than their machine, and are matched by its id, never by its name.

The strongest word counts, not the newest: a preempted machine also switches itself off. The supervisor's own deletes
are recognized by the request id, which Google repeats in the operation; they are not records.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, is_incompatible
from supervisor.providers.gce.machines.machine import epoch_s

T = TypeVar("T")


class Meaning(NamedTuple):
    """What an operation says about the end of its machine. `rank`: 0 is the strongest. `cause` None: an end without a
    reason of Google's. `text`: for the user."""

    rank: int
    cause: Cause | None
    text: str


SYSTEM = "compute.instances."
MEANINGS: Mapping[str, Meaning] = {  # by operationType
    SYSTEM + "preempted": Meaning(0, Cause.PREEMPTED, "Google preempted the machine"),
    SYSTEM + "hostError": Meaning(1, Cause.HOST_ERROR, "the machine's host failed"),
    SYSTEM + "terminateOnHostMaintenance": Meaning(2, Cause.HOST_ERROR, "the machine's host went into maintenance"),
    SYSTEM + "deferredDelete": Meaning(3, Cause.EXPIRED, "the machine reached its maxRunDuration"),
    SYSTEM + "deferredStop": Meaning(3, Cause.EXPIRED, "the machine reached its maxRunDuration"),
    "delete": Meaning(4, Cause.MACHINE_DELETED, "deleted by {user}"),
    "stop": Meaning(4, Cause.MACHINE_DELETED, "stopped by {user}"),
    "suspend": Meaning(4, Cause.MACHINE_DELETED, "suspended by {user}"),
    SYSTEM + "automaticRestart": Meaning(5, Cause.HOST_REBOOTED, "Google restarted the machine"),
    SYSTEM + "guestTerminate": Meaning(7, None, "it switched itself off"),
}
OURS = Meaning(6, None, "released by the supervisor")
SWITCHED_OFF = Meaning(6, None, "switched off by the supervisor")
BY_GOOGLE = Meaning(5, Cause.HOST_ERROR, "Google deleted the machine without a reason")
PREEMPTED_AT_CREATION = Meaning(0, Cause.PREEMPTED, "the machine was preempted during its creation")
NEVER_CREATED = Meaning(6, None, "it was never created")

GOOGLE = "system"  # the user of operations that no person requested
UNKNOWN_USER = "an unknown user"
PREEMPTED_INSERT = "UNSUPPORTED_OPERATION"  # the code of an insert whose machine was preempted during its creation
FIELDS = (
    "nextPageToken,items(id,operationType,targetId,targetLink,user,clientOperationId,insertTime,startTime,"
    "statusMessage,httpErrorStatusCode,error/errors(code,message))"
)
FILTER = " OR ".join(f'(operationType="{kind}")' for kind in MEANINGS)
PAGE = 100  # operations of one request
MOST, PAGES = 500, 50  # operations and requests for one zone in one tick
LATE_S = 90.0  # Google may list an operation this long after the end of the machine
KEPT = 20_000  # machines
STOPS = 128  # request ids of the stops of one machine
RELEASES = 8  # the number of request ids of one machine's release


@dataclass(frozen=True, slots=True)
class End:
    """The strongest word on one machine's end. `record` None: Google has no reason, and `word` says what is known."""

    rank: int
    record: MachineRecord | None
    word: str
    at: float | None = None  # epoch seconds by Google's clock

    @property
    def is_off(self) -> bool:
        """Switched off from inside, and nothing else is known."""
        return self.record is None and self.rank > OURS.rank


def release_request_id(machine_id: str, number: int = 1) -> str:
    """The request id of this machine's delete, the same in every process of ours. `number` increases after a failed
    delete: Google answers a repeated id with the operation that it already has."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"spot-release/{machine_id}/{number}"))


def stop_request_id(machine_id: str, started: str | None) -> str:
    """The same for every stop since the machine was started last, in every process of ours: a later stop must not be
    answered with the operation of an earlier one."""
    return _stop_id(machine_id, int(epoch_s(started) or 0) % STOPS)


def _stop_id(machine_id: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"spot-stop/{machine_id}/{number}"))


class Records:
    """Ends by machine id. A tick and a user's request may read the same zone at once: both keep everything."""

    def __init__(self, compute: Compute, threads: Executor, monotonic: Callable[[], float]) -> None:
        self._compute, self._threads, self._monotonic = compute, threads, monotonic
        self._lock = threading.Lock()
        self._missed: OrderedDict[str, float] = OrderedDict()  # machine id -> since when its end has no reason
        self._ends: OrderedDict[str, End] = OrderedDict()
        self._started: OrderedDict[str, float] = OrderedDict()  # machine id -> its last start, where it had several
        self._seen: dict[str, frozenset[str]] = {}  # zone -> ids of its newest operations

    def refresh(self, zones: Collection[str]) -> dict[str, ApiError]:
        """Read what is new. Returns the zones that could not be read, with the error."""
        results = self._threads.map(self._read, zones)
        return {zone: error for zone, error in zip(zones, results, strict=True) if error is not None}

    def started_again(self, machine_id: str, at: float | None) -> None:
        """What ended this machine before its last start says nothing about it now."""
        with self._lock:
            if at is None or self._started.get(machine_id, 0.0) >= at:
                return
            self._started[machine_id] = at
            while len(self._started) > KEPT:
                self._started.popitem(last=False)
            end = self._ends.get(machine_id)
            if end is not None and end.at is not None and end.at < at:
                del self._ends[machine_id]

    def end(self, machine_id: str) -> End | None:
        """As far as it was read. None: nothing is known."""
        return self._ends.get(machine_id)

    def end_of_gone(self, zone: str, machine_id: str) -> End | None:
        """How a machine that does not exist any more ended. None: no operation says it. ApiError, also while operations
        about it exist and none of them removed it: a machine that is switched off stays, so that operation is still to
        come."""
        has_operations = self.read_machine(zone, machine_id)
        end = self.end(machine_id)
        if has_operations and (end is None or end.is_off) and self.may_come(machine_id):
            raise ApiError("it has ended, and Google does not say why yet")
        return end

    def read_machine(self, zone: str, machine_id: str) -> bool:
        """Read all operations about one machine. True: there are some. ApiError."""
        operations, _ = filtered(lambda wanted: operations_page(self._compute, zone, wanted), f"targetId={machine_id}")
        self._keep(operations)
        return any(str(operation.get("targetId")) == machine_id for operation in operations)

    def may_come(self, machine_id: str) -> bool:
        """The end of this machine has no reason, and not for long: Google may still list one."""
        now = self._monotonic()
        with self._lock:
            since = self._missed.setdefault(machine_id, now)
            while len(self._missed) > KEPT:
                self._missed.popitem(last=False)
        return now - since < LATE_S

    def _read(self, zone: str) -> ApiError | None:
        before, newest, token = self._seen.get(zone, frozenset()), [], ""
        try:
            for _ in range(PAGES):
                operations, token = operations_page(self._compute, zone, FILTER, token)
                self._keep(operations)
                ids = [str(operation["id"]) for operation in operations]
                newest += ids
                if not token or len(newest) >= MOST or not before.isdisjoint(ids):
                    break
        except ApiError as error:
            return error
        self._seen[zone] = frozenset(newest[:PAGE])
        return None

    def _keep(self, operations: Collection[Mapping[str, Any]]) -> None:
        for operation in operations:
            machine_id, end = str(operation.get("targetId") or ""), end_of(operation)
            if end is None or not machine_id:
                continue
            with self._lock:
                if end.at is not None and end.at < self._started.get(machine_id, 0.0):
                    continue
                before = self._ends.get(machine_id)
                if before is None or end.rank < before.rank:
                    self._ends[machine_id] = end
                    self._missed.pop(machine_id, None)
                while len(self._ends) > KEPT:
                    self._ends.popitem(last=False)


def operations_page(
    compute: Compute, zone: str, wanted: str, token: str = ""
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """(operations, newest first; token of the next page). `wanted`: a filter, "" = every operation of the zone."""
    query: dict[str, str | int] = {"orderBy": "creationTimestamp desc", "maxResults": PAGE, "fields": FIELDS}
    query |= {key: value for key, value in (("filter", wanted), ("pageToken", token)) if value}
    page = compute.read(f"zones/{zone}/operations", **query)
    return page.get("items") or [], str(page.get("nextPageToken") or "")


def filtered(read: Callable[[str], T], wanted: str) -> T:
    """`read` with this filter. No document has an example of such a filter: where Google refuses it (HTTP 400), `read`
    without a filter, which gives the newest operations of the zone."""
    try:
        return read(wanted)
    except ApiError as error:
        if error.status != 400:
            raise
    return read("")


def end_of(operation: Mapping[str, Any]) -> End | None:
    """None: the operation ends no machine, or it failed."""
    meaning = meaning_of(operation)
    is_insert = operation.get("operationType") == "insert"  # a failed insert is the end of its machine
    failed = operation.get("httpErrorStatusCode") and not is_insert
    if meaning is None or failed or "/instances/" not in operation.get("targetLink", ""):
        return None
    word = meaning.text.format(user=operation.get("user") or UNKNOWN_USER)
    at = epoch_s(operation.get("insertTime"))
    if meaning.cause is None:
        return End(meaning.rank, None, word, at)
    status = str(operation.get("statusMessage") or "")
    detail = f"{word} ({status.rstrip('.')})" if status else word
    return End(meaning.rank, MachineRecord(meaning.cause, detail, at), word, at)


def meaning_of(operation: Mapping[str, Any]) -> Meaning | None:
    """None: an operation of this type ends no machine."""
    if is_release_of_ours(operation):
        return OURS
    if _is_stop_of_ours(operation):
        return SWITCHED_OFF
    if operation.get("operationType") == "insert":
        return _meaning_of_insert(operation)
    meaning = MEANINGS.get(str(operation.get("operationType")))
    if meaning is not None and meaning.cause is Cause.MACHINE_DELETED and operation.get("user") == GOOGLE:
        return BY_GOOGLE  # no person did it: it must not end the run when it happens again
    return meaning


def _meaning_of_insert(operation: Mapping[str, Any]) -> Meaning | None:
    """None: the insert did not fail."""
    failures = (operation.get("error") or {}).get("errors") or ()
    preempted = any(
        str(failure.get("code")).startswith(PREEMPTED_INSERT) and not is_incompatible(str(failure.get("message") or ""))
        for failure in failures
    )
    return PREEMPTED_AT_CREATION if preempted else NEVER_CREATED if failures else None


def _is_stop_of_ours(operation: Mapping[str, Any]) -> bool:
    request_id, machine_id = operation.get("clientOperationId"), str(operation.get("targetId"))
    if not request_id or operation.get("operationType") != "stop":
        return False
    return any(request_id == _stop_id(machine_id, number) for number in range(STOPS))


def is_release_of_ours(operation: Mapping[str, Any]) -> bool:
    """A delete that the supervisor requested, in any of its processes."""
    request_id = operation.get("clientOperationId")
    if not request_id or operation.get("operationType") != "delete":
        return False
    machine_id = str(operation.get("targetId"))
    return any(request_id == release_request_id(machine_id, number) for number in range(1, RELEASES + 1))

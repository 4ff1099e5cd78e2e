"""Why machines ended, from Google's list of operations: one request for each zone and tick, newest first, up to the
last one that is known. Operations outlive their machine, and are matched by its id, never by its name.

The strongest word counts, not the newest: a machine that is preempted also switches itself off. Our own deletes are
told from a person's by the request id, which Google repeats in the operation. They are no records.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRecord
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, is_incompatible
from supervisor.providers.gce.machines.machine import epoch_s

SYSTEM = "compute.instances."
# operationType -> (rank, cause, what a person is told). None: an end, but no reason of Google's.
TYPES: Mapping[str, tuple[int, Cause | None, str]] = {
    SYSTEM + "preempted": (0, Cause.PREEMPTED, "Google took the machine back"),
    SYSTEM + "hostError": (1, Cause.HOST_ERROR, "the machine's host failed"),
    SYSTEM + "terminateOnHostMaintenance": (2, Cause.HOST_ERROR, "the machine's host went into maintenance"),
    SYSTEM + "deferredDelete": (3, Cause.EXPIRED, "the machine reached its maxRunDuration"),
    SYSTEM + "deferredStop": (3, Cause.EXPIRED, "the machine reached its maxRunDuration"),
    "delete": (4, Cause.MACHINE_DELETED, "deleted by {user}"),
    "stop": (4, Cause.MACHINE_DELETED, "stopped by {user}"),
    "suspend": (4, Cause.MACHINE_DELETED, "suspended by {user}"),
    SYSTEM + "automaticRestart": (5, Cause.HOST_REBOOTED, "the machine was started anew"),
    SYSTEM + "guestTerminate": (7, None, "it switched itself off"),
}
OURS = (6, None, "released by the supervisor")
TAKEN = 5, Cause.HOST_ERROR, "Google took the machine away and does not say why"
GOOGLE = "system"  # the user of operations that nobody asked for
UNBORN = 0, Cause.PREEMPTED, "the machine was taken back while it was being made"
NEVER_MADE = (6, None, "it was never made")
TAKEN_BACK = "UNSUPPORTED_OPERATION"  # the code of an insert whose machine was preempted meanwhile
FIELDS = (
    "nextPageToken,items(id,operationType,targetId,targetLink,user,clientOperationId,insertTime,statusMessage,"
    "httpErrorStatusCode,error/errors(code,message))"
)
FILTER = " OR ".join(f'(operationType="{kind}")' for kind in TYPES)
PAGE = 100  # operations of one request
MOST, PAGES = 500, 50  # operations and requests for one zone in one tick
LATE_S = 90.0  # an operation may be listed so long after what it tells of
KEPT = 20_000  # machines
RELEASES = 8  # how many request ids a machine's release may have


@dataclass(frozen=True, slots=True)
class End:
    """The strongest word on one machine's end. `record` None: no reason of Google's, `word` says what is known."""

    rank: int
    record: MachineRecord | None
    word: str

    @property
    def is_off(self) -> bool:
        """Switched off from inside, and no more is known."""
        return self.record is None and self.rank > OURS[0]


def release_request_id(machine_id: str, number: int = 1) -> str:
    """Of the delete of that machine, the same in every process of ours. `number` goes up when one has failed: Google
    answers a repeated id with the operation it already had."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"spot-release/{machine_id}/{number}"))


class Records:
    """Ends by machine id. A look of the loop and one of a person may read the same zone at once: both learn all."""

    def __init__(self, compute: Compute, threads: Executor, monotonic: Callable[[], float]) -> None:
        self._compute, self._threads, self._monotonic = compute, threads, monotonic
        self._lock = threading.Lock()
        self._missed: OrderedDict[str, float] = OrderedDict()  # machine id -> since when its end has no reason
        self._ends: OrderedDict[str, End] = OrderedDict()
        self._seen: dict[str, frozenset[str]] = {}  # zone -> ids of its newest operations

    def refresh(self, zones: Collection[str]) -> dict[str, ApiError]:
        """Read what is new; zones that could not be read, and why."""
        answers = self._threads.map(self._read, zones)
        return {zone: answer for zone, answer in zip(zones, answers, strict=True) if isinstance(answer, ApiError)}

    def known(self, machine_id: str) -> End | None:
        return self._ends.get(machine_id)

    def ask(self, zone: str, machine_id: str) -> End | None:
        """How a machine ended that is gone. None: no operation tells. ApiError, also while there are operations about
        it and none that took it away: a machine that is switched off stays, so that one is still to come."""
        about = self.look(zone, machine_id)
        end = self.known(machine_id)
        if about and (end is None or end.is_off) and self.may_come(machine_id):
            raise ApiError("it has ended, and Google does not say why yet")
        return end

    def look(self, zone: str, machine_id: str) -> bool:
        """Read all operations about one machine; whether there are any. ApiError."""
        try:
            found = self._page(zone, f"targetId={machine_id}", "")[0]
        except ApiError as error:
            if error.status != 400:
                raise
            # No document has an example of this filter. Without it: the newest operations of the zone.
            found = self._page(zone, "", "")[0]
        return any(str(operation.get("targetId")) == machine_id for operation in found)

    def may_come(self, machine_id: str) -> bool:
        """Nothing is known of how this machine ended, and it has not been so for long."""
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
                found, token = self._page(zone, FILTER, token)
                ids = [str(operation["id"]) for operation in found]
                newest += ids
                if not token or len(newest) >= MOST or not before.isdisjoint(ids):
                    break
        except ApiError as error:
            return error
        self._seen[zone] = frozenset(newest[:PAGE])
        return None

    def _page(self, zone: str, wanted: str, token: str) -> tuple[list[Mapping[str, Any]], str]:
        """(operations, token of the next page). `wanted`: a filter, "" = every operation of the zone."""
        query: dict[str, str | int] = {"orderBy": "creationTimestamp desc", "maxResults": PAGE, "fields": FIELDS}
        if wanted:
            query["filter"] = wanted
        if token:
            query["pageToken"] = token
        answer = self._compute.read(f"zones/{zone}/operations", **query)
        operations: list[Mapping[str, Any]] = answer.get("items") or []
        for operation in operations:
            self._take(operation)
        return operations, str(answer.get("nextPageToken") or "")

    def _take(self, operation: Mapping[str, Any]) -> None:
        machine_id, end = str(operation.get("targetId") or ""), end_of(operation)
        if end is None or not machine_id:
            return
        with self._lock:
            known = self._ends.get(machine_id)
            if known is None or end.rank < known.rank:
                self._ends[machine_id] = end
                self._missed.pop(machine_id, None)
            while len(self._ends) > KEPT:
                self._ends.popitem(last=False)


def end_of(operation: Mapping[str, Any]) -> End | None:
    """None: the operation ends no machine, or it failed."""
    kind, failed = TYPES.get(str(operation.get("operationType"))), operation.get("httpErrorStatusCode")
    if operation.get("operationType") == "insert":
        kind, failed = _unborn(operation), None
    if kind is None or failed or "/instances/" not in operation.get("targetLink", ""):
        return None
    if is_release_of_ours(operation):
        kind = OURS
    elif kind[1] is Cause.MACHINE_DELETED and operation.get("user") == GOOGLE:
        kind = TAKEN  # no person: it must not end the run when it happens again
    rank, cause, text = kind
    word = text.format(user=operation.get("user") or "somebody")
    if cause is None:
        return End(rank, None, word)
    said = str(operation.get("statusMessage") or "")
    detail = f"{word} ({said.rstrip('.')})" if said else word
    return End(rank, MachineRecord(cause, detail, epoch_s(operation.get("insertTime"))), word)


def _unborn(operation: Mapping[str, Any]) -> tuple[int, Cause | None, str] | None:
    """What a create call says about its machine's end: None where it did not fail."""
    failures = (operation.get("error") or {}).get("errors") or ()
    if not failures:
        return None
    taken = any(
        str(one.get("code")).startswith(TAKEN_BACK) and not is_incompatible(str(one.get("message") or ""))
        for one in failures
    )
    return UNBORN if taken else NEVER_MADE


def is_release_of_ours(operation: Mapping[str, Any]) -> bool:
    """A delete that the supervisor asked for, in whatever process."""
    given = operation.get("clientOperationId")
    if not given or operation.get("operationType") != "delete":
        return False
    machine_id = str(operation.get("targetId"))
    return any(given == release_request_id(machine_id, number) for number in range(1, RELEASES + 1))

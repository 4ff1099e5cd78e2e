"""Operations: the requests to Compute Engine with their user, their machine and their end.

The records of a machine's end are operations too (`systemevent-...`, user `system`); they outlive their machine and are
matched by targetId, since names are used again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from tests.cloud.compute_errors import GOOGLE, OperationFailure, not_found, rfc3339
from tests.cloud.compute_pages import Key, Row

SYSTEM = "system"  # the user of what Google did by itself


def numeric_id(count: int, kind: int) -> int:
    """19 digits, the same in every run of a test."""
    return 1_000_000_000_000_000_000 + (count * 2_654_435_761_000_003 + kind * 977) % 8_000_000_000_000_000_000


@dataclass(frozen=True)
class Operation:
    """`at` .. in epoch seconds. `status_message`: what a system event says of itself."""

    op_id: int
    name: str
    project: str
    zone: str
    operation_type: str
    target: str  # projects/P/zones/Z/instances/N
    target_id: int
    user: str
    at: float
    client_operation_id: str | None = None
    status: str = "PENDING"
    ended_at: float | None = None
    failure: OperationFailure | None = None
    status_message: str | None = None

    @property
    def key(self) -> Key:
        return (self.name,)

    @cached_property
    def body(self) -> dict[str, Any]:
        scope = "%s/projects/%s/zones/%s" % (GOOGLE, self.project, self.zone)
        told: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(self.op_id),
            "name": self.name,
            "zone": scope,
            "operationType": self.operation_type,
            "targetLink": "%s/%s" % (GOOGLE, self.target),
            "targetId": str(self.target_id),
            "status": self.status,
            "user": self.user,
            "progress": 100 if self.status == "DONE" else 0,
            "insertTime": rfc3339(self.at),
            "selfLink": "%s/operations/%s" % (scope, self.name),
        }
        if self.status != "PENDING":
            told["startTime"] = rfc3339(self.at)
        if self.ended_at is not None:
            told["endTime"] = rfc3339(self.ended_at)
        if self.client_operation_id is not None:
            told["clientOperationId"] = self.client_operation_id
        if self.status_message is not None:
            told["statusMessage"] = self.status_message
        if self.failure is not None:
            told["error"] = self.failure.body()
            told["httpErrorStatusCode"] = self.failure.status
            told["httpErrorMessage"] = self.failure.http_message
        return told


class OperationBook:
    """All operations of a project, for ever (how long the real service keeps them is not documented)."""

    def __init__(self, project: str) -> None:
        self.project = project
        self._all: dict[str, Operation] = {}

    def add(self, zone: str, operation_type: str, target: str, target_id: int, user: str, at: float) -> Operation:
        count = len(self._all) + 1
        letters = sha256(("%s %s %d" % (operation_type, target, count)).encode()).hexdigest()
        name = "%s-%d-%s-%s-%s" % (
            "systemevent" if user == SYSTEM else "operation",
            at * 1000,
            letters[:13],
            letters[13:21],
            letters[21:29],
        )
        made = Operation(numeric_id(count, 1), name, self.project, zone, operation_type, target, target_id, user, at)
        self._all[name] = made
        return made

    def change(self, operation: Operation, **to: Any) -> Operation:
        self._all[operation.name] = changed = replace(self._all[operation.name], **to)
        return changed

    def get(self, zone: str, name: str) -> Operation:
        """By name or by numeric id, as in the API. Raises ApiError (404)."""
        found = self._all.get(name)
        if found is None and name.isdigit():
            found = next((one for one in self._all.values() if one.op_id == int(name)), None)
        if found is None or found.zone != zone:
            raise not_found("projects/%s/zones/%s/operations/%s" % (self.project, zone, name))
        return found

    def all(self) -> list[Operation]:
        """Oldest first."""
        return list(self._all.values())

    def rows(self, newest_first: bool, zone: str | None = None) -> list[tuple[Key, Row]]:
        chosen = [one for one in self._all.values() if zone is None or one.zone == zone]
        if newest_first:
            return sorted(((-one.at, -one.op_id), one) for one in chosen)
        return sorted((one.key, one) for one in chosen)

"""What one operation says about a machine's end, its user, and how the operations of one machine are found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.machines.records import end_of, release_request_id
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import GceSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    yield subject
    subject.close()


def test_a_delete_with_another_request_id_is_a_persons_even_of_our_own_account() -> None:
    operation = {
        "operationType": "delete",
        "targetId": "123",
        "targetLink": "https://x/compute/v1/projects/p/zones/z/instances/vm",
        "user": "spot@p.iam.gserviceaccount.com",
    }
    by_hand = end_of({**operation, "clientOperationId": "11111111-2222-5333-8444-555555555555"})
    assert by_hand is not None
    assert by_hand.record is not None
    ours = end_of({**operation, "clientOperationId": release_request_id("123", 2)})
    assert ours is not None
    assert ours.record is None
    assert end_of({**operation, "targetLink": "https://x/zones/z/disks/vm"}) is None
    assert end_of({**operation, "httpErrorStatusCode": 403}) is None
    assert end_of({**operation, "operationType": "setLabels"}) is None


@pytest.mark.parametrize(
    ("user", "cause"),
    [("alice@example.com", Cause.MACHINE_DELETED), ("system", Cause.HOST_ERROR), ("", Cause.MACHINE_DELETED)],
)
@pytest.mark.parametrize("kind", ["delete", "stop"])
def test_what_google_does_by_itself_is_no_persons_deed(kind: str, user: str, cause: Cause) -> None:
    """Three actions of persons within an hour end the run."""
    link = "https://x/compute/v1/projects/p/zones/z/instances/vm"
    end = end_of({"operationType": kind, "targetId": "1", "targetLink": link, "user": user})
    preempted = end_of({"operationType": "compute.instances.preempted", "targetId": "1", "targetLink": link})
    assert end is not None
    assert end.record is not None
    assert end.record.cause is cause
    assert preempted is not None
    assert preempted.rank < end.rank


@pytest.mark.parametrize(
    ("code", "cause"), [("UNSUPPORTED_OPERATION", Cause.PREEMPTED), ("ZONE_RESOURCE_POOL_EXHAUSTED", None)]
)
def test_a_create_call_that_failed_is_an_end_too(code: str, cause: Cause | None) -> None:
    operation = {"operationType": "insert", "targetId": "1", "targetLink": "https://x/zones/z/instances/vm"}
    assert end_of(operation) is None
    end = end_of({**operation, "httpErrorStatusCode": 503, "error": {"errors": [{"code": code}]}})
    assert end is not None
    assert (end.record and end.record.cause) == cause
    assert not end.is_off  # it is known, so nothing is waited for


def test_a_filter_by_machine_that_google_would_not_take_is_done_without(subject: GceSubject) -> None:
    """No document has an example of it; the one by type is documented."""
    request, other = subject.request(), subject.request("other")
    machine, another = subject.up(request), subject.up(other)
    subject.compute.preempt(request.name)
    subject.clock.advance(60.0)
    fresh = subject.make()
    read = fresh._compute.read

    def strict(path: str, **query: str | int) -> dict[str, object]:
        if "targetId" in str(query.get("filter")):
            raise ApiError("Invalid value for field 'filter'", 400, "invalid")
        return read(path, **query)

    fresh._compute.read = strict  # type: ignore[method-assign]
    found = fresh.find(ref(request, machine.machine_id))
    assert found is not None
    assert found.record is not None
    assert found.record.cause is Cause.PREEMPTED
    assert fresh._records.read_machine(request.placement.zone, another.machine_id)
    assert not fresh._records.read_machine(request.placement.zone, "1234")

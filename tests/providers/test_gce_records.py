"""What one operation says about a machine's end, and whose it was."""

from __future__ import annotations

import pytest

from supervisor.domain.causes import Cause
from supervisor.providers.gce.records import end_of, release_request_id


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
    ("code", "cause"), [("UNSUPPORTED_OPERATION", Cause.PREEMPTED), ("ZONE_RESOURCE_POOL_EXHAUSTED", None)]
)
def test_a_create_call_that_failed_is_an_end_too(code: str, cause: Cause | None) -> None:
    operation = {"operationType": "insert", "targetId": "1", "targetLink": "https://x/zones/z/instances/vm"}
    assert end_of(operation) is None
    end = end_of({**operation, "httpErrorStatusCode": 503, "error": {"errors": [{"code": code}]}})
    assert end is not None
    assert (end.record and end.record.cause) == cause
    assert not end.is_off  # it is known, so nothing is waited for

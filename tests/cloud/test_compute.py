"""The fake Compute Engine as the official client sees it: operations, a VM's whole life, its console, who ended it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.api_core import exceptions as google_errors

from tests.cloud.compute_rig import ZONE, Rig, compute_rig

SOME_ID = "5b2f0c1e-3d53-4d7a-9c39-6c1f0a4d9a11"


@pytest.fixture
def rig() -> Iterator[Rig]:
    with compute_rig() as made:
        yield made


def test_an_insert_is_pending_then_running_then_done_and_the_machine_walks_beside_it(rig: Rig) -> None:
    asked = rig.insert(request_id=SOME_ID)
    assert asked.status.name == "PENDING"
    assert asked.client_operation_id == SOME_ID
    assert rig.status() == "PROVISIONING"
    rig.after(1)
    assert rig.operation(asked).status.name == "RUNNING"
    rig.after(2)
    assert rig.status() == "STAGING"
    assert rig.told == []
    rig.after(1)
    assert rig.status() == "RUNNING"
    done = rig.operation(asked)
    assert done.status.name == "DONE"
    assert not done.error.errors
    assert done.target_id == rig.fake.instance("vm-1").vm_id
    assert rig.told == [("running", "vm-1")]


def test_the_same_request_id_gives_the_same_operation_and_no_second_machine(rig: Rig) -> None:
    first = rig.insert(request_id=SOME_ID)
    again = rig.insert(request_id=SOME_ID)
    assert again.name == first.name
    assert rig.fake.names() == ["vm-1"]
    rig.after(10)
    assert rig.insert(request_id=SOME_ID).status.name == "DONE"
    with pytest.raises(google_errors.Conflict) as conflict:
        rig.insert()
    assert conflict.value.errors[0]["reason"] == "alreadyExists"
    rig.fake.forget_requests()
    with pytest.raises(google_errors.Conflict):
        rig.insert(request_id=SOME_ID)


@pytest.mark.parametrize("request_id", ["00000000-0000-0000-0000-000000000000", "not-a-uuid"])
def test_a_request_id_that_is_none_is_refused_and_nothing_is_made(rig: Rig, request_id: str) -> None:
    with pytest.raises(google_errors.BadRequest):
        rig.insert(request_id=request_id)
    assert rig.fake.names() == []


def test_a_deleted_machine_stops_first_and_its_operation_outlives_it(rig: Rig) -> None:
    rig.running()
    asked = rig.instances.delete_unary(project="p", zone=ZONE, instance="vm-1")
    assert rig.status() == "STOPPING"
    with pytest.raises(google_errors.Forbidden) as twice:
        rig.instances.delete_unary(project="p", zone=ZONE, instance="vm-1")
    assert twice.value.errors[0]["reason"] == "resourceNotReady"
    rig.after(rig.fake.delete_s)
    with pytest.raises(google_errors.NotFound):
        rig.status()
    done = rig.operation(asked)
    assert (done.status.name, done.operation_type, done.user) == ("DONE", "delete", rig.fake.account)
    assert rig.told[1:] == [("stop", "vm-1", False), ("stop", "vm-1", True)]


def test_a_false_404_of_a_machine_that_the_list_still_shows(rig: Rig) -> None:
    rig.running()
    rig.fake.false_404("vm-1", until=rig.now + 5)
    with pytest.raises(google_errors.NotFound):
        rig.status()
    assert [vm.name for vm in rig.instances.list(project="p", zone=ZONE)] == ["vm-1"]
    rig.after(5)
    assert rig.status() == "RUNNING"


def test_a_stopped_machine_stays_and_can_be_started_again(rig: Rig) -> None:
    rig.running()
    rig.instances.stop_unary(project="p", zone=ZONE, instance="vm-1")
    rig.after(rig.fake.stop_s)
    assert rig.status() == "TERMINATED"
    with pytest.raises(google_errors.BadRequest):  # as in the real service: a machine that is off has no console
        rig.instances.get_serial_port_output(project="p", zone=ZONE, instance="vm-1")
    rig.instances.start_unary(project="p", zone=ZONE, instance="vm-1")
    rig.after(rig.fake.create_s)
    assert rig.status() == "RUNNING"
    assert rig.told[-1] == ("running", "vm-1")


@pytest.mark.parametrize(("notice_s", "action"), [(0, "DELETE"), (120, "DELETE"), (120, "STOP")])
def test_a_preemption_with_and_without_notice(rig: Rig, notice_s: int, action: str) -> None:
    vm = rig.running(preemptionNoticeDuration={"seconds": str(notice_s)}, instanceTerminationAction=action)
    rig.fake.preempt("vm-1")
    assert ("notice", "vm-1", notice_s) in rig.told
    if notice_s:
        rig.after(119)
        assert rig.status() == "RUNNING"
        assert rig.events() == []
        rig.after(1)
    assert rig.status() == "STOPPING"
    assert rig.told[-1] == ("stop", "vm-1", False)
    rig.after(rig.fake.preempted_stop_s)
    assert rig.told[-1] == ("stop", "vm-1", True)
    assert ("vm-1" in rig.fake.names()) == (action == "STOP")
    wanted = 'operationType="compute.instances.preempted"'
    request = {"project": "p", "zone": ZONE, "filter": wanted, "order_by": "creationTimestamp desc"}
    (event,) = rig.operations.list(request)
    assert event.name.startswith("systemevent-")
    assert (event.user, event.status_message) == ("system", "Instance was preempted.")
    assert event.target_id == vm.vm_id


def test_a_guest_that_is_off_early_ends_its_preemption_early(rig: Rig) -> None:
    rig.running()
    rig.fake.preempt("vm-1")
    rig.after(4)
    rig.fake.guest_powered_off("vm-1", ZONE)
    assert rig.fake.names() == []
    assert rig.events() == ["compute.instances.preempted"]


def test_preempted_while_it_is_created(rig: Rig) -> None:
    rig.fake.preempt_when_created(ZONE, after_s=1)
    asked = rig.insert()
    rig.after(1)
    failed = rig.operation(asked)
    assert failed.error.errors[0].code == "UNSUPPORTED_OPERATION"
    assert rig.fake.names() == []
    assert rig.told == []  # it never ran


def test_preempted_seventy_seconds_after_its_insert(rig: Rig) -> None:
    rig.fake.preempt_when_created(ZONE, after_s=70, record=False)
    rig.insert()
    rig.after(69)
    assert rig.status() == "RUNNING"
    rig.after(1 + rig.fake.preempted_stop_s)
    assert rig.fake.names() == []
    assert rig.events() == []


@pytest.mark.parametrize(("action", "event"), [("DELETE", "deferredDelete"), ("STOP", "deferredStop")])
def test_the_time_limit_counts_from_running(rig: Rig, action: str, event: str) -> None:
    rig.running(maxRunDuration={"seconds": "600"}, instanceTerminationAction=action)
    planned = rig.instances.get(project="p", zone=ZONE, instance="vm-1").resource_status.scheduling
    assert planned.termination_timestamp
    rig.after(599)
    assert rig.status() == "RUNNING"
    rig.after(1)
    assert rig.status() == "STOPPING"
    rig.after(30)
    assert ("vm-1" in rig.fake.names()) == (action == "STOP")
    assert rig.events() == ["compute.instances." + event]


def test_a_host_error_ends_a_spot_machine_and_restarts_another(rig: Rig) -> None:
    rig.running()
    rig.running("vm-2", provisioningModel="STANDARD", automaticRestart=True, instanceTerminationAction=None)
    rig.fake.host_error("vm-1")
    rig.fake.host_error("vm-2")
    assert (rig.status("vm-1"), rig.status("vm-2")) == ("TERMINATED", "REPAIRING")
    rig.after(rig.fake.create_s)
    assert rig.status("vm-2") == "RUNNING"
    assert rig.events() == ["compute.instances." + end for end in ("hostError", "hostError", "automaticRestart")]


def test_who_ended_it_is_in_the_operation(rig: Rig) -> None:
    rig.running("vm-1")
    rig.running("vm-2")
    rig.running("vm-3")
    rig.fake.delete_by("alice@example.com", "vm-1")
    rig.fake.stop_by("bob@example.com", "vm-2")
    rig.fake.guest_powered_off("vm-3")
    rig.after(10)
    ends = [(one.user, one.operation_type) for one in rig.operations.list(project="p", zone=ZONE)]
    assert ("alice@example.com", "delete") in ends
    assert ("bob@example.com", "stop") in ends
    assert ("system", "compute.instances.guestTerminate") in ends
    assert (rig.status("vm-2"), rig.status("vm-3")) == ("TERMINATED", "TERMINATED")
    assert "vm-1" not in rig.fake.names()


def test_a_record_may_come_late_and_says_the_true_moment(rig: Rig) -> None:
    rig.running()
    rig.fake.preempt("vm-1", record_after_s=45)
    rig.after(44)
    assert (rig.fake.names(), rig.events()) == ([], [])
    newest = rig.get("zones/%s/operations" % ZONE, orderBy="creationTimestamp desc")["items"][0]
    assert newest["operationType"] == "insert"
    rig.after(1)
    newest = rig.get("zones/%s/operations" % ZONE, orderBy="creationTimestamp desc")["items"][0]
    assert (newest["operationType"], newest["insertTime"]) == (
        "compute.instances.preempted",
        "2027-01-15T00:00:04.000-08:00",
    )


def test_what_a_later_wish_overtakes_is_done_too(rig: Rig) -> None:
    rig.running()
    stop = rig.instances.stop_unary(project="p", zone=ZONE, instance="vm-1")
    rig.instances.delete_unary(project="p", zone=ZONE, instance="vm-1")
    rig.fake.overlapping_delete = None
    again = rig.instances.delete_unary(project="p", zone=ZONE, instance="vm-1")
    rig.after(10)
    assert [rig.operation(one).status.name for one in (stop, again)] == ["DONE", "DONE"]
    assert rig.told[1:] == [("stop", "vm-1", False), ("stop", "vm-1", True)]
    assert rig.fake.names() == []


def test_a_zombie_is_running_and_boots_nothing(rig: Rig) -> None:
    rig.fake.zombie(ZONE)
    rig.running()
    rig.fake.preempt("vm-1")
    rig.after(30)
    assert rig.told == []


def test_the_console_keeps_one_megabyte_and_says_where_it_starts(rig: Rig) -> None:
    rig.running()

    def read(**start: int) -> tuple[int, int, str]:
        told = rig.instances.get_serial_port_output({"project": "p", "zone": ZONE, "instance": "vm-1", **start})
        return told.start, told.next_, told.contents

    assert read() == (0, 0, "")
    rig.fake.append_serial("vm-1", ZONE, b"spot: phase=boot\n")
    assert read() == (0, 17, "spot: phase=boot\n")
    assert read(start=17) == (17, 17, "")
    assert read(start=-5) == (12, 17, "boot\n")
    rig.fake.append_serial("vm-1", ZONE, b"x" * 1024 * 1024 + b"end")
    start, following, contents = read(start=17)
    assert (start, following) == (20, 17 + 1024 * 1024 + 3)  # a gap of three bytes
    assert contents.endswith("xend")
    assert len(contents) == 1024 * 1024


def test_a_fingerprint_that_has_changed_is_412(rig: Rig) -> None:
    from google.cloud.compute_v1 import InstancesSetLabelsRequest

    rig.running()
    old = rig.instances.get(project="p", zone=ZONE, instance="vm-1").label_fingerprint

    def label(fingerprint: str) -> None:
        body = InstancesSetLabelsRequest(label_fingerprint=fingerprint, labels={"kept": "yes"})
        rig.instances.set_labels_unary(
            project="p", zone=ZONE, instance="vm-1", instances_set_labels_request_resource=body
        )

    label(old)
    assert rig.fake.instance("vm-1").labels == {"kept": "yes"}
    with pytest.raises(google_errors.PreconditionFailed) as stale:
        label(old)
    assert stale.value.errors[0]["reason"] == "conditionNotMet"

"""Kept machines before the tests' Compute Engine: what is sent, what a lost response means, whose end counts."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import LaunchRejected, LaunchRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from supervisor.providers.gce.machines.machine import is_prepared
from tests.cloud.web import Hang, Reset
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import GceSubject

START = r"/start$"


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path, per_try_s=0.4)
    yield subject
    subject.close()


def preempted(subject: GceSubject) -> LaunchRequest:
    """A kept machine that Google has stopped; the request for the attempt after it."""
    first = subject.kept()
    subject.up(first)
    subject.compute.preempt(first.name)
    subject.eventually(
        lambda: (m := subject.listed(first)) and m.state is MachineState.ENDED and m.record, "the machine to be off"
    )
    return subject.kept(attempt=2)


def test_google_stops_a_kept_machine_where_it_deletes_others(subject: GceSubject) -> None:
    """Broken variant: the machine is deleted with its disk at its first preemption."""
    again = preempted(subject)
    listed = subject.listed(again)
    assert listed is not None
    assert listed.record is not None
    assert listed.record.cause is Cause.PREEMPTED
    other = subject.request(run="other")
    subject.up(other)
    assert subject.compute.instance(other.name).scheduling["instanceTerminationAction"] == "DELETE"
    kept = subject.compute.instance(again.name)
    assert kept.scheduling["instanceTerminationAction"] == "STOP"
    assert kept.scheduling["maxRunDuration"] == {"seconds": "3600"}, "its own limit ends a forgotten one all the same"
    assert kept.body["disks"][0]["autoDelete"]


def test_a_started_machine_has_everything_of_its_new_launch(subject: GceSubject) -> None:
    again = preempted(subject)
    machine = subject.up_again(again)
    vm = subject.compute.instance(again.name)
    job = json.loads(gzip.decompress(b64decode(vm.metadata["spot-job"])))
    assert (vm.metadata["spot-launch-id"], vm.metadata["spot-attempt"], job["launch_id"]) == ("1.2.1", "2", "1.2.1")
    assert vm.metadata["spot-keep"] == "true"
    assert (vm.labels["spot-launch-id"], vm.labels["spot-attempt"]) == ("1-2-1", "2")
    assert machine.machine_id == vm.id


def test_the_record_of_an_earlier_life_says_nothing_about_this_one(subject: GceSubject) -> None:
    """Broken variant: `preempted` is the strongest word, so it would be the reason of every later end too."""
    again = preempted(subject)
    subject.up_again(again)
    listed, found = subject.listed(again), subject.provider.find(ref(again))
    assert listed is not None
    assert found is not None
    assert listed.record is found.record is None
    subject.compute.host_error(again.name)
    for provider in (subject.provider, subject.make()):  # also after a restart, which reads all operations again
        ended = subject.eventually(
            lambda p=provider: next((m for m in p.machines().machines if m.record is not None), None), "its record"
        )
        assert ended.record.cause is Cause.HOST_ERROR


def test_our_own_stop_is_no_record(subject: GceSubject) -> None:
    subject.up(subject.kept())
    machine = subject.off(subject.kept())
    assert machine.record is None
    assert "switched off by the supervisor" in machine.detail


@pytest.mark.parametrize("how", [Hang, Reset, 503])
def test_a_start_whose_response_is_lost_is_found(subject: GceSubject, how: object) -> None:
    again = preempted(subject)
    subject.compute.fail_next("POST", START, how, times=1, lost=True)  # type: ignore[arg-type]
    with suppress(ProviderUnavailable):
        subject.provider.start(again, ref(again))
    assert subject.up_again(again).launch_id == "1.2.1"


@pytest.mark.parametrize("verb", ["setMetadata", "setLabels", "start"])
def test_a_crash_after_each_request_is_completed_by_the_same_launch(subject: GceSubject, verb: str) -> None:
    """The process dies: another one, which remembers nothing, sends the same launch again."""
    again = preempted(subject)
    subject.compute.fail_next("POST", f"/{verb}$", Reset, times=None, for_s=30.0, lost=True)
    with pytest.raises(ProviderUnavailable):
        subject.provider.start(again, ref(again))
    subject.compute.calm()
    subject.clock.advance(120.0)
    subject.provider.close()
    subject.provider = subject.make()
    assert subject.up_again(again).launch_id == "1.2.1"
    assert len(subject.compute.names()) == 1


def test_no_capacity_is_definite_and_leaves_the_machine_off_with_its_disk(subject: GceSubject) -> None:
    again = preempted(subject)
    subject.compute.stock_out("*")
    with pytest.raises(NoCapacity):
        subject.provider.start(again, ref(again))
    vm = subject.compute.instance(again.name)
    assert vm.status == "TERMINATED"
    assert is_prepared(vm.body)
    listed = subject.listed(again)
    assert listed is not None
    assert listed.state is MachineState.ASKED, "the launch in its labels has not run there"
    subject.compute.restock()
    later = subject.kept(attempt=3)
    assert subject.up_again(later).launch_id == "1.3.1"


def test_a_machine_type_that_is_no_longer_offered_and_a_quota_are_told_apart(subject: GceSubject) -> None:
    again = preempted(subject)
    subject.compute.stock_out("*", code="RESOURCE_NOT_FOUND")
    with pytest.raises(LaunchRejected):
        subject.provider.start(again, ref(again))
    subject.compute.restock()
    subject.compute.quota("*")
    with pytest.raises(QuotaExceeded):
        subject.provider.start(subject.kept(attempt=3), ref(again))


def test_a_machine_that_was_deleted_meanwhile_is_a_definite_no(subject: GceSubject) -> None:
    again = preempted(subject)
    subject.compute.delete_by("ada@example.com", again.name)
    subject.gone(again)
    with pytest.raises(LaunchRejected, match="does not exist any more"):
        subject.provider.start(again, ref(again))


def test_a_machine_that_stops_by_its_own_limit_is_kept_too(subject: GceSubject) -> None:
    first = subject.kept()
    subject.up(first)
    subject.clock.advance(3700.0)
    ended = subject.eventually(
        lambda: (m := subject.listed(first)) and m.state is MachineState.ENDED and m.record and m, "its end"
    )
    assert ended.record.cause is Cause.EXPIRED
    assert subject.up_again(subject.kept(attempt=2)).record is None

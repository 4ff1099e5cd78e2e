"""Create calls that fail in every way they can: one machine at the end, or a definite word why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import LaunchPending, LaunchRejected, NoCapacity, ProviderUnavailable, QuotaExceeded
from supervisor.providers.gce.config import DataDisk, NewDisk, Shape
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.machines.launching import SETTLED_S
from tests.cloud.web import Hang, Reset
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import ZONES, GceSubject

INSERT = r"/instances$"


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path, per_try_s=0.4)
    yield subject
    subject.close()


def test_an_answer_lost_is_found_again(subject: GceSubject) -> None:
    request = subject.request()
    subject.compute.fail_next("POST", INSERT, Reset, lost=True)
    machine = subject.provider.launch(request)
    assert subject.compute.names() == [request.name]
    assert machine.machine_id == subject.compute.instance(request.name).id


def test_an_insert_that_times_out_says_nothing_and_the_repeat_adopts(subject: GceSubject) -> None:
    """Every response hangs, and the machine starts anyway."""
    request = subject.request()
    subject.compute.fail_next("POST", INSERT, Hang, times=None, lost=True, for_s=1000.0)
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(request)
    subject.compute.calm()
    subject.clock.advance(120.0)
    found = subject.make().launch(request)  # a restarted supervisor remembers nothing
    assert found.machine_id == subject.compute.instance(request.name).id
    assert found.state is MachineState.UP
    assert len(subject.compute.names()) == 1


def test_a_launch_that_takes_longer_is_learnt_by_the_next_one(subject: GceSubject) -> None:
    subject.compute.create_s = 90.0
    request = subject.request()
    start = subject.clock.now()
    with pytest.raises(LaunchPending, match="looking for capacity"):
        subject.provider.launch(request)
    assert subject.clock.now() - start <= 26.0
    assert subject.listed(request).state is MachineState.ASKED  # type: ignore[union-attr]
    subject.clock.advance(90.0)
    subject.compute.clear_requests()
    assert subject.provider.launch(request).state is MachineState.UP
    assert subject.compute.count("POST") == 0  # the known operation was read, nothing was inserted again


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"])
def test_a_stock_out_is_definite_now_and_at_every_repeat(subject: GceSubject, code: str) -> None:
    request = subject.request()
    subject.compute.stock_out(request.placement.zone, code=code)
    for provider in (subject.provider, subject.provider, subject.make()):
        with pytest.raises(NoCapacity, match="ZONE_RESOURCE_POOL_EXHAUSTED"):
            provider.launch(request)
    assert subject.listed(request) is None
    assert subject.provider.launch(subject.request(zone=1)).machine_id


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    ("metric", "scope"), [("GPUS_ALL_REGIONS", "project"), ("PREEMPTIBLE_NVIDIA_T4_GPUS", "region")]
)
def test_a_quota_is_no_stock_out(subject: GceSubject, metric: str, scope: str, at_once: bool) -> None:
    subject.compute.quota("*", metric, 2.0, at_once=at_once)
    with pytest.raises(QuotaExceeded, match=metric) as told:
        subject.provider.launch(subject.request())
    assert told.value.scope == scope


def test_preempted_while_it_is_made_is_a_lack_of_room(subject: GceSubject) -> None:
    request = subject.request()
    subject.compute.preempt_when_created(request.placement.zone, 1.0)
    with pytest.raises(NoCapacity, match="UNSUPPORTED_OPERATION"):
        subject.provider.launch(request)


def test_a_disk_that_the_series_does_not_take_is_refused_and_no_stock_out(
    subject: GceSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a table that does not know the series yet; Google's code is that of a preemption."""
    monkeypatch.setattr(instance, "boot_disk_type", lambda wanted, shape: wanted)
    subject.config = replace(subject.config, shapes={"t4": Shape("a4-highgpu-8g", "", 8)})
    for provider in (subject.make(), subject.make()):
        with pytest.raises(LaunchRejected, match="set gce_boot_disk_type"):
            provider.launch(replace(subject.request(), repeated=True))
    monkeypatch.undo()
    assert subject.make().launch(subject.request(zone=1)).machine_id


def test_a_disk_that_is_made_with_each_machine_is_asked_for_and_goes_with_it(subject: GceSubject) -> None:
    subject.config = replace(subject.config, new_disk=NewDisk(500, "pd-balanced"))
    machine = subject.make().launch(subject.request(zone=1))
    (disk,) = [disk for disk in subject.compute.instance(machine.name).body["disks"] if not disk["boot"]]
    assert disk["autoDelete"] is True
    assert disk["source"].endswith(f"/zones/{ZONES[1]}/disks/{machine.name}-data")


def test_many_machines_share_a_data_disk_that_none_may_write_to(subject: GceSubject) -> None:
    zone = subject.config.zones[0]
    subject.compute.catalog.add_disk(zone, "corpus")
    subject.config = replace(subject.config, data_disk=DataDisk("corpus", zone, read_only=True))
    for run in ("digits", "letters"):
        assert subject.make().launch(subject.request(run)).machine_id
    subject.config = replace(subject.config, data_disk=DataDisk("corpus", zone))
    with pytest.raises(NoCapacity, match="already being used"):
        subject.make().launch(subject.request("signs"))


def test_a_machine_that_came_and_went_unseen_is_a_definite_no(subject: GceSubject) -> None:
    """The supervisor was dead in the meantime: repeating the launch forever would never give a machine."""
    request = subject.request()
    subject.up(request)
    subject.compute.preempt(request.name)
    subject.clock.advance(300.0)
    assert subject.compute.names() == []
    with pytest.raises(NoCapacity, match="does not exist any more: Google preempted the machine"):
        subject.make().launch(request)


def test_a_machine_that_seems_not_to_be_there_is_not_given_up(subject: GceSubject) -> None:
    request = subject.request()
    subject.compute.false_404(request.name, subject.clock.now() + 60.0)
    with pytest.raises(ProviderUnavailable, match="does not say why yet"):
        subject.provider.launch(request)
    subject.clock.advance(61.0)
    assert subject.provider.launch(request).state is MachineState.UP


def test_the_name_of_another_try_is_refused_and_left_alone(subject: GceSubject) -> None:
    request = subject.request()
    first = subject.up(request)
    other = subject.request(supervisor_id="supervisor-two")
    with pytest.raises(LaunchRejected, match=r"of launch 1\.1\.1 of run digits"):
        subject.make().launch(replace(other, request_id="00000000-0000-5000-8000-000000000001"))
    assert subject.listed(request) == first


def test_the_same_try_is_adopted_when_google_has_forgotten_the_request(subject: GceSubject) -> None:
    """How long a request id is kept is not documented: the name and the labels are the second line."""
    request = subject.request()
    first = subject.up(request)
    forgotten = replace(request, request_id="00000000-0000-5000-8000-000000000002")
    assert subject.make().launch(forgotten).machine_id == first.machine_id


def test_the_agent_is_put_into_the_store_once(subject: GceSubject) -> None:
    puts: list[str] = []
    put = subject.objects.put
    subject.objects.put = lambda key, *a, **k: (puts.append(key), put(key, *a, **k))[1]  # type: ignore[method-assign]
    subject.provider.launch(subject.request())
    subject.provider.launch(subject.request(run="other"))
    told = subject.compute.instance(subject.request().name).metadata["spot-agent-sha256"]
    assert puts == [runfiles.agent(told)]
    assert subject.objects.get(runfiles.agent(told))[0] == b"an agent"
    subject.make().launch(subject.request(run="third"))  # it is there already: no error
    assert len(puts) == 2


def test_no_launch_without_the_agent(subject: GceSubject) -> None:
    subject.agent.unlink()
    with pytest.raises(LaunchRejected, match="not complete"):
        subject.provider.launch(subject.request())
    assert subject.compute.names() == []


def test_a_refused_permission_is_told_in_words(subject: GceSubject) -> None:
    subject.compute.fail_next("POST", INSERT, 403, reason="forbidden")
    with pytest.raises(LaunchRejected, match="spot doctor"):
        subject.provider.launch(subject.request())


def test_a_refusal_after_a_lost_answer_is_not_definite(subject: GceSubject) -> None:
    """The first call was carried out and its response was lost; its repeat is refused."""
    request = subject.request()
    subject.compute.fail_next("POST", INSERT, Reset, lost=True)
    subject.compute.fail_next("POST", INSERT, 403, reason="forbidden")
    assert subject.provider.launch(request).machine_id == subject.compute.instance(request.name).id


def test_a_refusal_is_definite_once_no_earlier_call_can_make_a_machine(subject: GceSubject) -> None:
    request = subject.request()
    subject.compute.fail_next("POST", INSERT, Reset)
    subject.compute.fail_next("POST", INSERT, 403, times=None, for_s=1000.0, reason="forbidden")
    with pytest.raises(ProviderUnavailable, match="may still appear"):
        subject.provider.launch(request)
    with pytest.raises(ProviderUnavailable, match="may still appear"):  # a new process knows only that it is a repeat
        subject.make().launch(replace(request, repeated=True))
    subject.clock.advance(SETTLED_S + 1.0)
    with pytest.raises(LaunchRejected, match="spot doctor"):
        subject.provider.launch(request)
    assert subject.compute.names() == []


def test_a_machine_that_is_there_wins_over_a_refusal_of_our_own(subject: GceSubject) -> None:
    """After a restart the agent's archive is missing, and the settings no longer offer the zone."""
    request = subject.request()
    machine = subject.up(request)
    subject.agent.unlink()
    assert subject.make().launch(replace(request, repeated=True)).machine_id == machine.machine_id
    subject.config = replace(subject.config, zones=ZONES[1:])
    assert subject.make().launch(replace(request, repeated=True)).machine_id == machine.machine_id


@pytest.mark.parametrize("status", [400, 403, 404, 409, 412])
def test_a_poll_that_is_refused_says_nothing_of_the_insert(subject: GceSubject, status: int) -> None:
    """Neither for an existing machine, nor for a stock-out, which the same insert then reports."""
    request, other = subject.request(), subject.request(zone=1)
    subject.compute.stock_out(other.placement.zone)
    subject.compute.fail_next("GET", "/operations/", status, times=None, for_s=1000.0, reason="forbidden")
    assert subject.provider.launch(request).machine_id == subject.compute.instance(request.name).id
    subject.provider.launch(other)  # Google is looking for capacity
    subject.clock.advance(60.0)
    with pytest.raises(NoCapacity):
        subject.provider.launch(other)


@pytest.mark.parametrize(("status", "reason"), [(429, None), (403, "rateLimitExceeded"), (500, None), (503, None)])
def test_a_busy_cloud_is_asked_again_and_says_nothing_when_it_stays_busy(
    subject: GceSubject, status: int, reason: str | None
) -> None:
    request = subject.request()
    subject.compute.fail_next("POST", INSERT, status, times=2, reason=reason)
    assert subject.provider.launch(request).machine_id
    other = subject.request(run="other")
    subject.compute.fail_next("POST", INSERT, status, times=None, reason=reason, for_s=600.0)
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(other)
    assert subject.provider.find(ref(other)) is None


def test_many_launches_wait_in_turns(subject: GceSubject) -> None:
    """With 20 calls at once each waits for a second or two, so that no run waits for the others' 25 s."""
    launcher = subject.provider._launcher
    with launcher.wait_limit_s() as alone:
        assert alone == 25.0
        with launcher.wait_limit_s() as second:
            assert second == 12.5
    with launcher.wait_limit_s() as again:
        assert again == 25.0

"""Google's own events of machines: by id, by the address of a try that came to nothing, never of anybody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.machines import MachineRef
from supervisor.ports.provider import LaunchFailed, ProviderUnavailable
from supervisor.providers.gce.machines import history as history_file
from supervisor.providers.gce.machines import records
from tests.contracts.platform_stages import GceStage
from tests.contracts.provider_subject import ref

LONG_AGO = 0.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GceStage]:
    stage = GceStage(tmp_path)
    yield stage
    stage.close()


def told(stage: GceStage, *refs: MachineRef, since: float = LONG_AGO) -> list[tuple[str, str, str]]:
    found = stage.platform.history(refs or [stage.ref], since)
    return [(event.kind, event.text, event.actor) for event in found]


def test_a_preemption_is_told_after_the_machine_is_gone(stage: GceStage) -> None:
    account = stage.subject.compute.account
    stage.subject.compute.preempt(stage.ref.name)
    stage.subject.gone(stage.request)
    assert told(stage) == [
        ("insert", f"created by {account}", account),
        ("compute.instances.preempted", "Google preempted the machine (Instance was preempted)", "system"),
    ]


def test_our_own_release_is_told_from_a_persons_delete(stage: GceStage) -> None:
    stage.end()
    assert told(stage)[-1][:2] == ("delete", "released by the supervisor")
    other = stage.subject.request(attempt=2)
    machine = stage.subject.up(other)
    stage.subject.compute.delete_by("ann@example.com", other.name)
    assert told(stage, ref(other, machine.machine_id))[-1] == (
        "delete", "deleted by ann@example.com", "ann@example.com",
    )  # fmt: skip


def test_a_try_that_obtained_no_machine_is_told_with_googles_reason(stage: GceStage) -> None:
    request = stage.subject.request(attempt=2)
    stage.subject.compute.stock_out(request.placement.zone)
    with pytest.raises(LaunchFailed):
        stage.subject.provider.launch(request)
    [(kind, text, _)] = told(stage, ref(request))
    assert kind == "insert"
    assert "it failed: ZONE_RESOURCE_POOL_EXHAUSTED" in text


def test_what_is_done_to_another_machine_is_not_told(stage: GceStage) -> None:
    """Not even where its name begins with ours, or where it had our machine's name before."""
    longer = stage.subject.request(try_number=11)
    assert longer.name.startswith(stage.ref.name)
    stage.subject.up(longer)
    assert len(told(stage)) == 1
    assert len(told(stage, MachineRef("gce", stage.ref.zone, stage.ref.name))) == 1
    assert told(stage, MachineRef("gce", stage.ref.zone, stage.ref.name, "123")) == []


def test_only_what_happened_since_then(stage: GceStage) -> None:
    stage.subject.clock.advance(600.0)
    moment = stage.subject.clock.now() - 1.0
    stage.subject.compute.host_error(stage.ref.name)
    assert [kind for kind, _, _ in told(stage, since=moment)] == ["compute.instances.hostError"]


def test_many_machines_of_several_zones_take_few_requests(stage: GceStage) -> None:
    requests = [stage.subject.request(attempt=2 + n, zone=n % 2) for n in range(30)]
    refs = [stage.ref]
    for request in requests:
        machine = stage.subject.up(request)
        refs.append(ref(request, machine.machine_id))
    stage.subject.compute.clear_requests()
    found = stage.platform.history(refs, LONG_AGO)
    assert len(found) == 31
    assert [event.at for event in found] == sorted(event.at for event in found)
    assert stage.subject.compute.count("GET", "operations") == 2


def test_where_google_refuses_the_filter_the_newest_operations_of_the_zone_are_read(
    stage: GceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.subject.up(stage.subject.request(attempt=2))
    read = stage.compute.read

    def refusing(path: str, **query: str | int) -> dict[str, object]:
        if "filter" in query:
            raise history_file.ApiError("Invalid list filter expression.", 400, "invalid")
        return read(path, **query)

    monkeypatch.setattr(stage.compute, "read", refusing)
    assert [kind for kind, _, _ in told(stage)] == ["insert"]


def test_more_operations_than_are_read_is_said_and_not_passed_over(
    stage: GceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_file, "PAGE", 1)
    monkeypatch.setattr(records, "PAGE", 1)
    monkeypatch.setattr(history_file, "PAGES", 2)
    for n in range(3):
        stage.subject.compute.operations.add(
            stage.ref.zone, f"strange{n}", "projects/p/zones/z/instances/x", int(stage.ref.machine_id or 0),
            "somebody", stage.subject.clock.now(),
        )  # fmt: skip
    with pytest.raises(ProviderUnavailable, match="more than 2 operations"):
        stage.platform.history([stage.ref], LONG_AGO)


def test_words_of_tomorrow_are_passed_on(stage: GceStage) -> None:
    stage.subject.compute.operations.add(
        stage.ref.zone, "compute.instances.sentToMars", "projects/p/zones/z/instances/x",
        int(stage.ref.machine_id or 0), "system", stage.subject.clock.now(),
    )  # fmt: skip
    assert ("compute.instances.sentToMars", "sentToMars by system", "system") in told(stage)

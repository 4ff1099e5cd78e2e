"""A Spot VM is preempted on purpose: the right one, with a real preemption, and nothing else can be done to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.providers.gce.config import offers
from supervisor.providers.gce.machines.releasing import GceDisasters
from tests.contracts.platform_stages import GceStage
from tests.contracts.provider_subject import ref


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GceStage]:
    stage = GceStage(tmp_path)
    yield stage
    stage.close()


def asked(stage: GceStage) -> int:
    return stage.subject.compute.count("POST", "simulateMaintenanceEvent")


def test_the_machine_is_preempted_in_earnest(stage: GceStage) -> None:
    GceDisasters(stage.compute).preempt(stage.ref, 30.0)
    gone = stage.subject.eventually(lambda: stage.subject.listed(stage.request) is None, "its end")
    assert gone
    found = stage.subject.provider.find(stage.ref)
    assert found is not None
    assert found.record is not None
    assert found.record.cause is Cause.PREEMPTED
    kinds = [event.kind for event in stage.platform.history([stage.ref], 0.0)]
    assert kinds == ["insert", "simulateMaintenanceEvent", "compute.instances.preempted"]


def test_a_machine_with_another_id_or_of_nobody_is_left_alone(stage: GceStage) -> None:
    disasters = GceDisasters(stage.compute)
    for wrong in (replace(stage.ref, machine_id="4711"), replace(stage.ref, machine_id=None)):
        with pytest.raises(MachineMissing):
            disasters.preempt(wrong, 0.0)
    stage.subject.compute.instance(stage.ref.name).change(labels={})
    with pytest.raises(MachineMissing):
        disasters.preempt(stage.ref, 0.0)
    with pytest.raises(MachineMissing):
        disasters.preempt(replace(stage.ref, name="nobody"), 0.0)
    assert asked(stage) == 0


def test_an_on_demand_machine_is_left_alone(stage: GceStage) -> None:
    offer = next(one for one in offers(stage.config) if not one.placement.spot)
    request = replace(stage.subject.request(attempt=2), placement=offer.placement)
    machine = stage.subject.up(request)
    with pytest.raises(NotSupported, match="not a Spot VM"):
        GceDisasters(stage.compute).preempt(ref(request, machine.machine_id), 0.0)
    assert asked(stage) == 0


def test_no_answer_is_no_absence(stage: GceStage) -> None:
    with stage.unreadable(), pytest.raises(ProviderUnavailable):
        GceDisasters(stage.compute).preempt(stage.ref, 0.0)


def test_everything_else_is_for_local_machines(stage: GceStage) -> None:
    disasters = GceDisasters(stage.compute)
    for deed in (
        lambda: disasters.kill(stage.ref),
        lambda: disasters.freeze(stage.ref),
        lambda: disasters.stockout(["us-east1-c"], None),
    ):
        with pytest.raises(NotSupported, match="only be preempted"):
            deed()

"""A flex-start request at Compute Engine: one insert that waits, through restarts, to a machine or to a definite no."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import MachineState, Placement
from supervisor.ports.provider import LaunchPending, LaunchRequest, NoCapacity
from supervisor.providers.gce.config import has_flex_start, parse_shape
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import GceSubject

WAITS_S = 3600.0


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    yield subject
    subject.close()


def waiting(subject: GceSubject) -> LaunchRequest:
    """Its zone has no capacity."""
    base = subject.request()
    offers = [offer.placement for offer in subject.provider.offers() if offer.placement.flex]
    request = replace(base, placement=offers[0], waits_s=WAITS_S)
    subject.compute.stock_out("*")
    with pytest.raises(LaunchPending):
        subject.provider.launch(request)
    return request


def test_it_is_offered_for_some_series_only() -> None:
    for text in ("g2-standard-8", "a2-highgpu-1g", "a3-highgpu-8g"):
        assert has_flex_start(parse_shape(text))
    assert not has_flex_start(parse_shape("n1-standard-8+1xnvidia-tesla-t4"))


def test_the_insert_waits_and_is_granted_and_a_restart_adopts_it(subject: GceSubject) -> None:
    request = waiting(subject)
    assert subject.listed(request).state is MachineState.ASKED  # type: ignore[union-attr]
    subject.clock.advance(1200.0)
    with pytest.raises(LaunchPending):
        subject.make().launch(replace(request, repeated=True))  # killed, and started again
    assert subject.compute.names() == [request.name]
    body = subject.compute.instance(request.name).body
    assert body["scheduling"]["provisioningModel"] == "FLEX_START"
    assert body["scheduling"]["instanceTerminationAction"] == "DELETE"
    subject.compute.restock("*")
    subject.clock.advance(120.0)
    assert subject.provider.launch(replace(request, repeated=True)).state is MachineState.UP
    assert subject.compute.names() == [request.name]


def test_at_its_end_it_is_no_capacity(subject: GceSubject) -> None:
    request = waiting(subject)
    subject.clock.advance(WAITS_S + 60.0)
    with pytest.raises(NoCapacity):
        subject.provider.launch(replace(request, repeated=True))
    assert subject.compute.names() == []


def test_it_can_be_withdrawn(subject: GceSubject) -> None:
    request = waiting(subject)
    subject.provider.release(ref(request))
    subject.clock.advance(60.0)
    assert subject.compute.names() == []


def test_a_placement_without_flex_is_another_one() -> None:
    place = Placement("gce", "us-east1", "us-east1-c", "l4", spot=False)
    assert replace(place, flex=True) != place
    assert replace(place, flex=True).market == "flex-start"

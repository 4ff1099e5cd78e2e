"""What the bulk listing shows, and what it says that it leaves out: not read is not absent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.machines import MachineState
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.machines.machine import STATES, machine_of
from tests.cloud.discovery import DOCUMENTS
from tests.providers.gce_subject import ZONES, GceSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    yield subject
    subject.close()


@pytest.mark.parametrize("said_by", [("unreachables",), ("warning",), ("unreachables", "warning")])
def test_a_partial_list_says_so_in_any_of_its_ways(subject: GceSubject, said_by: tuple[str, ...]) -> None:
    request = subject.request()
    subject.up(request)
    subject.compute.unreachable(request.placement.zone, said_by=said_by)
    assert subject.provider.machines().unreachable == {request.placement.zone}
    assert subject.listed(request) is None


@pytest.mark.parametrize(
    ("form", "away"),
    [
        ("https://www.googleapis.com/compute/v1/projects/{project}/zones/{zone}", {"us-east1-c"}),
        ("projects/{project}/regions/us-east1", {"us-east1-b", "us-east1-c"}),
        ("a word of tomorrow", set(ZONES)),
    ],
)
def test_what_is_unreachable_takes_all_its_zones_along(subject: GceSubject, form: str, away: set[str]) -> None:
    subject.compute.unreachable_form = form
    subject.compute.unreachable(ZONES[0], said_by=("unreachables",))
    assert subject.provider.machines().unreachable == away


def test_a_failed_page_is_no_listing(subject: GceSubject) -> None:
    subject.compute.add_instances(700)
    assert len(subject.provider.machines().machines) == 700
    read = subject.provider._compute.read

    def second_page_fails(path: str, **query: str | int) -> dict[str, object]:
        if "pageToken" in query:
            subject.compute.fail_next("GET", "aggregated", 503, times=5)
        return read(path, **query)

    subject.provider._compute.read = second_page_fails  # type: ignore[method-assign]
    with pytest.raises(ProviderUnavailable):
        subject.provider.machines()


def test_strangers_are_shown_with_and_without_labels(subject: GceSubject) -> None:
    subject.compute.fill([
        {"name": "plain", "zone": ZONES[0]},
        {"name": "theirs", "zone": "us-west1-a", "labels": {"spot-runner": "old", "run_id": "x"}},
    ])  # fmt: skip
    found = {m.name: (m.supervisor_id, m.launch_id) for m in subject.provider.machines().machines}
    assert found == {"plain": ("", ""), "theirs": ("", "")}


def test_what_others_leave_switched_off_costs_no_request(subject: GceSubject) -> None:
    labels = {"team": "vision"}
    subject.compute.fill([{"name": "theirs", "zone": "us-west1-a", "labels": labels, "status": "TERMINATED"}])
    subject.compute.clear_requests()
    subject.provider.machines()
    paths = [request.path for request in subject.compute.requests]
    assert len([path for path in paths if path.endswith("/operations")]) == len(ZONES)
    assert not [path for path in paths if "us-west1-a" in path]


def test_every_status_of_google_has_a_state() -> None:
    document = json.loads((DOCUMENTS / "compute.v1.json").read_text())
    assert set(document["schemas"]["Instance"]["properties"]["status"]["enum"]) == set(STATES)
    tomorrow = machine_of({"id": "1", "name": "a", "status": "FLOATING"}, "z")
    assert tomorrow.state is MachineState.UP  # it is there, and nothing follows from a word that we do not know

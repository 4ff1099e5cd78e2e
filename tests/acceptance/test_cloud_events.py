"""A Spot VM taken away on purpose on Google Cloud: what follows, what both histories say of it, what its console was.

Real loop, provider, store and platform over real HTTP, in virtual time (cloud_house.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from google.oauth2.credentials import Credentials

from supervisor.domain.errors import ConfirmNeeded, EvidenceNotFound
from supervisor.providers.gce.advice.data_places import DataPlaces
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines.releasing import GceDisasters
from supervisor.providers.gce.platform import GcePlatform
from supervisor.services.reading.console import archived_console, follow_console
from supervisor.services.reading.health import LoopStatus
from supervisor.services.reading.history import EventQuery, list_events
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.dev import Dev
from supervisor.services.runs.heartbeat import BeatInbox
from tests.acceptance.cloud_house import CloudHouse, cloud_house
from tests.acceptance.test_cloud_faults_ends import trains
from tests.acceptance.test_cloud_faults_placing import completes
from tests.cloud.cloud import PROJECT, ZONES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


class Doors:
    """What a person has before such a house."""

    def __init__(self, house: CloudHouse) -> None:
        config = GceConfig(PROJECT, ZONES, {}, endpoint=house.compute.url, logging_endpoint=house.cloud.logging.url)
        retry = Retry(monotonic=house.clock.monotonic, sleep=house._pause)
        compute = Compute(config, retry, lambda: Credentials("ya29.of-a-person"))  # type: ignore[no-untyped-call]
        platform = GcePlatform(config, compute, DataPlaces(config, dict))
        self.parts = replace(house.parts, platform=platform)
        self.dev = Dev(self.parts, {"gce": GceDisasters(compute)})
        inbox = BeatInbox(self.parts.store, self.parts.clock, self.parts.wake, 10.0)
        self.queries = Queries(self.parts, inbox, LoopStatus)


def test_a_preemption_on_purpose_is_one_in_earnest(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        doors, name = Doors(house), house.vm("digits").name
        house.compute.append_serial(name, ZONES[0], b"spot: phase=driver\nspot: phase=training\n")
        followed = follow_console(doors.parts, doors.queries, "digits", number=None, after=-1000)
        assert followed["text"].endswith("phase=training\n")
        with pytest.raises(ConfirmNeeded):
            doors.dev.preempt("digits", 30.0)
        assert house.vm("digits").status == "RUNNING"
        doors.dev.preempt("digits", 30.0, confirmed=True)
        completes(house)
        house.play(f"expect digits causes=preempted,finished zones={ZONES[0]},{ZONES[1]} counted=0")

        run = doors.queries.find("digits")
        told = list_events(doors.parts, run, EventQuery(limit=1000), cloud=True)
        line = [(event["source"], event["kind"]) for event in told["events"] if event["attempt"] == 1]
        theirs = [kind for source, kind in line if source == "cloud"]
        assert theirs[:3] == ["insert", "simulateMaintenanceEvent", "compute.instances.preempted"]
        assert line.index(("supervisor", "launching")) < line.index(("cloud", "insert"))
        assert line.index(("cloud", "compute.instances.preempted")) < line.index(("supervisor", "attempt_ended"))
        assert told["cloud_unread"] is None
        assert {event["attempt"] for event in told["events"] if event["source"] == "cloud"} == {1, 2}

        assert follow_console(doors.parts, doors.queries, "digits", number=1, after=0)["live"] is False
        kept = archived_console(doors.parts, doors.queries, "digits", number=1, since=None, lines=100)
        assert kept["text"] == "spot: phase=driver\nspot: phase=training\n"
        with pytest.raises(EvidenceNotFound):
            archived_console(doors.parts, doors.queries, "digits", number=2, since=None, lines=100)

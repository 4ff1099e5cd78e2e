"""The demo on Google Cloud is the same demo: the same disasters, verdict and last line, on other machines. (`make
demo-cloud` runs it; test_cloud_story.py tests end to end what it shows.)"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import demo
from examples.demo_cloud import CloudDemo
from supervisor.wiring import settings as wired
from tests.cloud.cloud import BUCKET, ZONES


@pytest.fixture
def shown() -> Iterator[CloudDemo]:
    made = CloudDemo()
    yield made
    made.processes.close()
    made.processes.remove()


def test_its_settings_are_accepted_and_ask_the_stand_in(shown: CloudDemo) -> None:
    processes = shown.processes
    environ = {name: value for name, value in processes._env.items() if name.startswith("SPOT_")}
    found = wired.load({"data_dir": str(processes.data_dir)}, environ={"HOME": "/", **environ})
    assert (found.provider, found.store_url, tuple(found.value("gce_zones"))) == ("gce", f"gs://{BUCKET}", ZONES)
    assert found.value("gce_endpoint") == processes.cloud.compute.url
    assert found.stall.silence_s >= 3 * found.knobs.beat_store_s
    assert processes._env["STORAGE_EMULATOR_HOST"] == processes.cloud.storage.url


def test_the_run_is_that_of_the_demo_in_an_image(shown: CloudDemo) -> None:
    spec = shown.spec()
    assert spec.pop("image") == shown.processes.cloud.image()
    command = spec["command"]
    assert isinstance(command, list)
    assert command[2:] == list(CloudDemo.arguments)
    assert spec["run_id"] == demo.RUN_ID


def test_what_the_cloud_does_not_allow_fails_the_demo_once(shown: CloudDemo) -> None:
    shown.processes.cloud.violations.append("GET /nowhere: compute has no such method")
    with pytest.raises(demo.ProcessFailed, match="nowhere"):
        shown.processes.close()
    assert shown.processes.close() == 0


def test_it_is_played_and_judged_as_the_demo_is() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert "examples.demo_cloud" in makefile
    assert CloudDemo.play is demo.Demo.play
    assert CloudDemo.show is demo.Demo.show

"""End to end: a run whose first choice is a host by SSH. The host is in use, so it goes to Google's spot machines. It
is preempted there and comes back to the host. Its weights are those of a training that nobody touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.cloud_story import cloud_story, twin
from tests.acceptance.test_cloud_moves import PAUSE, cooling, trains_on
from tests.acceptance.test_ssh_digits import POLL_S
from tests.providers.local_machines import end_processes_of
from tests.providers.sshd import Sshd, write_client_files
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")
SECTIONS = """
[providers.lab]
kind = "ssh"
hosts = ["gpu1"]
config = "{config}"
known_hosts = "{known}"
python = "{python}"
store = "{store}"

[providers.cloud]
kind = "gce"
"""
WAITS = "until [ -e {gate} ]; do sleep 0.1; done"


@pytest.mark.parametrize("store", ["direct", "relay"])
def test_a_run_goes_to_the_cloud_while_the_host_is_in_use_and_comes_back(store: str, tmp_path: Path) -> None:
    """relay: the host has no login of the cloud, so its files come and go through the supervisor."""
    host = Sshd("gpu1", tmp_path / "gpu1")
    host.make()
    config, known = write_client_files(tmp_path, [host])
    file, gate = tmp_path / "spot.toml", tmp_path / "gate"
    section = SECTIONS.format(config=config, known=known, python=sys.executable, store=store)
    file.write_text(section, encoding="utf-8")
    try:
        polls = {"SPOT_POLL_INTERVAL_S": POLL_S[store]}
        with cloud_story(tmp_path, {"SPOT_PROVIDER": None, "SPOT_CONFIG": str(file), **PAUSE, **polls}) as story:
            login = {"STORAGE_EMULATOR_HOST": story.cloud.storage.url, **story.cloud.metadata.environment()}
            if store == "direct":
                host.options["SetEnv"] = " ".join(f"{name}={value}" for name, value in login.items())
            host.start()
            story.daemon.submit("other", command=WAITS.format(gate=gate), provider="lab")
            story.until("other", lambda run: run["status"] == "running", "the other run to have the host")
            story.submit("digits", providers=("lab", "cloud"))
            assert trains_on(story, "digits", 1) == "cloud"
            gate.touch()
            story.completed("other")
            wait_for(lambda: not cooling(story), 60, "the host to be asked again")
            story.cloud.compute.preempt(story.vm("digits").name)
            assert trains_on(story, "digits", 2) == "lab", story.told("digits")
            story.completed("digits")
            attempts = story.attempts("digits")
            assert [one["placement"]["provider"] for one in attempts] == ["cloud", "lab"]
            assert [one["cause"] for one in attempts] == ["preempted", "finished"]
            assert story.weights("digits") == twin()
            assert story.cloud.compute.names() == []
    finally:
        end_processes_of(host.home / ".spot-machines")
        host.stop()

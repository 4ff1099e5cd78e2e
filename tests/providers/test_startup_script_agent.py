"""The start-up script with the real agent: beats, checkpoints and results in the fake Cloud Storage, and the last
seconds of a preempted machine."""

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat
from tests.agent.machine_rig import PACES, TOY, agent_with_bytecode
from tests.cloud.vm import Scene
from tests.providers.startup_rig import BUCKET, MACHINE_ID, RUN, StartupRig
from tests.waiting import wait_for


class AgentRig(StartupRig):
    """Attempt 1 of a run that has begun: its baton names launch 1.1.1 as next."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, agent_with_bytecode())  # of this Python, which those machines have
        baton = rules.raise_next(rules.create("sup-1", 1), "1.1.1", "n0nce", False)
        self.storage.put(BUCKET, runfiles.baton(RUN), rules.encode(baton))
        self.attributes |= {"spot-attempt": "1", "spot-launch-id": "1.1.1"}

    def train(self, *options: str, **job: Any) -> None:
        self.attributes["spot-job-command"] = base64.b64encode(
            json.dumps([sys.executable, TOY, *options]).encode()
        ).decode()
        self.job_of_the_agent(**job)

    def job_of_the_agent(self, **job: Any) -> None:
        papers: dict[str, Any] = {
            "version": 1, "name": "spot-1-a1-t1", "run_id": RUN, "launch_id": "1.1.1", "nonce": "n0nce",
            "generation": 1, "store_url": f"gs://{BUCKET}", "storage_endpoint": self.storage.url,
            "command_form": "words", "in_image": True, "sequence_from": 100, "notice_from": "gce", "notice_s": 0,
        }  # fmt: skip
        self.job(**{**papers, **PACES, **job})

    def output(self) -> str:
        """What the command wrote, as the store has it."""
        chunks = sorted(self.storage.names(BUCKET, f"runs/{RUN}/logs/"))
        found = (self.storage.find(BUCKET, name) for name in chunks if name.endswith(".log"))
        return "".join(stored.data.decode() for stored in found if stored is not None)

    @property
    def baton(self) -> Baton:
        stored = self.storage.find(BUCKET, runfiles.baton(RUN))
        assert stored is not None
        return rules.decode(stored.data)

    @property
    def beat(self) -> Beat | None:
        stored = self.storage.find(BUCKET, runfiles.beat(RUN))
        return None if stored is None else heartbeat.parse(stored.data)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentRig]:
    rig = AgentRig(tmp_path / "vm")
    yield rig
    rig.close()


def test_a_training_on_two_cards_ends_done_and_the_machine_off(agents: AgentRig) -> None:
    agents.train("--steps", "4", gpus=2)
    vm = agents.boot(Scene(), spot_gpus="2")
    agents.ended(vm, 60)
    assert agents.phases() == ["boot", "driver", "image", "container", "end", "off"]
    assert agents.off == ["off"]
    assert agents.baton.done is not None, vm.serial()
    beat = agents.beat
    assert beat is not None
    assert (beat.machine_id, beat.phase, beat.step) == (MACHINE_ID, "finished", 4)
    assert beat.sequence > 100
    assert agents.boot_beat() is None  # the agent has put it away
    assert agents.storage.names(BUCKET, runfiles.checkpoints(RUN)) != []


def test_a_machine_that_is_taken_away_saves_in_its_last_seconds(agents: AgentRig) -> None:
    agents.train("--steps", "99", "--wait-at", "3", "--on-term", "save")
    vm = agents.boot()
    wait_for(lambda: (now := agents.beat) and now.step == 3, 60, "step 3")
    vm.metadata.preempt()
    vm.acpi_shutdown()
    agents.ended(vm, 40)
    assert not vm.switched_off
    pointer = agents.baton.checkpoint
    assert pointer is not None
    assert pointer.step == 3
    assert agents.baton.done is None


@pytest.mark.parametrize(
    ("workdir", "command"), [(None, "sh scripts/train.sh"), ("scripts", "sh train.sh"), ("/", "pwd")]
)
def test_a_command_without_code_starts_where_the_image_says(
    agents: AgentRig, workdir: str | None, command: str
) -> None:
    """As `docker run IMAGE COMMAND` does. A relative `workdir` is a folder below the image's WORKDIR."""
    agents.command(command)
    agents.job_of_the_agent(command_form="shell", workdir=workdir)
    vm = agents.boot(Scene(workdir={"scripts/train.sh": 'pwd; echo ok >"$SPOT_RESULTS_DIR/out"'}))
    agents.ended(vm, 60)
    beat = agents.beat
    assert beat is not None
    assert beat.exit is not None, vm.serial()
    assert (beat.exit.code, agents.baton.done is not None) == (0, True)
    place = {None: "/image/workspace", "scripts": "/image/workspace/scripts", "/": "/"}[workdir]
    where = "/" if place == "/" else f"{vm.folder}{place}"
    assert where in agents.output().splitlines()


def test_an_image_that_names_no_workdir_starts_at_its_root(agents: AgentRig) -> None:
    agents.command("pwd")
    agents.job_of_the_agent(command_form="shell")
    vm = agents.boot(Scene(workdir=None))
    agents.ended(vm, 60)
    assert agents.output().splitlines() == ["/"]

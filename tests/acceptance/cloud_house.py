"""A house on Google Cloud in virtual time: the real loop, provider and store, over the tests' cloud.

Everything goes over real HTTP to Compute Engine and Cloud Storage, watched by the oracle; time is a clock that jumps,
and the machines' agents are those of the scenarios, so that a story of hours takes a second. Its deeds and expectations
are the scenarios' lines (tests/scenarios); what the cloud does is asked of `compute` and `storage` themselves.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from google.oauth2.credentials import Credentials

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.domain.errors import SpotError
from supervisor.domain.machines import RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineState, Placement
from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.gce.config import GceConfig, offers, parse_shape, region_of
from supervisor.providers.gce.provider import GceProvider
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.acceptance.cloud_bucket import Bucket
from tests.cloud.cloud import BUCKET, PROJECT, ZONES, Cloud
from tests.fakes.callers import OPS
from tests.fakes.clock import FakeClock
from tests.fakes.provider import FakeMachine
from tests.scenarios.fault_points import StoreAccess, TrueClock
from tests.scenarios.play import VERBS, history
from tests.scenarios.script import ScenarioError, line_of
from tests.scenarios.sim_agent import SimAgent
from tests.scenarios.sim_plan import Plan, Reach
from tests.scenarios.stage import Settings, Stage

GONE = ("TERMINATED", "STOPPED", "STOPPING")
STATES = {"RUNNING": MachineState.UP, "STOPPING": MachineState.ENDING, "TERMINATED": MachineState.ENDED}
SHAPE = "n1-standard-8+1xnvidia-tesla-t4"


class ProviderDoor:
    """The supervisor's way to its provider; a new one behind it in each life of the supervisor."""

    def __init__(self) -> None:
        self.real: Any = None
        self.dies = ""  # what the stage of the scenarios sets
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class CloudHouse(Stage):
    """`config`: fields of GceConfig that differ from those of the tests."""

    per_try_s = 1.0  # of real time: what hangs, hangs so long

    def __init__(self, folder: Path, config: dict[str, Any], **settings: Any) -> None:
        self.given = config
        super().__init__(folder, Settings(zones=ZONES, **settings))

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.cloud = Cloud(None, TrueClock(self.clock).now, live=False)
        self.compute, self.storage = self.cloud.compute, self.cloud.storage
        # Little else in it: each request looks through all of it for a proxy, and for a .netrc in HOME.
        kept = {"STORAGE_EMULATOR_HOST": self.storage.url, "PATH": os.environ["PATH"], "HOME": str(self.folder)}
        self.environment = patch.dict(os.environ, kept, clear=True)
        self.environment.start()
        self.compute.on_running, self.compute.on_notice = self._boots, self._notice
        self.objects: Any = self._store()
        self.provider: Any = ProviderDoor()
        # run -> (left, message) of its next machine, which gives up in its boot
        self.last_words: dict[str, tuple[str, str]] = {}
        self._set_up()
        self.agents_access = StoreAccess(Bucket(self.storage, BUCKET))

    def _store(self) -> GcsStore:
        return GcsStore(f"gs://{BUCKET}", clock=self.clock.monotonic, pause=self._pause)

    def _pause(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def start(self) -> None:
        """Nothing of the life before is known to the provider either."""
        shapes = {"t4": parse_shape(SHAPE)}
        given = {"zones": ZONES, "shapes": shapes, "prices": {"t4": (0.35, 1.0)}, "capacity_advice": False}
        config = GceConfig(
            project=PROJECT,
            store_url=f"gs://{BUCKET}",
            endpoint=self.compute.url,
            storage_endpoint=self.storage.url,
            **(given | self.given),
        )
        self.provider.real = GceProvider(
            config=config,
            offers=offers(config),
            objects=self.own_access,
            agent_path=self._agent(),
            clock=self.clock,
            credentials=lambda: Credentials("ya29.of-the-house"),
            pause=self._pause,
            per_try_s=self.per_try_s,
        )
        super().start()

    def _agent(self) -> Path:
        path = self.folder / "agent.pyz"
        path.write_bytes(b"an agent, by name only")
        return path

    def _calls(self) -> int:
        return len(self.storage.requests) + len(self.compute.requests)

    def close(self) -> None:
        super().close()
        self.environment.stop()
        self.objects.close()
        self.provider.close()
        self.cloud.close()

    # --- deeds and questions ------------------------------------------------------------------------------------------

    def submit(self, run_id: str, plan: Plan | None = None, **spec: Any) -> None:
        self.plans[run_id] = plan or Plan(push=False)
        given = {"command": "train", "image": self.image(), **spec}
        submit(self.parts, SubmitRequest(given, run_id=run_id), OPS)

    def image(self, name: str = "train:1") -> str:
        """A reference into the cloud's registry."""
        return self.cloud.image(name)

    def play(self, *lines: str) -> None:
        """Lines of a scenario. AssertionError with the history when one does not hold."""
        for number, text in enumerate(lines, 1):
            line = line_of(number, text)
            assert line is not None
            try:
                VERBS[line.verb](self, line)
            except (ScenarioError, SpotError) as error:
                raise AssertionError(f"{text}\n  {error}") from None

    def vm(self, run_id: str) -> Any:
        """The newest VM of this run, as Compute Engine has it. KeyError when there is none."""
        return max(
            (vm for vm in self.cloud.instances() if vm.labels.get(RUN_LABEL) == run_id),
            key=lambda vm: (vm.created_at, vm.vm_id),
        )

    def inserts(self) -> list[str]:
        """Zones of the insert requests that came in, in order."""
        asked = [one.path for one in self.compute.requests if one.method == "POST"]
        return [path.split("/")[6] for path in asked if path.endswith("/instances")]

    def deletes(self) -> list[str]:
        """Names of the machines in the delete requests that came in, in order."""
        return [one.path.rsplit("/", 1)[-1] for one in self.compute.requests if one.method == "DELETE"]

    def tried(self, run_id: str) -> list[str]:
        """Names of the machines that were asked for, in order."""
        run = self.rows.find(run_id)
        assert run is not None
        return [one.machine_name for one in self.rows.tries(run.key)]

    def add(self, name: str, zone: str, labels: dict[str, str] | None = None) -> None:
        """A RUNNING machine of somebody else."""
        resource = {
            "name": name,
            "machineType": f"zones/{zone}/machineTypes/n1-standard-8",
            "labels": labels or {},
            "scheduling": {"provisioningModel": "STANDARD"},
        }
        self.compute.fill([{**resource, "zone": zone}])

    def now(self) -> float:
        """Epoch seconds of the cloud's clock."""
        return self.cloud.clock()

    def told(self, run_id: str) -> list[str]:
        return [one.event.text for one in self.rows.events(run_id, 0, 1000)]

    # --- the world ----------------------------------------------------------------------------------------------------

    def _run_due(self) -> None:
        self.compute.tick()
        super()._run_due()
        self.compute.tick()

    def _boots(self, vm: Any) -> None:
        """A VM is RUNNING: its agent comes up as the scenario's plan says."""
        if "spot-job" not in vm.metadata:
            return
        given = json.loads(gzip.decompress(base64.b64decode(vm.metadata["spot-job"])))
        run_id, plan = vm.metadata["spot-run-id"], self.plans[vm.metadata["spot-run-id"]]
        request = LaunchRequest(
            name=vm.name,
            request_id="",
            placement=Placement("gce", region_of(vm.zone), vm.zone, "t4", vm.spot),
            supervisor_id=vm.labels[SUPERVISOR_LABEL],
            run_id=run_id,
            launch_id=vm.metadata["spot-launch-id"],
            machine_max_s=float(given["machine_max_s"]),
            job=given,
        )
        if run_id in self.last_words:
            self._gives_up(vm, request)
            return
        boot = vm.body["lastStartTimestamp"]
        reach = Reach(
            objects=self.agents_access,
            monotonic=self.clock.monotonic,
            push=self._push,
            machine=lambda: self._inside(vm, boot),
            leave_machine=lambda after: self._off(vm, after),
        )
        self.agents.append(SimAgent(request, vm.id, self.clock.monotonic(), plan, reach))

    def _gives_up(self, vm: Any, request: LaunchRequest) -> None:
        """As the start-up script does it: a last boot beat, then off."""
        left, message = self.last_words.pop(request.run_id)
        attempt, nonce = int(vm.metadata["spot-attempt"]), vm.metadata["spot-nonce"]
        beat = Beat(
            request.run_id, attempt, request.launch_id, vm.id, "boot", 7, heartbeat.DRIVER, nonce,
            left=left, message=message,
        )  # fmt: skip
        text = heartbeat.encode(beat)
        self.storage.put(BUCKET, runfiles.boot_beat(request.run_id), text, {"beat": text.decode()})
        self.compute.guest_powered_off(vm.name, vm.zone)

    def _inside(self, vm: Any, boot: str | None = None) -> FakeMachine | None:
        """`boot`: an agent of an earlier boot of this VM is gone, although the VM runs."""
        if boot not in (None, vm.body.get("lastStartTimestamp")):
            return None
        alive = self.compute.instances.get((vm.zone, vm.name)) is vm and vm.status in ("RUNNING", "STOPPING")
        return FakeMachine(self._machine(vm)) if alive else None

    def _off(self, vm: Any, after: str) -> None:
        """The machine switches itself off when its agent has left."""
        if after != "stays" and self._inside(vm) is not None:
            self.compute.guest_powered_off(vm.name, vm.zone)

    def _notice(self, vm: Any, notice_s: float) -> None:
        for agent in self.agents:
            if agent.machine_id == vm.id:
                agent.early_notice_s = notice_s
                agent.due = min(agent.due, self.clock.monotonic() + 0.2)

    def machines(self, run_id: str | None = None) -> list[Machine]:
        ours = [
            vm
            for vm in self.cloud.instances()
            if vm.labels.get(SUPERVISOR_LABEL) == self.rows.supervisor_id and run_id in (None, vm.labels.get(RUN_LABEL))
        ]
        return [self._machine(vm) for vm in ours]

    def _machine(self, vm: Any) -> Machine:
        return Machine(
            vm.id,
            vm.name,
            vm.zone,
            STATES.get(vm.status, MachineState.STARTING),
            vm.labels.get(SUPERVISOR_LABEL, ""),
            vm.labels.get(RUN_LABEL, ""),
            vm.metadata.get("spot-launch-id", ""),
        )


@contextmanager
def cloud_house(folder: Path, settings: dict[str, Any] | None = None, **config: Any) -> Iterator[CloudHouse]:
    """A house, and at its end: no error that the loop had to survive, no exchange that Google does not have."""
    house = CloudHouse(folder, config, **(settings or {}))
    try:
        yield house
        assert house.faults.seen == []
    except AssertionError as error:
        raise AssertionError(f"{error}\n{history(house)}") from None
    finally:
        house.close()

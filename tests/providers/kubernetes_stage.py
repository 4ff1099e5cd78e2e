"""The whole loop before the tests' cluster, in virtual time: real decisions, database, provider and HTTP.

Pods run simulated agents: a container starts one, TERM is its notice, KILL and a power cut end it. The controllers of
the cluster act every few seconds of the virtual clock, in the order of the stage's own events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from supervisor.domain.attempt import Attempt
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.run import Run
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.kubernetes.api import Api, connection
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.publishing import Publisher, is_read
from supervisor.providers.kubernetes.settings import KubernetesSettings
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.kubernetes.cluster import IMAGE, Cluster
from tests.kubernetes.containers import Exit, Launch
from tests.kubernetes.kinds import JOB, POD
from tests.kubernetes.objects import Object
from tests.kubernetes.still import StillContainer
from tests.providers.kubernetes_subject import DAY, SETTINGS
from tests.scenarios.fault_points import Later, SupervisorDied, TrueClock
from tests.scenarios.sim_agent import SimAgent
from tests.scenarios.sim_plan import Plan, Reach
from tests.scenarios.stage import Stage
from tests.scenarios.user_verbs import ACTOR, spec_of

EVERY_S = 5.0  # the controllers of the cluster
TRAINS = Plan(steps=1_000_000)
MINUTE_S, HOUR_S = 60.0, 3600.0


@dataclass
class SimContainer:
    """`ended`: its end that is not its agent's own, such as an OOM. `is_deaf`: its agent hangs."""

    agent: SimAgent
    grace_s: float
    ended: Exit | None = None
    is_deaf: bool = False

    def poll(self) -> Exit | None:
        return self.ended or (Exit(0) if self.agent.over else None)

    def terminate(self) -> None:
        if self.agent.early_notice_s is None and not self.is_deaf:
            self.agent.early_notice_s = self.grace_s
            self.agent.due = self.agent.reach.monotonic()

    def kill(self) -> None:
        self.end(137)

    def end(self, code: int, oom: bool = False) -> None:
        if self.poll() is None:
            self.ended, self.agent.dead = Exit(code, oom), True

    def log(self) -> bytes:
        return b""


class SimRuntime:
    """Pods of other teams do nothing."""

    def __init__(self, stage: KubernetesStage) -> None:
        self._stage = stage

    def start(self, launch: Launch) -> SimContainer | StillContainer:
        return self._stage.start_container(launch) if "SPOT_MACHINE" in launch.environ else StillContainer(launch)


class Controllers:
    """The controllers of the cluster, due like an agent of the stage."""

    run_id = ""

    def __init__(self, stage: KubernetesStage) -> None:
        self._stage = stage
        self.due = 0.0

    def act(self) -> None:
        self._stage.cluster.step()
        self.due = self._stage.clock.monotonic() + EVERY_S


class StagedCluster:
    """The provider as the stage wants it. `dies`: "before-secret" = kill -9 between a Job and its Secret. `requests`:
    by the name of the machine."""

    def __init__(self, provider: KubernetesProvider, cluster: Cluster) -> None:
        self.provider, self.cluster, self.dies = provider, cluster, ""
        self.name, self.traits, self.meters = provider.name, provider.traits, provider.meters
        self.boot_s = self.release_delay_s = 0.0
        self.calls: Counter[str] = Counter()
        self.requests: dict[str, LaunchRequest] = {}
        create = provider.api.create

        def create_or_die(path: str, body: Mapping[str, Any]) -> Any:
            if self.dies and path.endswith("/secrets"):
                raise SupervisorDied
            return create(path, body)

        provider.api.create = create_or_die  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    def pin(self, image: str) -> str:
        return image

    def launch(self, request: LaunchRequest) -> Machine:
        self.requests[request.name] = request
        return self.provider.launch(request)

    def machines_now(self) -> list[Machine]:
        """Whose containers run, whatever a listing says."""
        living = []
        for pod in self.cluster.objects.of(POD):
            running = self.cluster.kubelet.running.get(pod["metadata"]["uid"])
            request = self.requests.get(pod["metadata"].get("labels", {}).get("spot-machine", ""))
            if running is not None and running.poll() is None and request is not None:
                living.append(
                    Machine(
                        pod["metadata"]["uid"],
                        request.name,
                        request.placement.zone,
                        MachineState.UP,
                        request.supervisor_id,
                        request.run_id,
                        request.launch_id,
                    )
                )
        return living


@dataclass
class KubernetesStage(Stage):
    """`cluster_settings`: of the provider."""

    cluster_settings: Mapping[str, Any] = field(default_factory=dict)

    def _set_up(self) -> None:
        self.cluster = Cluster(TrueClock(self.clock).now, SimRuntime(self))
        self._files = Path(self.folder)
        self.kubeconfig = self.cluster.kubeconfig(self._files)
        archive = self._files / "agent.pyz"
        archive.write_bytes(b"an agent")
        settings = self.provider_settings = KubernetesSettings(**{**SETTINGS, **self.cluster_settings})
        self._provider_of: Callable[[], KubernetesProvider] = lambda: KubernetesProvider(
            "kubernetes",
            settings,
            Api(lambda: connection(str(self.kubeconfig), "", "")),
            agent=lambda: archive,
            on=DAY,
            monotonic=self.clock.monotonic,
        )
        self.provider = StagedCluster(self._provider_of(), self.cluster)  # type: ignore[assignment]
        self.agents.append(Controllers(self))  # type: ignore[arg-type]
        super()._set_up()

    def start(self) -> None:
        """A new process of the supervisor knows nothing of the cluster."""
        requests = self.provider.requests  # type: ignore[attr-defined]
        self.provider.close()  # type: ignore[attr-defined]
        self.provider = StagedCluster(self._provider_of(), self.cluster)  # type: ignore[assignment]
        self.provider.requests = requests  # type: ignore[attr-defined]
        super().start()

    def acting(self, later: Later) -> dict[str, Any]:
        publisher = Publisher(self.provider.api, self.provider_settings, self.provider.listed, self.clock.monotonic)  # type: ignore[attr-defined]
        shown = {"kubernetes": publisher.publish} if is_read(self.provider_settings) else {}
        return {**super().acting(later), "publishers": shown}

    def close(self) -> None:
        super().close()
        self.provider.close()  # type: ignore[attr-defined]
        self.cluster.close()

    # --- the runtime of the cluster's pods ----------------------------------------------------------------------------

    def start_container(self, launch: Launch) -> SimContainer:
        environ = launch.environ
        request = self.provider.requests[environ["SPOT_MACHINE"]]  # type: ignore[attr-defined]
        files = next(mount.files for mount in launch.mounts if mount.files and "job.json" in mount.files)
        job = json.loads(files["job.json"])
        machine_id = f"{environ['SPOT_JOB_UID']}.{environ['SPOT_POD_UID']}"
        inside = SimpleNamespace(asked_to_stop=False, taken_at=None, machine=SimpleNamespace(record=None))
        plan = self.plans.setdefault(request.run_id, Plan())
        container: list[SimContainer] = []
        reach = Reach(
            objects=self.agents_access,
            monotonic=self.clock.monotonic,
            push=self._push,
            machine=lambda: None if container and container[0].ended is not None else inside,  # type: ignore[arg-type, return-value]
            leave_machine=lambda after: None,
        )
        agent = SimAgent(replace(request, job=job), machine_id, self.clock.monotonic(), plan, reach)
        self.agents.append(agent)
        container.append(SimContainer(agent, launch.pod["spec"]["terminationGracePeriodSeconds"]))
        return container[0]

    # --- what a story does and reads ----------------------------------------------------------------------------------

    def submit(self, run_id: str = "digits", plan: Plan = TRAINS, **spec: Any) -> None:
        self.plans[run_id] = plan
        whole = spec_of(self, {}) | {"image": IMAGE, "provider": "kubernetes", **spec}
        submit(self.parts, SubmitRequest(whole, run_id=run_id), ACTOR)

    def row(self, run_id: str = "digits") -> Run:
        run = self.parts.store.find(run_id)
        assert run is not None
        return run

    def attempts(self, run_id: str = "digits") -> list[Attempt]:
        return list(self.rows.attempts(self.row(run_id).key))

    def causes(self, run_id: str = "digits") -> list[str]:
        """Of the attempts that have ended."""
        return [str(attempt.cause) for attempt in self.attempts(run_id) if attempt.cause is not None]

    def until(self, holds: Callable[[], Any], what: str, within_s: float = 10 * MINUTE_S) -> None:
        began = self.clock.monotonic()
        while not holds():
            waited_s = self.clock.monotonic() - began
            assert waited_s <= within_s, f"{what} not within {waited_s:.0f} s: {self.told()}"
            self.run_for(EVERY_S)

    def until_trains(self, attempt: int = 1, within_s: float = 10 * MINUTE_S) -> None:
        def holds() -> bool:
            live = self.row().live_attempt
            return live is not None and live.number == attempt and live.training_at is not None

        self.until(holds, f"attempt {attempt} to train", within_s)
        self.run_for(2 * MINUTE_S)  # a checkpoint

    def until_status(self, *statuses: str, within_s: float = 10 * MINUTE_S) -> Run:
        self.until(lambda: self.row().status in statuses, f"the run to be {' or '.join(statuses)}", within_s)
        return self.row()

    def told(self) -> str:
        events = [stored.event.text for stored in self.rows.events("digits", 0, 1000)]
        return "\n".join([str(self.row()), *events])

    def pod(self) -> Object:
        """Of the newest attempt."""
        return self.cluster.pod(self.job_names()[-1])

    def job_names(self) -> list[str]:
        jobs = self.cluster.objects.of(JOB)
        jobs.sort(key=lambda job: job["metadata"]["creationTimestamp"])
        return [job["metadata"]["name"] for job in jobs]

    def container(self) -> SimContainer:
        """Of the newest attempt."""
        running = self.cluster.kubelet.running[self.pod()["metadata"]["uid"]]
        assert isinstance(running, SimContainer)
        return running

    def end_pod(self, code: int, oom: bool = False) -> None:
        self.cluster.end_container(self.pod(), code, oom)


@contextmanager
def kubernetes_stage(folder: Path, **settings: Any) -> Iterator[KubernetesStage]:
    stage = KubernetesStage(folder, cluster_settings=settings)
    try:
        yield stage
    finally:
        stage.close()
    assert stage.faults.seen == []

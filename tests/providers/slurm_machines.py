"""A provider of a real Slurm cluster for tests, with a folder of its own for each test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from supervisor.ports.provider import LaunchRequest
from supervisor.providers.slurm.jobs import Job
from supervisor.providers.slurm.make import login_node
from supervisor.providers.slurm.provider import SlurmProvider
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.reconciler.system_clock import SystemClock
from tests.providers.local_machines import SCRIPTED_AGENT, FolderSubject
from tests.providers.slurm_cluster import SlurmCluster
from tests.providers.ssh_machines import place_archive, scripted_archive
from tests.providers.sshd import Sshd, write_client_files
from tests.waiting import wait_for

DAY = "2026-11-26"


class SlurmSubject(FolderSubject):
    gpus = {"cpu": "", "v100": "V100", "any2": "2 × GPU"}

    def __init__(self, cluster: SlurmCluster, folder: Path, agent: Path = SCRIPTED_AGENT, **settings: Any) -> None:
        super().__init__()
        self.cluster, self.data_dir, self.agent = cluster, folder, agent
        self._conf = folder / "slurm.conf"
        self._conf.write_text(cluster.conf.read_text())
        self.settings = {
            "slurm_folder": str(folder / "shared"),
            "slurm_partitions": ("spot", "prod"),
            "slurm_shapes": ("cpu", "v100", "any2"),
            "slurm_gres": {"v100": "gpu:v100:1", "any2": "gpu:2"},
            "slurm_python": sys.executable,
            "slurm_conf": str(self._conf),
            **settings,
        }
        self.provider = self.fresh()

    def fresh(self, ahead_s: float = 0.0, **settings: Any) -> SlurmProvider:
        """Another provider of the same cluster and folder, as after a restart of the supervisor. `ahead_s`: of its
        clock before the cluster's."""
        s, clock = SlurmSettings(**{**self.settings, **settings}), SystemClock()
        return SlurmProvider("cluster", s, agent=lambda: self.agent, now=lambda: clock.now() + ahead_s, on=DAY)

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_for(condition, what=what, deadline_s=60)

    def folder(self, request: LaunchRequest) -> Path:
        return self.data_dir / "shared" / "machines" / request.name

    def job_id(self, request: LaunchRequest) -> str:
        machine = self.listed(request)
        assert machine is not None
        return machine.machine_id.partition(".")[0]

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        self.pids(request)  # a job that finds no folder when it begins ends at once
        with super().unreadable(request):
            yield

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        """Its commands fail at once: their slurm.conf, a copy for this test, makes no sense."""
        text = self._conf.read_text()
        self._conf.write_text("Nonsense=1\n")
        try:
            yield
        finally:
            self._conf.write_text(text)

    def end_all(self) -> None:
        self.cluster.cancel_all()


class LoginNode:
    """A real sshd, behind which the cluster is for a supervisor elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.host = Sshd("login1", folder / "login1")
        self.host.make()
        self.host.start()
        self.config, self.known_hosts = write_client_files(folder, [self.host])
        self.settings = {
            "slurm_host": self.host.alias,
            "slurm_host_python": sys.executable,
            "slurm_host_config": str(self.config),
            "slurm_host_keys": str(self.known_hosts),
        }


class BehindLoginNode(SlurmSubject):
    """The same cluster, for a supervisor that reaches it only by SSH."""

    def __init__(self, cluster: SlurmCluster, folder: Path, **settings: Any) -> None:
        self.node = LoginNode(folder)
        self._closers: list[Callable[[], None]] = []
        agent = folder / "agent.pyz"
        agent.write_bytes(scripted_archive())
        place_archive(folder / "shared")
        super().__init__(cluster, folder, agent, **self.node.settings, **settings)

    def fresh(self, ahead_s: float = 0.0, **settings: Any) -> SlurmProvider:
        s, clock = SlurmSettings(**{**self.settings, **settings}), SystemClock()
        site, close = login_node(s, lambda: self.agent)
        self._closers.append(close)
        now = lambda: clock.now() + ahead_s  # noqa: E731
        return SlurmProvider("cluster", s, agent=lambda: self.agent, now=now, on=DAY, site=site)

    def end_all(self) -> None:
        super().end_all()
        for close in self._closers:
            close()
        self.node.host.stop()


def queue(subject: SlurmSubject) -> list[str]:
    return subject.cluster.run("squeue", "--me", "--noheader", "--format=%T").split()


class Calls:
    """The commands that a provider runs; `instead(words)`: what happens in place of one, None = nothing else."""

    def __init__(self, provider: SlurmProvider) -> None:
        self.made: list[tuple[str, ...]] = []
        self._run, self.instead = provider.commands.run, lambda words: None
        provider.commands.run = self.run  # type: ignore[method-assign]

    def run(self, *words: str, timeout_s: float = 15.0) -> str:
        self.made.append(words)
        answer = self.instead(words)
        return answer if isinstance(answer, str) else self._run(*words, timeout_s=timeout_s)


def jobs_of(subject: SlurmSubject) -> tuple[Job, ...]:
    return subject.provider._surveyor.queue.jobs()

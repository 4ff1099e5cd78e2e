"""A provider of two hosts by SSH for tests: two real sshd, each with a home of its own, and nothing left alive."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from supervisor.host.bytecode import compiled
from supervisor.machinefolder.agent_archive import build_agent
from supervisor.ports.opening import Hook, no_hook
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.ssh.meters import SshMeters
from supervisor.providers.ssh.provider import SshProvider
from supervisor.providers.ssh.settings import SshSettings
from supervisor.remote.connections import Connections
from tests.providers.local_machines import SCRIPTED_AGENT, FolderSubject, end_processes_of
from tests.providers.sshd import Sshd, write_client_files
from tests.waiting import wait_for

HOSTS = ("gpu1", "gpu2")
ENTRY = b"""\
import sys

if sys.argv[1:2] == ["host"]:
    from supervisor.host.operations import main

    sys.exit(main())
import runpy

runpy.run_module("scripted_agent", run_name="__main__")
"""


@cache
def scripted_archive() -> bytes:
    """The archive with the host's operations, and the scripted agent in place of the agent."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(build_agent())) as real, zipfile.ZipFile(buffer, "w") as target:
        for info in real.infolist():
            if info.filename.startswith(("supervisor/host/", "supervisor/contract/", "supervisor/__init__")):
                target.writestr(info, real.read(info))
        target.writestr("__main__.py", ENTRY)
        target.write(SCRIPTED_AGENT, "scripted_agent.py")
    return buffer.getvalue()


@cache
def _placed() -> tuple[str, bytes]:
    """The name and the content of that archive on a host that has received it."""
    archive = scripted_archive()
    return f"agent-{hashlib.sha256(archive).hexdigest()[:16]}.pyz", compiled(archive)


def place_archive(folder: Path) -> None:
    """As the first command leaves it in the folder of machines of a host: to send and compile it costs 0.14 s of
    CPU. The stories of that first command begin without it."""
    name, content = _placed()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


class SshSubject(FolderSubject):
    """`is_new`: the hosts have no archive of the agent yet."""

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, str] | None = None,
        store_url: str = "",
        *,
        is_new: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.store_url = store_url
        self.data_dir = folder
        self.hosts = [Sshd(alias, folder / alias, dict(options or {})) for alias in HOSTS]
        for host in self.hosts:
            host.make()
            if not is_new:
                place_archive(host.home / ".spot-machines")
            host.start()
        self.config, self.known_hosts = write_client_files(folder, self.hosts)
        self.agent = folder / "agent.pyz"
        self.agent.write_bytes(scripted_archive())
        self.settings = {"ssh_hosts": HOSTS, "ssh_machines": 8, **settings}
        self._opened: list[Connections] = []
        self.hook: Hook = no_hook
        self.provider = self.fresh()

    def fresh(self, **settings: Any) -> SshProvider:
        """Another provider of the same hosts, as after a restart of the supervisor."""
        s = SshSettings(**{**self.settings, **settings})
        connections = Connections(self.config, self.known_hosts)
        self._opened.append(connections)
        meters = SshMeters(s, self.hook)
        return SshProvider(
            "lab", s, connections, lambda: self.agent, meters=meters, on="2026-11-25", store_url=self.store_url
        )

    def host(self, request: LaunchRequest) -> Sshd:
        return next(host for host in self.hosts if host.alias == request.placement.zone)

    def folder(self, request: LaunchRequest) -> Path:
        return self.host(request).home / ".spot-machines" / "machines" / request.name

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        """Nobody can log in, and the kept connections are gone."""
        for host in self.hosts:
            host.stop()
        try:
            yield
        finally:
            for host in self.hosts:
                host.start()
            wait_for(lambda: not self._unread(), what="the hosts to be connected again")

    def _unread(self) -> bool:
        try:
            return bool(self.provider.machines().unreachable)
        except Exception:  # noqa: BLE001 - it is what is waited for
            return True

    def end_all(self) -> None:
        """End what the machines of these hosts still run, and the hosts."""
        for connections in self._opened:
            connections.close()
        for host in self.hosts:
            wait_for(
                lambda host=host: not end_processes_of(host.home / ".spot-machines"), what="the test's processes to end"
            )
            host.stop()

"""A local provider for tests: a data folder of its own, and nothing left alive behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.host import processes
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.local.provider import LocalProvider
from supervisor.reconciler.system_clock import SystemClock
from tests.cloud.vm_processes import naming
from tests.contracts.provider_subject import Subject
from tests.fakes.provider import offers_in
from tests.waiting import wait_for

SCRIPTED_AGENT = Path(__file__).with_name("scripted_agent.py")
ZONES = ("local-a", "local-b", "local-c")


class FolderSubject(Subject):
    """Its machines are folders that this test can see. `data_dir`: for the secrets of the test."""

    data_dir: Path

    @abstractmethod
    def folder(self, request: LaunchRequest) -> Path:
        """Of this machine."""

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_for(condition, what=what)

    def scripted(self, request: LaunchRequest, **script: Any) -> LaunchRequest:
        return replace(request, job={**request.job, "script": script})

    def pids(self, request: LaunchRequest) -> dict[str, int]:
        """Once everything of the machine runs: its processes by role."""
        path = self.folder(request) / "pids.json"
        wait_for(path.exists, what="the scripted agent's pids")
        return json.loads(path.read_text())

    def keep_secret(self, value: str) -> str:
        path = self.data_dir / f"secret-{value[:4].strip()}"
        path.write_text(value + "\n")
        path.chmod(0o600)
        return f"file:{path}"

    def spoil_secret(self, reference: str, spoilt: bool = True) -> None:
        Path(reference.removeprefix("file:")).chmod(0o644 if spoilt else 0o600)

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        # A file in its place: permissions would not stop root.
        aside = self.folder(request).parent.with_name("aside")
        self.folder(request).rename(aside)
        self.folder(request).write_text("not a folder")
        try:
            yield
        finally:
            self.folder(request).unlink()
            aside.rename(self.folder(request))


class LocalSubject(FolderSubject):
    def __init__(self, data_dir: Path, **settings: Any) -> None:
        super().__init__()
        self.data_dir = data_dir
        self.settings = settings
        self.provider = self.fresh()

    def fresh(self, **settings: Any) -> LocalProvider:
        """Another provider on the same folder, as after a restart of the supervisor."""
        wanted = {
            "offers": offers_in(ZONES),
            "capacity": {},
            "agent": SCRIPTED_AGENT,
            "clock": SystemClock(),
            **self.settings,
            **settings,
        }
        return LocalProvider(self.data_dir, **wanted)

    def folder(self, request: LaunchRequest) -> Path:
        return self.data_dir / "machines" / request.name

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        with self._stopped(), super().unreadable(request):
            yield

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        machines = self.data_dir / "machines"
        with self._stopped():
            machines.rename(self.data_dir / "aside")
            try:
                yield
            finally:
                (self.data_dir / "aside").rename(machines)

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        """All processes of its machines: a real agent would make a folder anew that is missing."""
        pids = naming(str(self.data_dir).encode())
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        wait_for(
            lambda: all(not (now := processes.read(pid)) or now.state in "TZX" for pid in pids), what="them to stop"
        )
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def end_all(self) -> None:
        """Kill what this data folder's machines still run; called when the test is over."""
        wait_for(lambda: not end_processes_of(self.data_dir), what="the test's processes to end")
        self.provider.machines()  # reaps


def end_processes_of(data_dir: Path) -> list[int]:
    """Kill every process that carries the marker of a machine below this folder; the pids that were there."""
    below, own = str(data_dir.resolve() / "machines"), os.getpid()
    living = [p for p in processes.Table().processes if p.alive and p.pid != own]
    found = [p for p in living if processes.folder_of(p.pid).startswith(below)]
    for process in found:
        processes.send(process, signal.SIGKILL)
    return [process.pid for process in found]


@contextmanager
def bystander(command: Sequence[str] = ("/bin/sleep", "3600"), **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that belongs to no machine. It ends with the block in every case."""
    child = subprocess.Popen(command, **{"start_new_session": True, **how})
    try:
        yield child
    finally:
        child.kill()
        child.wait(60)


def alive(pid: int) -> bool:
    process = processes.read(pid)
    return process is not None and process.alive

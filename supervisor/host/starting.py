"""Starts agents: each in its own session, without open files of ours, and none is left as a zombie.

An agent reads its secrets from its standard input, a file in memory that is complete before the agent starts: neither
the death of the supervisor nor a slow agent can leave a part unread.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, Mapping, NamedTuple, Sequence

from supervisor.host.files import private_opener
from supervisor.host.folders import Folder


class Start(NamedTuple):
    """What an agent is started with. `environment`: the whole of it, without the machine's own variables. `secrets`:
    name -> value. `prefix`: a program that runs the agent in its place, such as `systemd-run --user --scope`."""

    environment: Mapping[str, str]
    secrets: Mapping[str, str]
    prefix: Sequence[str] = ()


class Agents:
    """Starts agents with one Python, and reaps those that end while this process is their parent."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._lock = threading.Lock()
        self._children: Dict[int, Path] = {}

    def start(self, folder: Folder, start: Start) -> None:
        """Start the agent in this folder; afterward its process can be found. OSError, Unreadable: no process was
        started."""
        import subprocess  # late, as in operations.py

        environment = {**start.environment, "SPOT_MACHINE": folder.name, "SPOT_MACHINE_DIR": str(folder.path)}
        job = folder.job()
        if job is not None and job.gpu_ids is not None:
            # Whatever cards the service itself sees, this machine sees only its own cards, or none.
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpu_ids)
        with open(folder.path / "console.log", "ab", opener=private_opener) as console, _input(start.secrets) as stdin:
            child = subprocess.Popen(
                [*start.prefix, self._python, str(folder.path / "agent.pyz"), str(folder.path)],
                stdin=stdin,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=folder.path,
                env=environment,
                start_new_session=True,
            )
        # It outlives this object and perhaps this process: Popen must neither warn about that nor wait for it.
        child.returncode = 0
        with self._lock:
            self._children[child.pid] = folder.path

    def lives(self, folder: Folder) -> bool:
        """True while an agent that this object started in this folder has not ended. /proc is not certain: during its
        exec a process has no environment and no arguments."""
        self.reap()
        with self._lock:
            return folder.path in self._children.values()

    def reap(self) -> None:
        """Reap ended agents. Safe to call often; no other code may wait for these pids."""
        with self._lock:
            for pid in tuple(self._children):
                try:
                    ended, _ = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    ended = pid
                if ended:
                    del self._children[pid]


@contextmanager
def _input(secrets: Mapping[str, str]) -> Iterator[BinaryIO]:
    """The standard input of the agent, at its beginning. Empty without secrets."""
    if not secrets:
        with open(os.devnull, "rb") as nothing:
            yield nothing
        return
    with os.fdopen(os.memfd_create("secrets", os.MFD_CLOEXEC), "w+b") as file:
        file.write(json.dumps(dict(secrets)).encode())
        file.seek(0)
        yield file

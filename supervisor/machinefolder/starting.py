"""Bringing an agent to life: its own session, nothing of ours open in it, and nobody left as a zombie.

Secrets reach it by its standard input, which is a file in memory that is complete before the agent is there: neither
a dying supervisor nor a slow agent leaves one half read.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from supervisor.machinefolder.folders import Folder
from supervisor.machinefolder.papers import private
from supervisor.machinefolder.secrets import read_all, variables, without_secrets


class Agents:
    """Starts agents with one Python, and reaps those that end while this process is their parent."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._lock = threading.Lock()
        self._children: dict[int, Path] = {}
        self._secret_names: set[str] = set()

    def start(self, folder: Folder, references: Mapping[str, str]) -> None:
        """Start the agent in this folder; when this returns its process can be found. `references`: of its secrets.
        OSError, SecretRefused, Unreadable: there is none, nothing was started."""
        # From now on they are no other run's business either.
        self._secret_names |= variables(references.values())
        environment = without_secrets(os.environ, self._secret_names)
        environment["SPOT_MACHINE"] = folder.name
        environment["SPOT_MACHINE_DIR"] = str(folder.path)
        job = folder.job()
        if job is not None and job.gpu_ids is not None:
            # Whatever the service itself may see: this machine sees its own cards, or none.
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpu_ids)
        with open(folder.path / "console.log", "ab", opener=private) as console, _input(read_all(references)) as given:
            child = subprocess.Popen(
                [self._python, str(folder.path / "agent.pyz"), str(folder.path)],
                stdin=given,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd=folder.path,
                env=environment,
                start_new_session=True,
            )
        # It outlives this object and perhaps this process: Popen must neither warn of that nor wait for it.
        child.returncode = 0
        with self._lock:
            self._children[child.pid] = folder.path

    def lives(self, folder: Folder) -> bool:
        """True while an agent that this object has started in this folder has not ended. /proc cannot tell for sure:
        in the moment of its exec a process has no environment and no arguments to be known by."""
        self.reap()
        with self._lock:
            return folder.path in self._children.values()

    def reap(self) -> None:
        """Take note of ended agents. Safe to call often; nobody else may wait for these pids."""
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
    """What the agent reads as its standard input, from the beginning. Without secrets there is nothing to read."""
    if not secrets:
        with open(os.devnull, "rb") as nothing:
            yield nothing
        return
    with os.fdopen(os.memfd_create("secrets", os.MFD_CLOEXEC), "w+b") as file:
        file.write(json.dumps(dict(secrets)).encode())
        file.seek(0)
        yield file

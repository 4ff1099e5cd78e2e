"""Bringing an agent to life: its own session, nothing of ours open in it, and nobody left as a zombie."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

from supervisor.providers.local.folders import Folder


class Agents:
    """Starts agents with one Python, and reaps those that end while this process is their parent."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._lock = threading.Lock()
        self._children: dict[int, Path] = {}

    def start(self, folder: Folder) -> None:
        """Start the agent in this folder; when this returns its process can be found. OSError when there is none."""
        # The supervisor's own settings stay here: they may hold a password, and are none of the training's business.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SPOT_")}
        environment["SPOT_MACHINE"] = folder.name
        environment["SPOT_MACHINE_DIR"] = str(folder.path)
        with (folder.path / "console.log").open("ab") as console:
            child = subprocess.Popen(
                [self._python, str(folder.path / "agent.pyz"), str(folder.path)],
                stdin=subprocess.DEVNULL,
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

"""Sessions that really run what was pushed, on the machine of the notebooks' tests, and a Kaggle over HTTP."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.cloud.web import WebServer
from tests.kaggle.service import COMPLETE, ERROR, RUNNING, Kaggle, Version
from tests.notebooks.machine import NotebookMachine

STEP_S = 0.1


class RunningSessions:
    """`folder`: of their machines. `gpus`: names of the cards of sessions that start from now on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.gpus = folder, tuple[str, ...]()
        self.machines: dict[int, NotebookMachine] = {}

    def begin(self, version: Version) -> None:
        folder = self._folder / f"session-{version.session_id}"
        machine = NotebookMachine(folder, session=str(version.session_id), gpus=self.gpus)
        self.machines[version.session_id] = machine
        machine.start(version.code)

    def cancel(self, version: Version) -> None:
        self.machines[version.session_id].kill()

    def look(self, kaggle: Kaggle) -> None:
        """A session ends with its source, and everything in it with it."""
        for version in kaggle.living():
            machine = self.machines.get(version.session_id)
            if machine is None or version.status != RUNNING:
                continue
            version.printed = machine.output
            if machine.exit_code is not None:
                machine.kill()
                kaggle.end(version, COMPLETE if machine.exit_code == 0 else ERROR)

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()


class RunningKaggle:
    """Time passes by itself."""

    def __init__(self, folder: Path) -> None:
        self.sessions = RunningSessions(folder)
        self.kaggle = Kaggle(time.time, self.sessions)
        self.kaggle.resets_at = time.time() + 86_400.0
        self.server = WebServer(self.kaggle.exchanges.web)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kaggle", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return self.server.url.rstrip("/")

    def _run(self) -> None:
        while not self._closing.wait(STEP_S):
            with self.kaggle._lock:
                self.kaggle.step()
                self.sessions.look(self.kaggle)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(30)
        with suppress(Exception):
            self.server.close()
        self.sessions.close()
        assert self.kaggle.violations == []

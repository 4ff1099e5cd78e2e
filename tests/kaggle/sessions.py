"""Sessions that really run what was pushed, on the machine of the notebooks' tests, and a Kaggle over HTTP."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.cloud.web import WebServer
from tests.kaggle.service import COMPLETE, ERROR, RUNNING, USER, Kaggle, Version
from tests.notebooks.machine import NotebookMachine

STEP_S = 0.1


class RunningSessions:
    """`folder`: of their machines. `gpus`: names of the cards of sessions that start from now on, `env`: their
    variables."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.gpus, self.env = folder, tuple[str, ...](), dict[str, str]()
        self.kaggle: Kaggle
        self.machines: dict[int, NotebookMachine] = {}

    def begin(self, version: Version) -> None:
        folder = self._folder / f"session-{version.session_id}"
        machine = NotebookMachine(
            folder, session=str(version.session_id), gpus=self.gpus, network=version.internet, env=self.env
        )
        self.machines[version.session_id] = machine
        for source in version.flags.get("kernelDataSources", ()):
            slug = source.removeprefix(f"{USER}/")
            (machine.input / slug).mkdir()
            for name, content in self.kaggle.version(slug).output.items():
                assert isinstance(content, Path)
                (machine.input / slug / name).write_bytes(content.read_bytes())
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
                version.output = {path.name: path for path in machine.working.iterdir() if path.is_file()}
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
        self.sessions.kaggle = self.kaggle
        self.server = WebServer(self.kaggle.exchanges.web)
        self.kaggle.address = self.url
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

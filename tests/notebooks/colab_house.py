"""Colab as a folder: sessions that the tests' client makes become sandboxes that really run what `exec` sends.

The client is a program of its own (tests/fakes/colab_client). It leaves the code of an `exec` in the folder and waits
for the output; the thread here starts a notebook's machine for each session and runs the code there. A session that
Colab ends, or that `stop` has ended, is a sandbox whose processes are all killed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.fakes.colab_client import Account, changing, load, save
from tests.notebooks.machine import NotebookMachine
from tools.project_files import ROOT

LOOK_S = 0.05
ANSWER_S = 20.0


class ColabHouse:
    """`folder`: of the account. Close it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        save(folder, Account())
        self.program = folder / "colab"
        self.program.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.fakes.colab_client {folder} "$@"\n'
        )
        self.program.chmod(0o700)
        self.machines: dict[str, NotebookMachine] = {}  # by the name of the session
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="colab", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closing.wait(LOOK_S):
            for asked in sorted(self.folder.glob("exec-*.json")):
                text = json.loads(asked.read_text())
                asked.unlink()
                self._run(text["session"], text["code"], asked.with_suffix(".out"))

    def _run(self, name: str, code: str, answer: Path) -> None:
        if name not in self.machines:
            self.machines[name] = NotebookMachine(self.folder / f"machine-{name}", "colab")
        machine = self.machines[name]
        machine.start(code)
        draft = answer.with_suffix(".draft")
        draft.write_text(machine.ended(ANSWER_S))
        draft.rename(answer)

    def end_session(self, name: str) -> None:
        """Colab ends it: nobody is told."""
        with changing(self.folder) as account:
            account.end(name)
        self.machines[name].kill()

    @property
    def calls(self) -> list[list[str]]:
        return load(self.folder).calls

    def close(self) -> None:
        self._closing.set()
        self._thread.join(30)
        for machine in self.machines.values():
            machine.close()


def kernel_in(folder: Path) -> Callable[[str, str], str]:
    """What `exec` of the program does: leave the code, and wait for its output."""

    def kernel(name: str, code: str) -> str:
        asked = folder / f"exec-{time.time_ns()}.json"
        draft = asked.with_suffix(".new")
        draft.write_text(json.dumps({"session": name, "code": code}))
        draft.rename(asked)
        answer, end = asked.with_suffix(".out"), time.monotonic() + ANSWER_S
        while not answer.exists():
            if time.monotonic() > end:
                raise TimeoutError("no output")
            time.sleep(LOOK_S)
        return answer.read_text()

    return kernel

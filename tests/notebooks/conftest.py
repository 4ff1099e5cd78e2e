"""A supervisor's door with one launch that waits to be claimed, and sessions of notebooks that end with their test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import heartbeat, identifiers, notebook, runfiles
from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import Beat
from supervisor.contract.stores.folder import FolderStore
from tests.agent.machine_rig import PACES, RUN, TOY, agent_with_bytecode
from tests.fakes.door import DoorFake, sha256
from tests.notebooks.machine import NotebookMachine
from tests.waiting import wait_for


class Desk:
    """The supervisor's side, and the sessions that were started."""

    def __init__(self, folder: Path) -> None:
        self.store = FolderStore.create(folder / "objects")
        self.door = DoorFake(self.store)
        self.door.archive = agent_with_bytecode()
        self.machines: list[NotebookMachine] = []
        self._folder = folder
        self.store.put(runfiles.baton(RUN), rules.encode(rules.create("sup-1", 1)))

    def close(self) -> None:
        for machine in self.machines:
            machine.close()
        self.door.close()

    @property
    def baton(self) -> Baton:
        return rules.decode(self.store.get(runfiles.baton(RUN))[0])

    def job(self, attempt: int = 1, *words: str, holder_gone: bool = False, **values: Any) -> dict[str, Any]:
        """Name this attempt as the next one; its job, as a provider hands it over."""
        launch = identifiers.launch_id(1, attempt, 1)
        self.store.put(runfiles.baton(RUN), rules.encode(rules.raise_next(self.baton, launch, "secret", holder_gone)))
        return {
            "version": 1, "name": "kg-digits-a%d" % attempt, "run_id": RUN, "generation": 1, "attempt": attempt,
            "launch_id": launch, "nonce": "secret", "supervisor_id": "sup-1", "command": ["python3", TOY, *words],
            "workdir": None, "env": {}, "results": [], "results_generation": 1,
            "retry": {"exit_codes": [], "log_patterns": []}, **PACES, **values,
        }  # fmt: skip

    def cell(self, attempt: int = 1, *words: str, holder_gone: bool = False, **values: Any) -> str:
        """The cell of this attempt, with a ticket of its own."""
        self.door.job = self.job(attempt, *words, holder_gone=holder_gone, **values)
        ticket = f"ticket-{attempt}"
        self.door.tickets.setdefault(ticket, "")
        return notebook.cell(self.door.url, ticket, sha256(self.door.archive))

    def machine(self, platform: str = "kaggle", **options: Any) -> NotebookMachine:
        self.machines.append(NotebookMachine(self._folder / f"session-{len(self.machines)}", platform, **options))
        return self.machines[-1]

    def beat_with(self, what: str, test: Any, deadline_s: float = 30) -> Beat:
        return wait_for(lambda: next((beat for beat in self.door.beats if test(beat)), None), deadline_s, what)

    def at_step(self, step: int) -> Beat:
        return self.beat_with(f"step {step}", lambda beat: beat.step == step)

    @property
    def last_beat(self) -> Beat:
        return heartbeat.parse(self.store.get(runfiles.beat(RUN))[0])

    def go(self) -> None:
        """Let a waiting training continue."""
        self.go_in(self.machines[-1])

    def go_in(self, machine: NotebookMachine) -> None:
        (machine.folder() / "work" / "scratch" / "go").touch()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.close()

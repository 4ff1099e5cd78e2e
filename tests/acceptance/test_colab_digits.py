"""A training over two sessions of Colab, once with pasted cells and once by the client: the same weights as without an
interruption, bit for bit. The sessions are sandboxes that really run the cell, with the real agent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import free_port, training, twin
from tests.acceptance.daemon import QUICK, Daemon
from tests.acceptance.digits_lab import DigitsLab
from tests.notebooks.colab_house import ColabHouse
from tests.notebooks.machine import NotebookMachine
from tests.waiting import wait_for

CELL = {"SPOT_MACHINE_MAX_S": "10"}  # then its agent leaves, as it does before the cap of a session
CLIENT = {"SPOT_COLAB_WAYS": "client", "SPOT_POLL_INTERVAL_S": "2", "SPOT_SILENCE_S": "4"}


class Colab(DigitsLab):
    """`house`: the client's Colab. `sessions`: those that a person has opened."""

    def __init__(self, folder: Path, house: ColabHouse, **settings: str) -> None:
        self.house, self.objects, self.folder = house, folder / "objects", folder
        self.sessions: list[NotebookMachine] = []
        port = free_port()
        environ = {
            **QUICK,
            "SPOT_PROVIDER": "colab",
            "SPOT_COLAB_SHAPES": "cpu",
            "SPOT_COLAB_SESSION_CAP_S": "86400",
            "SPOT_COLAB_CLIENT": str(house.program),
            "SPOT_STORE_URL": f"file://{self.objects}",
            "SPOT_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "SPOT_BEAT_STORE_S": "1",
            **settings,
        }
        self.daemon = Daemon(folder / "data", environ)
        self.daemon.port = port
        self.daemon.start()

    def paste(self) -> NotebookMachine:
        """A person opens a notebook, and runs the cell of `spot cell`."""
        notebook = self.folder / f"cell-{len(self.sessions)}.ipynb"
        self.spot("cell", "digits", "--notebook", str(notebook))
        source = json.loads(notebook.read_text())["cells"][1]["source"]
        machine = NotebookMachine(self.folder / f"session-{len(self.sessions)}", "colab")
        self.sessions.append(machine)
        machine.start("".join(source))
        return machine

    def logs(self) -> str:
        told = "\n".join(machine.output for machine in [*self.sessions, *self.house.machines.values()])
        return f"{super().logs()[-6000:]}\n{told}"

    def completed(self) -> None:
        self.until(lambda run: run["status"] == "completed", "digits to complete")
        weights = self.objects / runfiles.results("digits", 1) / "weights.npz"
        assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()

    def close(self) -> None:
        self.daemon.close()
        for machine in self.sessions:
            machine.close()
        self.house.close()


@pytest.fixture
def colab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Colab]:
    colab = Colab(tmp_path, ColabHouse(tmp_path / "account"), **request.param)
    yield colab
    colab.close()


@pytest.mark.parametrize("colab", [CELL], indirect=True, ids=["cell"])
def test_the_weights_are_the_same_over_two_pasted_cells(colab: Colab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    colab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    colab.until(lambda run: "run cell 1" in run["needs_person"], "the run to need its person")
    first = colab.paste()
    colab.until(lambda run: run["status"] == "running" and not run["needs_person"], "the session to train")
    with pytest.raises(AssertionError, match="waits for no notebook"):
        colab.spot("cell", "digits")
    colab.until(lambda run: "run cell 1" in run["needs_person"], "the run to need the next session")
    assert "the time of this session is over" in first.ended()
    gate.touch()
    second = colab.paste()
    colab.completed()
    assert "the training is done" in second.ended()
    assert [attempt["cause"] for attempt in colab.attempts()] == ["expired", "finished"], colab.events()
    assert colab.attempts()[1]["step_from"] == colab.attempts()[0]["step_last"] > 0
    wait_for(lambda: not list((colab.objects / "sessions").rglob("digits*")), 30, "nothing to be kept of it")


@pytest.mark.parametrize("colab", [CLIENT], indirect=True, ids=["client"])
def test_the_weights_are_the_same_by_the_client_over_a_session_that_colab_ends(colab: Colab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    colab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    colab.until(lambda run: (run["checkpoint_step"] or 0) >= 10, "a first checkpoint")
    (name,) = colab.house.machines
    colab.house.end_session(name)
    colab.until(lambda run: len(colab.attempts()) == 2, "the next session")
    gate.touch()
    colab.completed()
    first, second = colab.attempts()
    assert [first["cause"], second["cause"]] == ["preempted", "finished"], colab.events()
    assert second["step_from"] >= 10

    def of_each() -> list[list[str]]:
        """What the client was asked for each session, in its order. Two sessions wait for no order between them."""
        names = [call[call.index("-s") + 1] for call in colab.house.calls if "new" in call]
        words = ("new", "exec", "stop")
        return [
            [word for call in colab.house.calls if name in call for word in call if word in words] for name in names
        ]

    wait_for(lambda: of_each() == 2 * [["new", "exec", "stop"]], 30, "each session to be ended once")
    wait_for(lambda: not any(machine.alive for machine in colab.house.machines.values()), 30, "no session to be left")

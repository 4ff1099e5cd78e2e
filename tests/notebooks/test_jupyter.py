"""The packaged notebook in a real Jupyter before the real API: a valid file, executed by a real kernel to the claim and
to the end of the training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.contract import baton as rules
from supervisor.contract import notebook, runfiles
from tests.agent.machine_rig import TOY, agent_with_bytecode
from tests.api.listening import serving
from tests.fakes.door import sha256
from tests.notebooks.machine import NotebookMachine
from tests.services.bed import make_bed
from tests.services.door_bed import RUN_ID, DoorBed, make_door
from tests.services.fresh import open_fresh

# In a process of its own, as Jupyter is: its libraries warn of things that are none of ours.
EXECUTE = """
import nbformat
from nbclient import NotebookClient

book = nbformat.read({source!r}, as_version=4)
nbformat.validate(book)
NotebookClient(book, timeout=120, kernel_name="python3").execute()
nbformat.write(book, {target!r})
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[DoorBed, str]]:
    """The door with one launch, and the address of its supervisor."""
    with closing(open_fresh(tmp_path / "supervisor.db")) as database:
        door = make_door(make_bed(database, tmp_path), tmp_path)
        (tmp_path / "agent.pyz").write_bytes(agent_with_bytecode())
        with serving(door.services) as now:
            url = f"http://127.0.0.1:{now.port}"
            object.__setattr__(door.door, "public_url", url)  # known only now
            yield door, url


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[NotebookMachine]:
    quiet = {"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "PYTHONWARNINGS": "ignore"}
    made = NotebookMachine(tmp_path / "session", "colab", env=quiet)
    yield made
    made.close()


def test_the_packaged_notebook_claims_and_shows_the_training(
    served: tuple[DoorBed, str], machine: NotebookMachine, tmp_path: Path
) -> None:
    door, url = served
    run = door.launching(command=["python3", TOY, "--delay-s", "0.1"])
    cell = notebook.cell(url, door.ticket(run), sha256(agent_with_bytecode()))
    source, target = tmp_path / "session.ipynb", tmp_path / "executed.ipynb"
    source.write_text(notebook.notebook(cell, RUN_ID, "One session of this run."))
    machine.start(EXECUTE.format(source=str(source), target=str(target)))
    output = machine.ended()
    assert machine.exit_code == 0, output
    ((_, claim),) = door.book.all().items()
    assert (claim.run_id, claim.session["platform"]) == (RUN_ID, "colab")
    baton = rules.decode(door.bed.objects.get(runfiles.baton(RUN_ID))[0])
    assert baton.done is not None
    outputs = json.loads(target.read_text())["cells"][1]["outputs"]
    text = "".join("".join(each["text"]) for each in outputs if each["output_type"] == "stream")
    assert "its training starts" in text
    assert "the training is done, and its results are saved" in text
    (view,) = [each for each in outputs if each["output_type"] == "display_data"]
    html = "".join(view["data"]["text/html"])
    assert "<progress" in html
    assert "5 of 5" in html

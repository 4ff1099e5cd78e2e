"""The packaged notebook in a real Jupyter: a valid file, executed by a real kernel to the claim and to the end."""

from __future__ import annotations

import json
from pathlib import Path

from supervisor.contract import notebook
from tests.notebooks.conftest import Desk

# In a process of its own, as Jupyter is: its libraries warn of things that are none of ours.
EXECUTE = """
import nbformat
from nbclient import NotebookClient

book = nbformat.read({source!r}, as_version=4)
nbformat.validate(book)
NotebookClient(book, timeout=120, kernel_name="python3").execute()
nbformat.write(book, {target!r})
"""


def test_the_packaged_notebook_claims_and_shows_the_training(desk: Desk, tmp_path: Path) -> None:
    cell = desk.cell(1, "--delay-s", "0.1")
    source, target = tmp_path / "session.ipynb", tmp_path / "executed.ipynb"
    source.write_text(notebook.notebook(cell, "digits-7", "One session of this run."))
    machine = desk.machine("colab", env={"JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "PYTHONWARNINGS": "ignore"})
    machine.start(EXECUTE.format(source=str(source), target=str(target)))
    output = machine.ended()
    assert machine.exit_code == 0, output
    assert len(desk.door.claims) == 1
    outputs = json.loads(target.read_text())["cells"][1]["outputs"]
    text = "".join("".join(each["text"]) for each in outputs if each["output_type"] == "stream")
    assert "its training starts" in text
    assert "the training is done, and its results are saved" in text
    (view,) = [each for each in outputs if each["output_type"] == "display_data"]
    html = "".join(view["data"]["text/html"])
    assert "<progress" in html
    assert "5 of 5" in html
    assert "secret" not in target.read_text()  # the nonce

"""A whole session of a notebook on each Python that a notebook service may have."""

from __future__ import annotations

import pytest

from tests.agent.test_old_pythons import old_python
from tests.notebooks.conftest import Desk, desk

__all__ = ["desk"]


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_a_session_trains_and_goes_on(desk: Desk, version: str) -> None:
    machine = desk.machine("colab", python=old_python(version))
    cell = desk.cell(1, "--wait-at", "3")
    machine.start(cell)
    desk.at_step(3)
    machine.interrupt()
    assert "the training goes on without this cell" in machine.ended()
    machine.start(cell)
    desk.go()
    assert "the training is done" in machine.ended()
    assert desk.door.claims[0]["session"]["python"].startswith(version)
    assert "Warning" not in machine.output

"""Writing down the end of a local machine: its folder may be put away in that very moment."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from supervisor.host import processes
from supervisor.host.files import write_json
from supervisor.host.folders import Folder
from supervisor.host.inspector import Inspector
from tests.fakes.clock import FakeClock


@pytest.fixture
def dead(tmp_path: Path) -> Folder:
    """A machine whose agent has ended: no process has these start ticks."""
    path = tmp_path / "m-1"
    path.mkdir()
    names = dict.fromkeys(("zone", "supervisor_id", "run_id", "launch_id"), "x")
    write_json(path / "job.json", {"name": "m-1", **names})
    write_json(path / "agent.json", {"pid": 1, "start_ticks": -1, "boot_id": processes.boot_id()})
    return Folder(path)


def test_a_death_is_written_down(dead: Folder) -> None:
    clock = FakeClock()
    assert Inspector(clock.now).machine(dead) is None
    assert json.loads((dead.path / "gone.json").read_text()) == {"at": clock.now()}


def test_a_folder_that_is_put_away_meanwhile_is_no_news(
    dead: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Folder.write_gone

    def too_late(folder: Folder, at: float) -> None:
        shutil.rmtree(folder.path)
        real(folder, at)

    monkeypatch.setattr(Folder, "write_gone", too_late)
    with caplog.at_level(logging.WARNING):
        assert Inspector(FakeClock().now).machine(dead) is None
    assert caplog.records == []


def test_a_full_disk_is_said_and_hides_nothing(
    dead: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(folder: Folder, at: float) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, "write_gone", full)
    with caplog.at_level(logging.WARNING):
        assert Inspector(FakeClock().now).machine(dead) is None
    assert "No space left" in caplog.text

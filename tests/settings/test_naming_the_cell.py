"""The name of the cell: a supervisor that cannot see a computer's machines must not lead them under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.reconciler.system_clock import EventWake
from supervisor.wiring import application as wired
from tests.services.fresh import open_fresh
from tests.settings.test_sections import BUCKET, CLOUD, LAB, load

OTHER_CLOUD = CLOUD.replace("cloud", "spare").replace("my-project", "my-other-project")


def cell_of(tmp_path: Path, computer: str, text: str) -> str:
    """The cell of a supervisor on this computer with these sections."""
    folder = tmp_path / computer
    folder.mkdir()
    settings = load(folder, BUCKET + text, SPOT_DATA_DIR=str(folder / "data"))
    store = open_fresh(folder / "spot.db")
    try:
        application = wired.build(settings, store, wired.Wakes(EventWake(), EventWake()))
        application.adapters.close()
        assert set(application.loop.tick.observer.providers) == set(settings.sections)
        return application.loop.leader.cell
    finally:
        store.close()


@pytest.mark.parametrize("text", [CLOUD + LAB, LAB + CLOUD, LAB])
def test_two_computers_with_machines_of_their_own_are_two_cells(tmp_path: Path, text: str) -> None:
    names = [cell_of(tmp_path, computer, text) for computer in ("one", "two")]
    assert len(set(names)) == 2
    assert {name.split(" ")[0] for name in names} == {"lab"}


@pytest.mark.parametrize("text", [CLOUD, CLOUD + OTHER_CLOUD])
def test_clouds_alone_have_the_name_of_the_first(tmp_path: Path, text: str) -> None:
    names = [cell_of(tmp_path, computer, text) for computer in ("one", "two")]
    assert names == ["cloud my-project-123456 gs://my-bucket/spot"] * 2

"""`scene`: everything that a build speaks to, on loopback."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from supervisor.machinefolder import agent_archive
from tests.building.scene import Scene

_built_agent = cache(agent_archive.build_agent)  # 35 ms of CPU in each build


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(agent_archive, "build_agent", _built_agent)
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.close()

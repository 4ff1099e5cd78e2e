"""`scene`: everything that a build speaks to, on loopback."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.building.scene import Scene


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.close()

"""Play every scenario file with the real decisions, loop, use cases and database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.play import play

FILES = sorted(Path(__file__).parent.glob("*/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_story_ends_as_it_must(path: Path, folder: Path) -> None:
    play(path, folder)

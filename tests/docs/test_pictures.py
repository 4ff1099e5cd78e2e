"""The pictures of the dashboard: each page in both looks, small, with a text for who cannot see them."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from tests.dashboard.screenshots import FOLDER, LOOKS, SHOTS, SIGNATURE

ROOT = Path(__file__).parents[2]
MOST_BYTES, MOST_OF_ALL = 150_000, 3_000_000
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]+\.png)\)")


def test_each_page_is_there_in_both_looks_and_nothing_else() -> None:
    wanted = {f"{shot.name}-{look}.png" for shot in SHOTS for look in LOOKS}
    assert {path.name for path in FOLDER.iterdir()} == wanted, "make screenshots"


def test_they_are_small_and_as_wide_as_they_should_be() -> None:
    for shot in SHOTS:
        for look in LOOKS:
            data = (FOLDER / f"{shot.name}-{look}.png").read_bytes()
            assert data.startswith(SIGNATURE)
            width, height = struct.unpack_from(">II", data, 16)
            assert width == shot.size[0]
            assert height <= shot.tall
            assert len(data) <= MOST_BYTES, shot.name
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST_OF_ALL


def test_the_readme_shows_one_and_each_picture_is_told_in_words() -> None:
    readme = IMAGE.findall((ROOT / "README.md").read_text())
    assert [Path(path).name for _, path in readme] == ["run-recovering-dark.png"]
    told = [*readme, *IMAGE.findall((ROOT / "docs" / "dashboard.md").read_text())]
    assert len(told) > 6
    assert all(len(text.split()) > 4 for text, _ in told)

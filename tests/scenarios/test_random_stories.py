"""A few random stories; `make campaign` plays some hundreds more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.properties import examples
from tests.scenarios.random_story import live


@pytest.mark.parametrize("seed", range(examples(6, 12)))
def test_every_run_completes_in_the_end(seed: int, folder: Path) -> None:
    live(seed, folder)

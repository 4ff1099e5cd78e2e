"""Hundreds of stories made by chance, each with ninety misfortunes: nothing is lost, nothing is left, all complete."""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import memory_folder
from tests.scenarios.random_story import live


@pytest.mark.parametrize("seed", range(1000, 1300))
def test_every_run_completes_in_the_end(seed: int) -> None:
    with memory_folder() as folder:
        live(seed, folder, misfortunes=90)

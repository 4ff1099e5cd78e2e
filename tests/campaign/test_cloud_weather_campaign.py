"""Hundreds of stories of random weather over Google Cloud, and a supplier that adopts machines by their names alone."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from supervisor.providers.gce.machines import launching
from tests.acceptance.weather_story import live
from tests.scenarios.conftest import memory_folder


@pytest.mark.parametrize("seed", range(5000, 5300))
def test_every_run_completes_in_the_end(seed: int) -> None:
    with memory_folder() as folder:
        live(seed, folder, misfortunes=50)


def test_some_story_finds_a_supplier_that_adopts_by_name_alone() -> None:
    for seed in range(4, 20):
        with patch.object(launching.Launcher, "_is_of", lambda *_: True), memory_folder() as folder:
            try:
                live(seed, folder, misfortunes=30)
            except AssertionError:
                return
    pytest.fail("none did")

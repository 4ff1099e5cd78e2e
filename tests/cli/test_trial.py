"""A trial rents a machine of one Google project: other settings are refused before any request; and it waits for words
that the machine writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import supervisor
from supervisor.cli.server.trial_phases import DRIVER_READY, IMAGE_PULLED
from tests.settings.test_sections import BUCKET, CLOUD, LAB


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "these settings have provider = local"),
        (LAB, "these settings have provider = local"),
        (BUCKET + CLOUD, "these have sections of providers"),
        (BUCKET + LAB + CLOUD, "these have sections of providers"),
    ],
)
def test_it_needs_the_settings_of_one_project(spot, tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "spot.toml"
    file.write_text(text, encoding="utf-8")
    answer = spot("trial", "--config", str(file), "--data-dir", str(tmp_path / "data"))
    assert answer.code == 2
    assert why in answer.err
    assert "spot trial --env-file spot.env" in answer.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("words", [DRIVER_READY, IMAGE_PULLED])
def test_the_start_up_script_writes_the_words_that_a_phase_waits_for(words: str) -> None:
    scripts = (Path(supervisor.__file__).parent / "providers" / "gce" / "machines").glob("*.sh")
    assert any(words in script.read_text(encoding="utf-8") for script in scripts)

"""The digest of the settings: different for different settings, and independent of secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.wiring import settings as wired
from supervisor.wiring.settings import digest


def of(tmp_path: Path, **environ: str) -> str:
    given = {"SPOT_DATA_DIR": str(tmp_path), **environ}
    return digest(wired.load({}, given))


def test_another_setting_is_another_hash(tmp_path: Path) -> None:
    assert of(tmp_path) == of(tmp_path)
    assert of(tmp_path) != of(tmp_path, SPOT_STALL_POLLS="11")


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("SPOT_ALERT_URL", "https://hooks.example.com/one", "https://hooks.example.com/two"),
        ("SPOT_DATABASE_URL", "postgresql://u:one@db.example.com/s", "postgresql://u:two@db.example.com/s"),
    ],
)
def test_a_secret_does_not_change_it(tmp_path: Path, name: str, one: str, other: str) -> None:
    assert of(tmp_path, **{name: one}) == of(tmp_path, **{name: other})

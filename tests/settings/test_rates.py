"""The request rate of a token is a setting."""

from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired


def load(tmp_path: Path, **environ: str) -> settings.Settings:
    return wired.load(environ={"HOME": str(tmp_path), **environ})


def test_there_is_a_limit_unless_it_is_removed(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert (found.access.rate_per_s, found.access.rate_burst) == (100, 200)
    assert load(tmp_path, SPOT_RATE_PER_S="0").access.rate_per_s == 0


@pytest.mark.parametrize(
    ("name", "value"), [("RATE_PER_S", "-1"), ("RATE_PER_S", "1.5"), ("RATE_BURST", "0"), ("RATE_BURST", "inf")]
)
def test_an_invalid_rate_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsRefused, match=name.lower()):
        load(tmp_path, **{f"SPOT_{name}": value})

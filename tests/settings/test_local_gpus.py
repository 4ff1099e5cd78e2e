"""The shapes of this computer with GPUs, and the number of GPUs per machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.settings import loading as settings
from supervisor.wiring import settings as wired


def load(environ: dict[str, str], file: Path | None = None) -> settings.Settings:
    return wired.load(environ={"HOME": "/nowhere", **environ}, file=file)


def test_text_and_table_mean_the_same(tmp_path: Path) -> None:
    file = tmp_path / "spot.toml"
    file.write_text('local_shapes = ["l4", "l4x2", "cpu"]\n[local_gpus]\nl4 = 1\nl4x2 = 2\n', encoding="utf-8")
    by_text = load({"SPOT_LOCAL_SHAPES": "l4,l4x2,cpu", "SPOT_LOCAL_GPUS": "l4=1,l4x2=2"})
    assert load({}, file).value("local_gpus") == by_text.value("local_gpus") == {"l4": 1, "l4x2": 2}
    assert load({}).value("local_gpus") == {}


def test_a_shape_that_is_not_offered_is_refused() -> None:
    with pytest.raises(SettingsRefused, match=r"local_gpus names l4, which is not one of local_shapes \(cpu\)"):
        load({"SPOT_LOCAL_GPUS": "l4=1"})


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=many", "cpu=-1", "cpu=1.5"])
def test_an_invalid_number_of_cards_is_refused(text: str) -> None:
    with pytest.raises(SettingsRefused, match=r"local_gpus \(environment SPOT_LOCAL_GPUS\): expected"):
        load({"SPOT_LOCAL_GPUS": text})


def test_the_refusal_shows_how_it_is_written() -> None:
    with pytest.raises(SettingsRefused, match="shape=cards pairs, such as l4=1,l4x2=2"):
        load({"SPOT_LOCAL_GPUS": "l4"})

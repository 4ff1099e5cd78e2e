"""The project of gcloud on this computer: its files, their places, and the variables that override them."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.providers.gce.calls.account import Gcloud, active, mismatch


def written(folder: Path, name: str = "default", active_one: str = "") -> Path:
    (folder / "configurations").mkdir(parents=True, exist_ok=True)
    (folder / "configurations" / f"config_{name}").write_text(
        f"[core]\naccount = ann@example.org\nproject = of-{name}\n"
    )
    if active_one:
        (folder / "active_config").write_text(f"{active_one}\n")
    return folder


def test_it_is_in_the_home_folder_unless_a_variable_names_another_place(tmp_path: Path) -> None:
    written(tmp_path / ".config" / "gcloud")
    elsewhere = written(tmp_path / "elsewhere", "work", "work")
    home = {"HOME": str(tmp_path)}
    assert active(home) == Gcloud("of-default", "ann@example.org", "configuration default")
    assert active({**home, "CLOUDSDK_CONFIG": str(elsewhere)}).project == "of-work"


def test_variables_win_over_the_files(tmp_path: Path) -> None:
    folder = written(written(tmp_path), "work", "default")
    given = {"CLOUDSDK_CONFIG": str(folder), "CLOUDSDK_ACTIVE_CONFIG_NAME": "work"}
    assert active(given).project == "of-work"
    assert active({**given, "CLOUDSDK_CORE_PROJECT": "p"}) == Gcloud("p", "ann@example.org", "CLOUDSDK_CORE_PROJECT")


def test_without_gcloud_nothing_is_set(tmp_path: Path) -> None:
    assert active({"HOME": str(tmp_path)}).project == ""


def test_its_project_may_be_the_number_of_ours_and_a_broken_file_is_no_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CORE_PROJECT", "123456789012")
    assert mismatch("p", "123456789012").result == "ok"
    assert mismatch("p", "210987654321").result == "warn"
    (tmp_path / "configurations").mkdir()
    (tmp_path / "configurations" / "config_default").write_text("no ini file")
    assert mismatch("p", "123456789012").fact == "not compared with the supervisor's project"

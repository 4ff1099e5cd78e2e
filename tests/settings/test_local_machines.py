"""How many trainings a computer runs at once without settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.machinefolder import capacity
from supervisor.machinefolder.capacity import default_limit
from supervisor.providers.local.settings import most_machines
from supervisor.wiring.surroundings import settings_lines
from tests.settings.test_layers import load

NO_CARDS = Path("/none")


@pytest.fixture(autouse=True)
def _sixteen_cores_and_eight_gib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 8 * 2**20, "SC_PAGE_SIZE": 4096}.__getitem__)
    monkeypatch.setattr(capacity, "CGROUP", tmp_path)


def test_one_for_each_core_or_for_each_two_gib_whichever_is_less(tmp_path: Path) -> None:
    assert default_limit({}, NO_CARDS) == (16, "one for each of 16 cores")
    (tmp_path / "memory.max").write_text(f"{8 * 2**30}\n")
    assert default_limit({}, NO_CARDS) == (4, "one for each 2 GiB of 8.0 GiB of memory")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert default_limit({}, NO_CARDS) == (1, "one core")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert default_limit({}, NO_CARDS)[0] == 16


def test_one_machine_per_gpu_unless_shapes_assign_them(tmp_path: Path) -> None:
    cards = tmp_path / "gpus"
    for card in range(2):
        (cards / f"0000:0{card}:00.0").mkdir(parents=True)
    assert default_limit({}, cards) == (2, "one for each of 2 GPUs")
    assert default_limit({"cpu": 0, "l4": 1}, cards)[0] == 16, "its cards are counted one by one"


def values(environ):
    return load(environ).kinds["local"]


def test_the_settings_win() -> None:
    assert most_machines(values({"SPOT_LOCAL_MACHINES": "3"})) == (3, "local_machines")
    every = {"SPOT_LOCAL_ZONES": "a,b", "SPOT_LOCAL_CAPACITY": "a=1,b=2"}
    assert most_machines(values(every)) == (None, "local_capacity")
    assert most_machines(values({**every, "SPOT_LOCAL_CAPACITY": "a=1"}))[0] == most_machines(values({}))[0]
    with pytest.raises(SettingsRefused, match="local_machines"):
        load({"SPOT_LOCAL_MACHINES": "-1"})


def test_the_doctor_says_how_many_and_why() -> None:
    lines = {line.name: line.fact for line in settings_lines(load({"SPOT_LOCAL_MACHINES": "3"}))}
    assert lines["capacity"] == "3 trainings at once (local_machines); more of them wait as queued"
    every = {"SPOT_LOCAL_ZONES": "a,b", "SPOT_LOCAL_CAPACITY": "a=1,b=2"}
    lines = {line.name: line.fact for line in settings_lines(load(every))}
    assert lines["capacity"].startswith("3 trainings at once (local_capacity)")

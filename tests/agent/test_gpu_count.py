"""Before the command: which cards are this machine's, and how many of them can be opened."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent import gpus as gpu_rules
from supervisor.agent.gpus import GpuReader, missing
from supervisor.agent.job import Job
from supervisor.agent.patience import GaveUp
from tests.agent.nvml_duck import NOT_SUPPORTED, Duck, no_library, reader
from tests.agent.nvml_library import NAME


def test_which_cards_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(gpu_ids: tuple[str, ...] | None = None, **env: str) -> Any:
        job = Job("m", "digits-7", 1, "1.1.1", "n", "file:///x", (), None, env=env, gpu_ids=gpu_ids)
        return gpu_rules.names_of(job)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert names() is None
    assert names(CUDA_VISIBLE_DEVICES="0, 2") == ["0", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert names() == []
    assert names(("GPU-a",), CUDA_VISIBLE_DEVICES="7") == ("GPU-a",)
    assert names((), CUDA_VISIBLE_DEVICES="7") == ()


def never() -> bool:
    return False


def test_cards_that_can_be_opened_are_counted(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    both = reader(Duck(), devices=str(tmp_path))
    assert both.count() == (1, f"{tmp_path}/nvidia1: No such file or directory")
    assert missing(1, both, never) == ""
    assert missing(2, both, never) == (
        f"2 GPUs promised, 1 can be opened: {tmp_path}/nvidia1: No such file or directory"
    )
    (tmp_path / "nvidia1").touch()
    assert missing(2, both, never) == ""
    assert (
        missing(2, reader(Duck(), ("1",), devices=str(tmp_path)), never) == "2 GPUs promised, 1 can be opened"
    )


def test_only_the_cards_of_this_machine_count(tmp_path: Path) -> None:
    for minor in range(4):
        (tmp_path / f"nvidia{minor}").touch()
    found = reader(Duck((0, 1, 2, 3)), ("2", "9"), devices=str(tmp_path))
    assert missing(2, found, never) == (
        "2 GPUs promised, 1 can be opened: GPU 9: nvmlDeviceGetHandleByIndex_v2: error 2"
    )


def test_a_card_without_a_device_file_of_its_own_counts_when_the_driver_has_it(tmp_path: Path) -> None:
    slices = reader(Duck((0,), nvmlDeviceGetMinorNumber=lambda *_: NOT_SUPPORTED), devices=str(tmp_path))
    assert slices.count() == (1, "")


def test_without_library_and_program_no_card_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    text = missing(1, GpuReader(None, no_library), never)
    assert text == f"1 GPU promised, 0 can be opened: {NAME}: cannot open shared object file"


def test_an_error_nobody_foresaw_is_no_card() -> None:
    def broken() -> Any:
        raise RuntimeError("odd")

    assert missing(1, GpuReader(None, broken), never) == "1 GPU promised, 0 can be opened: RuntimeError: odd"


def test_a_driver_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def hang() -> Any:
        let_go.wait(30)
        return Duck()

    monkeypatch.setattr(gpu_rules, "COUNT_LIMIT_S", 0.2)
    try:
        assert missing(1, GpuReader(None, hang), never) == (
            "1 GPU promised; the driver did not answer within 0 s"
        )
        with pytest.raises(GaveUp):
            missing(1, GpuReader(None, hang), lambda: True)
    finally:
        let_go.set()

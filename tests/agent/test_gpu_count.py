"""Before the command: which cards belong to this machine, and how many of them can be opened."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine import gpus as gpu_rules
from supervisor.agent.machine.gpus import GpuReader, missing_text
from supervisor.agent.machine.job import Job
from supervisor.agent.store.access import GaveUp
from tests.agent.nvml_library import NAME
from tests.agent.nvml_stub import LOST, NOT_SUPPORTED, NvmlStub, no_library, reader, temperature


def test_which_cards_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(gpu_ids: tuple[str, ...] | None = None, **env: str) -> Any:
        job = Job("m", "digits-7", 1, "1.1.1", "n", "file:///x", (), None, env=env, gpu_ids=gpu_ids)
        return gpu_rules.gpu_names(job)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert names() is None
    assert names(CUDA_VISIBLE_DEVICES="0, 2") == ["0", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert names() == []
    assert names(("GPU-a",), CUDA_VISIBLE_DEVICES="7") == ("GPU-a",)
    assert names((), CUDA_VISIBLE_DEVICES="7") == ()


NOT_FOUND = 6


def never() -> bool:
    return False


def test_cards_that_can_be_opened_are_counted(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    both = reader(NvmlStub(), devices=str(tmp_path))
    assert both.count() == (1, f"{tmp_path}/nvidia1: No such file or directory")
    assert missing_text(1, both, never) == ""
    assert missing_text(2, both, never) == (
        f"2 GPUs promised, 1 can be opened: {tmp_path}/nvidia1: No such file or directory"
    )
    (tmp_path / "nvidia1").touch()
    assert missing_text(2, both, never) == ""
    assert (
        missing_text(2, reader(NvmlStub(), ("1",), devices=str(tmp_path)), never) == "2 GPUs promised, 1 can be opened"
    )


def test_only_the_cards_of_this_machine_count(tmp_path: Path) -> None:
    for minor in range(4):
        (tmp_path / f"nvidia{minor}").touch()
    gpu_reader = reader(NvmlStub((0, 1, 2, 3)), ("2", "9"), devices=str(tmp_path))
    assert missing_text(2, gpu_reader, never) == (
        "2 GPUs promised, 1 can be opened: GPU 9: nvmlDeviceGetHandleByIndex_v2: error 2"
    )


def test_a_card_without_a_device_file_of_its_own_counts_when_the_driver_has_it(tmp_path: Path) -> None:
    slices = reader(NvmlStub((0,), nvmlDeviceGetMinorNumber=lambda *_: NOT_SUPPORTED), devices=str(tmp_path))
    assert slices.count() == (1, "")


class Papers:
    """The reports about bad cards; `trouble`: the disk is full."""

    def __init__(self) -> None:
        self.reports: list[dict[str, str]] = []
        self.trouble = False

    def __call__(self, cards: Mapping[str, str]) -> None:
        if self.trouble:
            raise OSError(28, "No space left on device")
        self.reports.append(dict(cards))


def test_a_card_that_its_driver_calls_lost_is_written_once_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    codes = {b"GPU-a": 0, b"GPU-b": LOST, b"GPU-c": NOT_FOUND}

    def by_uuid(name: Any, pointer: Any) -> int:
        pointer._obj.value = 100
        return codes[name.value]

    papers = Papers()
    gpu_reader = reader(
        NvmlStub(nvmlDeviceGetHandleByUUID=by_uuid), ("GPU-a", "GPU-b", "GPU-c"), devices=str(tmp_path), bad=papers
    )
    papers.trouble = True
    assert gpu_reader.count()[0] == 1
    papers.trouble = False
    for _ in range(2):
        gpu_reader.read()
    assert papers.reports == [{"GPU-b": "its driver says that it is lost"}], "what is not found is not known"


def test_a_card_that_cannot_be_started_is_bad_and_a_forbidden_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {f"{tmp_path}/nvidia0": errno.EIO, f"{tmp_path}/nvidia1": errno.EACCES}

    def refuse(path: str, flags: int) -> int:
        raise OSError(codes[path], os.strerror(codes[path]))

    papers = Papers()
    gpu_reader = reader(NvmlStub(), devices=str(tmp_path), bad=papers)
    monkeypatch.setattr(gpu_rules.os, "open", refuse)
    assert gpu_reader.count()[0] == 0
    assert papers.reports == [{"0": f"its driver cannot bring it up ({tmp_path}/nvidia0: Input/output error)"}]


def test_only_an_xid_of_the_hardware_makes_a_card_bad() -> None:
    papers = Papers()
    gpu_reader = reader(NvmlStub(nvmlDeviceGetTemperature=temperature), bad=papers)
    gpu_reader.read()
    assert gpu_reader._nvml is not None
    gpu_reader._nvml._xids.update({100: 13, 101: 43})  # of the program
    gpu_reader.read()
    assert papers.reports == []
    gpu_reader._nvml._xids.update({101: 79})
    gpu_reader.read()
    gpu_reader.read()
    assert papers.reports == [{"1": "it had Xid 79, which is an error of the hardware"}]


def test_without_library_and_program_no_card_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    text = missing_text(1, GpuReader(None, no_library), never)
    assert text == f"1 GPU promised, 0 can be opened: {NAME}: cannot open shared object file"


def test_after_an_unexpected_error_no_card_counts() -> None:
    def broken() -> Any:
        raise RuntimeError("odd")

    assert missing_text(1, GpuReader(None, broken), never) == "1 GPU promised, 0 can be opened: RuntimeError: odd"


def test_the_wait_for_a_hanging_driver_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def hang() -> Any:
        let_go.wait(30)
        return NvmlStub()

    monkeypatch.setattr(gpu_rules, "COUNT_LIMIT_S", 0.2)
    try:
        assert missing_text(1, GpuReader(None, hang), never) == ("1 GPU promised; the driver did not answer within 0 s")
        with pytest.raises(GaveUp):
            missing_text(1, GpuReader(None, hang), lambda: True)
    finally:
        let_go.set()

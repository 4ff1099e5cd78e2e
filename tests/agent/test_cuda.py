"""cuInit before the claim: its result is waited for, reported with both versions, or unknown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.agent.machine import gpus, nvml
from supervisor.agent.store.access import GaveUp
from tests.agent.machine_rig import Rig
from tests.agent.nvml_library import CUDA, build


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The results of cuInit, call after call; the last one stays."""
    build(tmp_path, CUDA)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("FAKE_CUDA", str(tmp_path / "words"))
    monkeypatch.setattr(gpus, "CUDA_RETRY_S", 0.05)
    return lambda words: (tmp_path / "words").write_text(words) and None


def problem(notes: list[str] | None = None, gives_up: Callable[[], bool] = lambda: False) -> str:
    return gpus.cuda_problem(gives_up, (notes if notes is not None else []).append, lambda: "535.161.07")


def test_cuda_that_starts_is_no_problem(says: Callable[[str], None]) -> None:
    says("0")
    assert problem() == ""


def test_a_driver_that_does_not_fit_is_reported_with_both_versions(says: Callable[[str], None]) -> None:
    says("803")
    assert problem() == (
        "CUDA does not start: cuInit says 803 (driver and CUDA library do not fit); driver 535.161.07, CUDA 12.2"
    )


def test_gpus_that_are_not_ready_delay_the_start(says: Callable[[str], None]) -> None:
    says("802\n802\n0")
    notes: list[str] = []
    assert problem(notes) == ""
    assert [note[:37] for note in notes] == ["CUDA does not start: cuInit says 802 "] * 2 + [""]


def test_the_wait_for_ready_gpus_has_an_end(says: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    says("802")
    monkeypatch.setattr(gpus, "READY_LIMIT_S", 0.0)
    assert "cuInit says 802" in problem()
    monkeypatch.setattr(gpus, "READY_LIMIT_S", 60.0)
    with pytest.raises(GaveUp):
        problem(gives_up=lambda: True)


def test_a_driver_that_hangs_or_crashes_does_so_in_a_process_of_its_own(
    says: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    says("crash")
    assert problem() == "CUDA does not start: cuInit ended its process (-6)"
    says("hang")
    monkeypatch.setattr(gpus, "PROBE_LIMIT_S", 1.0)
    assert problem() == "CUDA does not start: cuInit did not answer within 1 s"


def test_a_probe_that_no_signal_reaches_is_left_alone(
    says: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the uninterruptible sleep of a driver that hangs."""
    says("hang")
    monkeypatch.setattr(gpus, "PROBE_LIMIT_S", 0.5)
    monkeypatch.setattr(gpus, "REAP_S", 0.1)
    kill, probes = subprocess.Popen.kill, list[subprocess.Popen[bytes]]()

    def unreached(probe: subprocess.Popen[bytes]) -> None:
        probes.append(probe)

    monkeypatch.setattr(subprocess.Popen, "kill", unreached)
    try:
        assert problem() == "CUDA does not start: cuInit did not answer within 0 s"
    finally:
        kill(probes[0])
        probes[0].wait(timeout=30)


def test_a_library_that_prints_does_not_hide_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_PROBE", "print('hello'); print('[999, 12020]')")
    assert "cuInit says 999" in problem()
    monkeypatch.setattr(gpus, "_PROBE", "print('hello')")
    assert problem() == ""


def test_where_there_is_no_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_PROBE", gpus._PROBE.replace("libcuda.so.1", "libcuda-of-nobody.so.1"))
    assert problem() == ""


def test_the_drivers_version(tmp_path: Path) -> None:
    path = tmp_path / "version"
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n")
    assert nvml.driver_version(str(path)) == "535.161.07"
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n")
    assert nvml.driver_version(str(path)) == "570.86.15"
    assert nvml.driver_version(str(tmp_path / "none")) == ""


def test_a_machine_whose_cuda_does_not_start_runs_no_command(
    rig: Rig, tmp_path: Path, says: Callable[[str], None]
) -> None:
    build(tmp_path)  # NVML lists its cards
    says("803")
    rig.start(sys.executable, "-c", "open('began', 'w')", gpus=1)
    last = rig.ended()
    assert last.left == "no_gpu"
    assert last.exit is None
    assert not list(rig.machine.glob("work/**/began"))


def test_a_machine_that_promises_no_gpu_does_not_start_cuda(rig: Rig, says: Callable[[str], None]) -> None:
    says("803")
    rig.start(*rig.toy("--steps", "2"))
    assert rig.ended().left is None

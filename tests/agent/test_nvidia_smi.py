"""The same figures from the program nvidia-smi: a stub on PATH responds as older and newer drivers do."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.nvml import NvidiaSmi
from supervisor.contract.beat_telemetry import Gpus
from tests.agent.nvml_stub import no_library

LINES = (
    "0, GPU-aaa, 93, 20100, 23034, 1800, 2040, 71.23, 72.00, 71, 0{reasons}\n"
    "1, GPU-bbb, [N/A], 12, 23034, [Not Supported], 2040, [Unknown Error], 72.00, 44, [N/A]{reasons}\n"
)


class Program:
    """A stub in front of PATH that records its calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, knows: str = "clocks_event_reasons") -> None:
        self.calls_file, self.answer = folder / "asked", folder / "answer"
        self.answer.write_text(LINES.format(reasons=", 0x0000000000000044"))
        program = folder / "nvidia-smi"
        refuse = f'case "$1" in *{knows}*) ;; *reasons*) echo "Field is not valid"; exit 2;; esac'
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {self.calls_file}\n{refuse if knows else ""}\nexec cat {self.answer}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    @property
    def calls(self) -> list[str]:
        return self.calls_file.read_text().splitlines() if self.calls_file.exists() else []


@pytest.mark.parametrize("knows", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_without_the_library_the_program_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows: str) -> None:
    program, now = Program(tmp_path, monkeypatch, knows), [0.0]
    gpu_reader = GpuReader(None, no_library, NvidiaSmi(lambda: now[0]), monotonic=lambda: now[0])
    expected = Gpus(
        util_pct=(93.0, None),
        memory_used_mib=(20100.0, 12.0),
        memory_total_mib=(23034.0, 23034.0),
        sm_clock_mhz=(1800.0, None),
        sm_clock_max_mhz=(2040.0, 2040.0),
        power_w=(71.23, None),
        power_limit_w=(72.0, 72.0),
        temperature_c=(71.0, 44.0),
        ecc_uncorrected=(0.0, None),
        clock_reasons=(0x44, 0x44),
    )
    assert gpu_reader.read() == expected
    assert all("--format=csv,noheader,nounits" in call for call in program.calls)
    calls_before = len(program.calls)
    for now[0] in (10.0, 59.0):
        assert gpu_reader.read() == expected
    assert len(program.calls) == calls_before  # at most once a minute
    now[0] = 61.0
    assert gpu_reader.read() == expected
    assert len(program.calls) == calls_before + 1  # it has learned which name this driver knows
    assert GpuReader(("GPU-bbb",), no_library).count()[0] == 1
    assert GpuReader(("GPU-ccc",), no_library).count()[0] == 0


def test_a_program_that_hangs_fails_or_prints_nonsense_gives_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path, monkeypatch)
    program.answer.write_text("No devices were found\n\n,,,,\n0, GPU-a\n")
    assert GpuReader(None, no_library).read() is None
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert GpuReader(None, no_library).read() is None
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 30\n")
    assert GpuReader(None, no_library, NvidiaSmi(timeout_s=0.2)).read() is None
    (tmp_path / "nvidia-smi").write_text("\x7fnot a program")
    assert GpuReader(None, no_library).read() is None

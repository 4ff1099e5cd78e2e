"""All figures of a beat: a failing reader affects only itself, old figures are not shown, the text stays small."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.processes import Identity
from supervisor.agent.machine.vitals import SHM, Vitals, readers_of
from supervisor.agent.watch.beat_state import BeatState
from supervisor.contract import heartbeat
from supervisor.contract.beat_telemetry import MAX_BYTES, Cgroup, Disk, Gpus, Telemetry, Tree, decode, encode
from tests.agent.nvml_stub import NvmlStub, no_library, temperature
from tests.benchmarks.machine_told import full


class Bench:
    """Vitals with a manual clock; `warnings` holds the warnings for people."""

    def __init__(self, pace_s: float = 10.0, **readers: Any) -> None:
        self.now, self.warnings = 100.0, []
        self.vitals = Vitals(readers, lambda *said: self.warnings.append(said), pace_s, lambda: self.now)


def broken() -> Any:
    raise OSError(5, "Input/output error")


def test_a_reader_that_fails_costs_its_own_figures_only(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(gpus=broken, cgroup=lambda: Cgroup(oom_kills=1.0), uptime_s=lambda: 7.0, disks=dict)
    with caplog.at_level(logging.WARNING):
        assert bench.vitals.read() == Telemetry(cgroup=Cgroup(oom_kills=1.0), uptime_s=7.0)
        assert bench.vitals.read().gpus is None
    assert len(caplog.records) == 1  # reported once, not in every beat
    assert "gpus cannot be read: OSError" in caplog.text


def test_a_reader_with_absurd_figures_does_not_break_a_beat() -> None:
    bench = Bench(
        cgroup=lambda: Cgroup(memory_bytes=float("nan"), cpu_quota=-1.0, oom_kills=float("inf")),
        gpus=lambda: Gpus(util_pct=(float("nan"), 50.0)),
        tree=lambda: Tree(threads=1e30),
    )
    assert bench.vitals.read() == Telemetry(gpus=Gpus(util_pct=(None, 50.0)))


def test_an_old_reading_is_not_shown() -> None:
    """A reader that hangs, such as a driver or a dead network disk, leaves the last reading: soon it does not count."""
    bench = Bench(uptime_s=lambda: 7.0)
    assert bench.vitals.fresh() == ""
    assert bench.vitals.step() == 10.0
    bench.now += 29.9
    assert decode(bench.vitals.fresh()) == Telemetry(uptime_s=7.0)
    bench.now += 0.2
    assert bench.vitals.fresh() == ""


def test_it_reads_at_most_once_a_second() -> None:
    assert Bench(pace_s=0.05).vitals.step() == 1.0


def test_a_small_shm_is_reported_once() -> None:
    size = [64 * 2.0**20]
    bench = Bench(shm=lambda: {"shm_bytes": size[0], "shm_free_bytes": 5.0})
    assert bench.vitals.read() == Telemetry(shm_bytes=64 * 2.0**20, shm_free_bytes=5.0)
    bench.vitals.read()
    (warning,) = bench.warnings
    assert warning == ("shm", f"{SHM} has only 64 MiB: data loaders with workers may die of a bus error")
    size[0] = 128 * 2.0**20
    fresh = Bench(shm=lambda: {"shm_bytes": size[0]})
    fresh.vitals.read()
    assert fresh.warnings == []


@pytest.fixture
def folder(tmp_path: Path) -> MachineFolder:
    folder = MachineFolder(str(tmp_path))
    folder.prepare()
    return folder


def test_everything_of_this_machine_is_read(folder: MachineFolder) -> None:
    Path(folder.output).write_bytes(b"x" * 1234)
    gpus = GpuReader(None, lambda: NvmlStub(nvmlDeviceGetTemperature=temperature))
    telemetry = Vitals(readers_of(folder, gpus, lambda: None), lambda *_: None, 1.0).read()
    assert telemetry.gpus == Gpus(temperature_c=(60.0, 61.0))
    assert telemetry.log_bytes == 1234
    assert telemetry.uptime_s is not None
    assert telemetry.uptime_s > 0
    assert isinstance(telemetry.checkpoints_disk, Disk)
    assert telemetry.results_disk is telemetry.scratch_disk is None  # the same file system, shown once
    assert telemetry.cgroup is not None
    assert (telemetry.shm_bytes or 0) >= (telemetry.shm_free_bytes or 0)
    assert telemetry.tree is None


def test_a_machine_without_figures_shows_nothing_and_breaks_nothing(folder: MachineFolder) -> None:
    Path(folder.output).unlink()
    readers = readers_of(folder, GpuReader(None, no_library), lambda: None)
    telemetry = Vitals(readers, lambda *_: None, 1.0).read()
    assert (telemetry.gpus, telemetry.log_bytes) == (None, None)
    assert telemetry.uptime_s is not None


def test_each_beat_carries_the_last_reading() -> None:
    job = Job("m", "digits-7", 1, "1.1.1", "n", "file:///x", (), None)
    beat_state = BeatState(job, Identity("boot", 1, 2))
    assert beat_state.next_beat().telemetry == ""
    readings = [encode(Telemetry(uptime_s=1.0)), "", encode(Telemetry(uptime_s=3.0))]
    beat_state.add_vitals(lambda: readings[0])
    beat = beat_state.next_beat()
    assert decode(heartbeat.parse(heartbeat.encode(beat)).telemetry) == Telemetry(uptime_s=1.0)
    assert decode(beat_state.now.telemetry) == Telemetry(uptime_s=1.0)
    readings.pop(0)
    assert beat_state.next_beat().telemetry == ""
    readings.pop(0)
    assert decode(beat_state.next_beat().telemetry) == Telemetry(uptime_s=3.0)


def test_the_largest_beat_of_an_agent_is_accepted() -> None:
    job = Job("m", "digits-7", 1, "1.1.1", "n" * 64, "file:///x", (), None)
    beat_state = BeatState(job, Identity("boot", 1, 2))
    beat_state.note("x", "\u00e9" * 5000)
    beat_state.update(metrics={f"metric-{n}-" + "\u00e9" * 40: 1 / 3 for n in range(40)})
    assert len(encode(full(8))) <= MAX_BYTES
    beat_state.add_vitals(lambda: encode(full(8)))
    raw = heartbeat.encode(beat_state.next_beat())
    assert len(raw) <= heartbeat.MAX_BYTES
    assert decode(heartbeat.parse(raw).telemetry) == full(8)

"""What a quiet training costs its agent: nothing that has not changed is opened, read or written again.

The CPU time itself is a row of the benchmarks (agent_cpu_pct); here stands what keeps it low."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.checkpoints import checkpointsaver
from supervisor.agent.checkpoints.checkpointsaver import QUIET_S, QUIET_SCAN_S, SCAN_S, CheckpointDuty
from supervisor.agent.checkpoints.folder import CheckpointFolder
from supervisor.agent.machine import nvml, processes
from supervisor.agent.machine.folder import open_plain
from supervisor.agent.machine.processes import ProcessTree
from supervisor.agent.watch import output
from supervisor.agent.watch.output import LineTail, LogDuty
from supervisor.contract.beat_telemetry import Tree
from tests.agent.bench import ManualClock
from tests.agent.nvml_stub import NvmlStub
from tests.agent.test_process_tree import Files


class Counted:
    """Calls of a function that still does its work."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.calls += 1
        return self.function(*args, **more)


def test_an_unchanged_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Counted(open_plain)
    monkeypatch.setattr(output, "open_plain", opened)
    path = tmp_path / "lines"
    tail = LineTail(str(path))
    path.write_text("one\ntwo\n")
    assert tail.lines() == [b"one", b"two"]
    for _ in range(9):
        assert tail.lines() == []
    assert opened.calls == 1
    # Emptied, and replaced by as many bytes: both begin again.
    path.write_text("")
    assert tail.lines() == []
    path.write_text("new\nnew\nnew\n")
    assert len(tail.lines()) == 3
    (tmp_path / "other").write_text("two\ntwo\ntwo\n")
    os.rename(tmp_path / "other", path)
    assert tail.lines() == [b"two"] * 3


def test_a_folder_is_scanned_often_only_while_entries_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointFolder(str(tmp_path), 10.0, set)

    class Saver:
        def save_new(self, folder: CheckpointFolder, now: float, last: bool) -> None:
            for candidate in folder.ready(now):
                folder.done(candidate)

    clock = ManualClock()
    monkeypatch.setattr(checkpointsaver.time, "monotonic", clock)
    duty = CheckpointDuty(Saver(), folder, None, None)  # type: ignore[arg-type]
    assert duty.step() == SCAN_S, "a training that has just begun may save at once"
    clock.now += QUIET_S
    assert duty.step() == QUIET_SCAN_S
    (tmp_path / "step-1").write_text("1")
    assert [duty.step(), duty.step()] == [SCAN_S] * 2
    clock.now += QUIET_S + 1
    assert [duty.step(), duty.step()] == [SCAN_S, QUIET_SCAN_S]  # it is saved in the first of these
    folder.rest_s = 0.3
    assert duty.step() == 0.3


def test_processes_of_others_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Counted(processes.stat_fields)
    monkeypatch.setattr(processes, "stat_fields", read)
    files, clock = Files(tmp_path), ManualClock()
    files.put(10, 1)
    for pid in range(100, 200):
        files.put(pid, 1)
    tree = ProcessTree(lambda: 10, str(tmp_path), clock)
    assert tree.read() == Tree(1.0, 2.0, 100.0 * os.sysconf("SC_PAGE_SIZE"), 0.0, 0.0, 0.0, 0.0)
    assert read.calls == 101
    files.put(200, 10)  # a new child is seen all the same
    assert (tree.read() or Tree()).processes == 2
    assert read.calls == 103
    files.put(150, 10)  # its number belongs to another process by now
    assert (tree.read() or Tree()).processes == 2
    clock.now += processes.FORGET_S
    assert (tree.read() or Tree()).processes == 3


def test_limits_of_cards_are_read_once_a_minute() -> None:
    def limit(card: Any, pointer: Any) -> int:
        pointer._obj.value = watts[0] * 1000
        return 0

    watts, clock = [72], ManualClock()
    library = nvml.Nvml(NvmlStub(nvmlDeviceGetEnforcedPowerLimit=limit), clock)
    cards = [library.card("0")]
    assert library.read(cards)[0]["power_limit_w"] == 72
    watts[0] = 60
    clock.now += nvml.LIMITS_S / 2
    assert library.read(cards)[0]["power_limit_w"] == 72
    clock.now += nvml.LIMITS_S
    assert library.read(cards)[0]["power_limit_w"] == 60


def test_a_quiet_log_is_looked_at_every_few_seconds_and_at_once_for_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shipped = ManualClock(), []
    monkeypatch.setattr(time, "monotonic", clock)

    class Shipper:
        def ship(self, last: bool) -> None:
            shipped.append(clock.now)

    class Ends:
        def uploads_over(self) -> bool:
            return False

    duty = LogDuty(Shipper(), 300.0, Ends(), lambda: "training")  # type: ignore[arg-type]
    assert duty.step() == output.IDLE_S
    clock.now += 10
    assert duty.step() == output.IDLE_S
    duty.follow(True)
    assert duty.step() == output.FOLLOW_S
    assert shipped == [1000.0, 1010.0], "a reader does not wait for the rest of the five minutes"

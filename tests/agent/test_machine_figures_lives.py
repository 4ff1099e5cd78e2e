"""Real agents on machines with fake cards: the checks before the command, its environment, the figures in beats."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from supervisor.agent.machine.command import THREAD_POOLS, thread_caps
from supervisor.contract import heartbeat
from supervisor.contract.beat_telemetry import Telemetry, decode, encode
from supervisor.contract.heartbeat import Beat
from tests.acceptance.cgroups import ENTER, cpu_group
from tests.agent.machine_rig import Rig
from tests.agent.nvml_library import build


def telemetry_of(beat: Beat) -> Telemetry:
    """Empty when the beat has no telemetry."""
    return decode(beat.telemetry) or Telemetry()


TELL = """
import json, os, sys
names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTHONUNBUFFERED", "OMP_NUM_THREADS")
values = {name: os.environ.get(name) for name in names}
values["stdin"] = sys.stdin.read()
values["stdin_is"] = os.readlink("/proc/self/fd/0")
print("VALUES " + json.dumps(values))
open(os.environ["SPOT_RESULTS_DIR"] + "/values.json", "w").write(json.dumps(values))
"""


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two cards of a fake library; the driver does not name their device files."""
    folder = tmp_path / "driver"
    folder.mkdir()
    build(folder)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def refused(rig: Rig) -> Beat:
    """The last beat of an agent that did not start the command."""
    last = rig.ended()
    assert (last.left, last.exit, last.phase) == (heartbeat.NO_GPU, None, heartbeat.FINISHED)
    assert rig.baton.done is None
    assert rig.baton.holder is not None
    assert rig.baton.holder.left
    assert f"spot: {last.message}" in rig.log().decode()
    assert "began" not in rig.log().decode()
    return last


def test_with_fewer_cards_than_promised_no_training_starts(rig: Rig, cards: pytest.MonkeyPatch) -> None:
    cards.setenv("FAKE_NVML_MINORS", "1")
    cards.setenv("FAKE_NVML_CARDS", "1")
    rig.start("echo", "began", gpus=2)
    device = "/dev/nvidia0"
    if Path(device).exists():
        pytest.skip("this machine has a card of its own")
    assert refused(rig).message == (f"2 GPUs promised, 0 can be opened: {device}: No such file or directory")


def test_assigned_cards_that_are_missing_are_named(rig: Rig, cards: pytest.MonkeyPatch) -> None:
    rig.start("echo", "began", gpus=2, gpu_ids=["GPU-fake-0", "GPU-fake-5"])
    assert refused(rig).message == (
        "2 GPUs promised, 1 can be opened: GPU GPU-fake-5: nvmlDeviceGetHandleByUUID: not found"
    )


def test_without_a_driver_no_training_starts_on_the_cpu(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "libnvidia-ml.so.1"
    empty.write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    rig.start("echo", "began", gpus=1)
    assert "1 GPU promised, 0 can be opened: " in refused(rig).message


def test_the_command_sees_its_own_cards_and_beats_show_them(rig: Rig, cards: pytest.MonkeyPatch) -> None:
    waits = "until [ -e go ]; do sleep 0.05; done"
    rig.start("sh", "-c", waits, gpus=1, gpu_ids=["GPU-fake-1"], env={"CUDA_VISIBLE_DEVICES": "0,1"})
    trains = rig.beat_with("its processes", lambda b: telemetry_of(b).tree is not None)
    tree = telemetry_of(trains).tree
    assert tree is not None
    assert (tree.processes or 0) >= 1
    assert (tree.rss_bytes or 0) > 1e5
    rig.go()
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 0
    telemetry = telemetry_of(last)
    assert telemetry is not None
    assert telemetry.gpus is not None
    assert telemetry.gpus.util_pct == (91.0,)
    assert telemetry.gpus.power_w == ()
    assert telemetry.log_bytes is not None
    assert telemetry.checkpoints_disk is not None
    assert len(encode(telemetry)) < 2048
    assert {b.boot_id for b in rig.server.beats} == {Path("/proc/sys/kernel/random/boot_id").read_text().strip()}


def seen_by_command(rig: Rig, **job: object) -> dict[str, str | None]:
    rig.start(sys.executable, "-c", TELL, **job)
    rig.ended()
    line = next(line for line in rig.log().decode().splitlines() if line.startswith("VALUES "))
    values: dict[str, str | None] = json.loads(line.removeprefix("VALUES "))
    return values


def test_the_environment_of_a_command_with_its_own_cards(rig: Rig, cards: pytest.MonkeyPatch) -> None:
    env_seen = seen_by_command(rig, gpus=2, gpu_ids=["GPU-fake-1", "GPU-fake-0"], env={"PYTHONUNBUFFERED": ""})
    assert env_seen["CUDA_VISIBLE_DEVICES"] == "GPU-fake-1,GPU-fake-0"
    assert env_seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env_seen["PYTHONUNBUFFERED"] == "1"
    assert (env_seen["stdin"], env_seen["stdin_is"]) == ("", "/dev/null")


def test_a_machine_without_cards_sees_none_whatever_the_run_asks_for(rig: Rig) -> None:
    env_seen = seen_by_command(rig, gpus=0, gpu_ids=[], env={"CUDA_VISIBLE_DEVICES": "0"})
    assert env_seen["CUDA_VISIBLE_DEVICES"] == ""


def test_where_no_card_is_promised_nothing_is_checked_or_set(rig: Rig, cards: pytest.MonkeyPatch) -> None:
    cards.setenv("FAKE_NVML_CARDS", "0")
    env_seen = seen_by_command(rig, env={"OMP_NUM_THREADS": "3"})
    assert env_seen["CUDA_VISIBLE_DEVICES"] is None
    assert env_seen["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("quota", "cores", "threads"),
    [(None, 64, None), (3.5, 64, "3"), (0.25, 64, "1"), (1.0, 2, "1"), (2.0, 2, None), (8.0, 2, None)],
)
def test_the_number_of_threads_is_our_share_of_the_cpu(
    quota: float | None, cores: int, threads: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        added = thread_caps({"PATH": "/bin"}, quota, cores)
    assert added == ({} if threads is None else dict.fromkeys(THREAD_POOLS, threads))
    assert len(caplog.records) == (threads is not None)


def test_a_command_in_a_real_control_group_starts_no_more_threads_than_it_may_run(rig: Rig) -> None:
    with cpu_group(f"spot-agent-{os.getpid()}", cores=0.7) as group:
        if group is None:
            pytest.skip("no control group can be made here; test_cgroup holds the recorded figures")
        rig.wrapper = ("sh", "-c", ENTER, str(group))
        rig.start("sh", "-c", "env | grep _NUM_THREADS= | sort", env={"MKL_NUM_THREADS": "5"})
        last = rig.ended(90)
        assert last.exit is not None
        assert last.exit.code == 0, rig.console
        assert rig.log().decode().split() == [
            "MKL_NUM_THREADS=5", "NUMEXPR_NUM_THREADS=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"
        ]  # fmt: skip


def test_a_number_of_threads_that_the_user_has_set_stays() -> None:
    env = {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": ""}
    assert thread_caps(env, 2.0, 64) == dict.fromkeys(THREAD_POOLS[1:], "2")
    assert thread_caps(dict.fromkeys(THREAD_POOLS, "9"), 2.0, 64) == {}


def test_an_agent_without_telemetry_is_understood() -> None:
    """An older version: nothing is known, which is not zero."""
    old = Beat("digits-7", 1, "1.1.1", "m", "b", 1, "training")
    assert heartbeat.parse(heartbeat.encode(old)).telemetry == ""
    assert heartbeat.parse(b'{"run_id":"digits-7","attempt":1,"launch_id":"1.1.1","phase":"training",'
                           b'"telemetry":{}}').telemetry == "{}"  # fmt: skip

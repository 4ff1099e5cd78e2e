"""What a look at the command's processes reads, on real ones; and one whole life whose windows are short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_uint
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.facts.start import Mount, mounted_as
from supervisor.agent.facts.work import read_work
from supervisor.agent.machine import gpus
from supervisor.agent.machine.cgroup import OwnCgroup, host_io_pressure
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.slow import SlowWatch, Wanted
from supervisor.contract import runfiles, signs
from supervisor.contract.beat_telemetry import Gpus, Telemetry
from supervisor.contract.heartbeat import TRAINING
from supervisor.contract.signs import Slow, decode
from supervisor.lifecycle.diagnosis.diagnose import findings
from supervisor.lifecycle.diagnosis.reading import of_document
from tests.acceptance.cgroups import cpu_group
from tests.agent.bench import IDENTITY, job
from tests.agent.machine_rig import RUN, Rig
from tests.agent.nvml_library import build
from tests.agent.nvml_stub import NvmlStub, reader
from tests.waiting import wait_for

NO_CARDS = reader(NvmlStub(()))
ALL = Wanted(runnable=True, downloads=True, mount=True)
POOL = r"""
import multiprocessing, os, sys
def read(path):
    os.write(1, b"up\n")
    while True:
        with open(path, "rb", buffering=0) as data:
            while data.read(512): pass
def main():
    context = multiprocessing.get_context(sys.argv[1])
    pool = [context.Process(target=read, args=(sys.argv[2],), daemon=True) for _ in range(2)]
    [worker.start() for worker in pool]
    sys.stdin.read()
if __name__ == "__main__":
    main()
"""


@contextmanager
def pool(folder: Path, how: str, data: Path) -> Iterator[list[int]]:
    script = folder / "pool.py"
    script.write_text(POOL)
    with subprocess.Popen(
        [sys.executable, str(script), how, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as main:
        try:
            assert main.stdout is not None
            assert [main.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
            yield [main.pid, *_below(main.pid)]
        finally:
            main.kill()
            for pid in _below(main.pid):
                os.kill(pid, 9)


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [below for child in map(int, children) for below in (child, *_below(child))]


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_the_workers_of_a_pool_and_their_reads(tmp_path: Path, how: str) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(64 << 10))
    with pool(tmp_path, how, data) as pids:
        before = read_work(pids, Wanted(), OwnCgroup(), NO_CARDS)
        wait_for(lambda: sum(calls for calls, _ in read_work(pids, Wanted(), OwnCgroup(), NO_CARDS).reads.values())
                 > sum(calls for calls, _ in before.reads.values()) + 2000, 30, "reads")  # fmt: skip
        after = read_work(pids, ALL, OwnCgroup(), NO_CARDS)
    assert (len(after.workers), after.main) == (2, pids[0])
    calls, read = (sum(after.reads[pid][n] - before.reads[pid][n] for pid in after.workers) for n in (0, 1))
    assert read / calls < 600
    assert set(after.cpu_s) == set(pids)
    assert after.runnable is not None
    assert after.downloads == {}
    assert (before.runnable, before.downloads, before.mount) == (None, None, "")


def test_a_process_that_ended_costs_nothing_but_itself() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    work = read_work([ended.pid, os.getpid()], ALL, OwnCgroup(), NO_CARDS)
    assert list(work.cpu_s) == [os.getpid()]
    assert work.workers == []


def test_an_unfinished_file_that_is_open(tmp_path: Path) -> None:
    name = tmp_path / "model.safetensors.incomplete"
    with name.open("wb") as target:
        target.write(b"weights")
        target.flush()
        assert read_work([os.getpid()], ALL, OwnCgroup(), NO_CARDS).downloads == {str(name): 7.0}


def test_the_kind_of_a_mount(tmp_path: Path) -> None:
    def mount(kind: str, device: str = "0:40") -> Mount:
        return Mount("/data", kind, "x", False, device)

    for disk, rotates in (("sda", "1"), ("sdb", "0"), ("vda", "1")):
        queue = tmp_path / "devices" / disk / "queue"
        queue.mkdir(parents=True)
        (queue / "rotational").write_text(rotates + "\n")
        (queue.parent / f"{disk}1").mkdir()
    blocks = tmp_path / "dev" / "block"
    blocks.mkdir(parents=True)
    for number, place in (("8:0", "sda"), ("8:1", "sda/sda1"), ("8:17", "sdb/sdb1"), ("252:0", "vda")):
        (blocks / number).symlink_to(tmp_path / "devices" / place)
    kinds = {
        device: mounted_as(mount("ext4", device), str(tmp_path))
        for device in ("8:0", "8:1", "8:17", "252:0", "9:9")
    }  # fmt: skip
    assert kinds == {"8:0": "hdd", "8:1": "hdd", "8:17": "ext4", "252:0": "ext4", "9:9": "ext4"}
    assert mounted_as(mount("fuse.gcsfuse"), str(tmp_path)) == "fuse.gcsfuse"
    assert mounted_as(mount("fuse.fuse-overlayfs"), str(tmp_path)) == mounted_as(None) == ""


def test_periods_of_a_quota_and_the_pressure_of_the_host(tmp_path: Path) -> None:
    pressure = tmp_path / "io"
    pressure.write_text("some avg10=41.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0 avg300=0 total=1\n")
    assert host_io_pressure(str(pressure)) == 41.5
    assert host_io_pressure(str(tmp_path / "missing")) is None


# --- memory of a card that others use ---------------------------------------------------------------------------------


def processes(rows: dict[int, int], code: int = 0) -> Any:
    def tell(card: Any, count: Any, table: Any) -> int:
        for row, (pid, used) in zip(table, rows.items(), strict=False):
            row.pid, row.used = pid, used
        count._obj.value = len(rows)
        assert isinstance(count._obj, c_uint)
        return code

    return tell


@pytest.mark.parametrize(
    ("rows", "code", "others"),
    [
        ({7: 2**30, 8: 3 * 2**30}, 0, 3.0 * 2**30),
        ({7: 2**30}, 0, 0.0),
        ({}, 0, 0.0),
        ({7: 2**30, 8: 2**64 - 1}, 0, None),  # the driver does not know how much
        ({7: 2**30, 8: 2**30}, 7, None),  # more processes than we read
    ],
)
def test_what_strangers_use_of_a_card(
    rows: dict[int, int], code: int, others: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = reader(NvmlStub((0,), nvmlDeviceGetComputeRunningProcesses_v3=processes(rows, code)))
    cards.count()
    monkeypatch.setattr(gpus, "_sees_all_pids", lambda: True)
    assert cards.others_bytes({7}) == others
    monkeypatch.setattr(gpus, "_sees_all_pids", lambda: False)
    assert cards.others_bytes({7}) is None, "in a container our own processes have other pids"


def test_an_older_driver_does_not_say_who_uses_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = reader(NvmlStub((0,)))
    cards.count()
    monkeypatch.setattr(gpus, "_sees_all_pids", lambda: True)
    assert cards.others_bytes({7}) is None


# --- real ones --------------------------------------------------------------------------------------------------------


def test_more_processes_than_a_real_quota_runs() -> None:
    """The figures of a real control group, through windows of a second."""
    with cpu_group(f"spot-slow-{os.getpid()}", 0.02) as group:
        if group is None:
            pytest.skip("no control group can be made here; test_slow holds the figures")
        hog = 'echo $$ > "$0/cgroup.procs"; for _ in 1 2 3; do while :; do :; done & echo; done; cat'
        with subprocess.Popen(
            ["sh", "-c", hog, str(group)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as main:
            try:
                assert main.stdout is not None
                assert main.stdout.read(3) == b"\n\n\n"
                slow = _watched(main.pid, OwnCgroup(f"/proc/{main.pid}"))
            finally:
                (group / ("cpu.max" if (group / "cpu.max").exists() else "cpu.cfs_quota_us")).write_text("100000")
                os.killpg(main.pid, 9)
    threads, quota, share, util = slow.figures
    assert (quota, util) == (0.02, 7.0)
    assert (threads or 0) >= 1
    assert (share or 0) > 0.2


def _watched(pid: int, group: OwnCgroup) -> Slow:
    state = BeatState(job(), IDENTITY)
    state.update(phase=TRAINING)
    watch = SlowWatch(
        1.0,
        state,
        look=lambda wanted: read_work([pid, *_below(pid)], wanted, group, NO_CARDS),
        host_io=lambda: None,
        monotonic=time.monotonic,
    )

    def threads() -> Slow | None:
        watch.add(Telemetry(cgroup=group.read(), gpus=Gpus(util_pct=(7.0,))))
        return next((slow for slow in watch.signs().get("slow", ()) if slow.word == signs.THREADS), None)

    return wait_for(threads, 60, "too many threads")


SMALL_READS = """
import multiprocessing, os, time, spot_progress
def read():
    while True:
        with open(__file__, "rb", buffering=0) as data:
            while data.read(8): pass
        time.sleep(0.002)
worker = multiprocessing.get_context("fork").Process(target=read, daemon=True)
worker.start()
step = 0
while not os.path.exists("go"):
    spot_progress.report(step)
    step += 1
    time.sleep(0.2)
"""


def test_one_life_of_a_command_that_reads_small_pieces(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its beats say so, and so does the diagnosis of its evidence."""
    folder = tmp_path / "driver"
    folder.mkdir()
    build(folder)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("FAKE_NVML_UTIL", "7")
    script = tmp_path / "train.py"
    script.write_text(SMALL_READS)
    rig.start(sys.executable, str(script), gpus=2, slow_s=4.0)
    beat = rig.beat_with("small reads", lambda b: '"small_files"' in b.signs, 60)
    rig.go()
    rig.ended()
    [slow] = [slow for slow in decode(beat.signs).slow if slow.word == signs.SMALL_FILES]
    reads, size, _ = slow.figures
    assert (reads or 0) > 1000
    assert (size or 0) < 1024
    document = {"agent": json.loads(rig.store.get(runfiles.agent_evidence(RUN, 1))[0])}
    assert document["agent"]["windows"]["window.gpu_util"] == pytest.approx(7.5)
    [hint] = [verdict for verdict in findings(of_document(document)) if verdict.rule == "U25.small_files"]
    assert "reads a second" in hint.sentence
    assert [remedy.word for remedy in hint.remedies] == ["shard_files"]

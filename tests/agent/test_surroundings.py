"""What is looked at around a command: kills for memory and whose they are, errors of cards, the start, processes and
files. Figures of this computer, of recorded groups, and of a disk made of memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.facts import looks, start
from supervisor.agent.facts.looks import Looks, Surroundings, files_of, largest_folders, tree_rows
from supervisor.agent.facts.start import mounts_of, ranges, start_facts
from supervisor.agent.machine.cgroup import OomWatch, OwnCgroup
from supervisor.agent.machine.command import Training
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.nvml import MAX_XIDS, Nvml
from supervisor.agent.machine.processes import is_of_machine
from supervisor.contract import runfiles, signs
from tests.acceptance.cgroups import ENTER, memory_group
from tests.agent.bench import RUN, ManualClock, job
from tests.agent.machine_rig import Rig
from tests.agent.nvml_library import build
from tests.agent.nvml_stub import NvmlStub, no_library, reader
from tests.waiting import wait_for

TREES = Path(__file__).with_name("cgroups")
V1, V2 = "v1-pod/root/sys/fs/cgroup/memory", "v2-container/root/sys/fs/cgroup"


class Group:
    """A recorded group whose counter and processes a test sets. `ours`: processes of this machine."""

    def __init__(self, folder: Path, top: str) -> None:
        name = top.partition("/")[0]
        shutil.copytree(TREES / name, folder / name)
        self.folder = folder / top
        self.counter = self.folder / ("memory.oom_control" if top == V1 else "memory.events")
        self.clock, self.ours = ManualClock(), {7}
        own = OwnCgroup(str(folder / name), str(folder / name / "root"))
        self.watch = OomWatch(own, self.clock, lambda pid: pid in self.ours)
        self.set(4, 7)

    def set(self, kills: int, *pids: int) -> None:
        self.counter.write_text(f"oom_kill_disable 0\noom_kill {kills}\n")
        (self.folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


@pytest.mark.parametrize("top", [V1, V2])
def test_when_the_kernel_killed_and_whose_process_it_may_have_been(tmp_path: Path, top: str) -> None:
    group = Group(tmp_path, top)
    watch, facts = group.watch, group.watch.facts
    assert watch.kills() is None, "without a figure of the start there is no difference"
    watch.begin()
    assert (watch.kills(), watch.rose_up_s, watch.shared) == (0, None, False)
    group.set(5, 7, 8)
    group.ours.add(8)  # a worker
    group.clock.now = 1500.0
    assert watch.read().oom_kills == 5
    group.clock.now = 9000.0
    group.set(5, 7)
    watch.read()
    assert (watch.kills(), watch.rose_up_s, watch.shared) == (1, 1500.0, False), "an older kill keeps its time"
    group.counter.unlink()
    assert watch.kills() is None, "could not read is not zero"
    for pids in ((7, 99), (7,)):
        group.set(6, *pids)
        watch.read()
    assert [facts()[name] for name in ("before", "after", "rose_up_s")] == [4, 6, 9000.0]
    assert facts()["shared"] is True, "a neighbor counts even when it is gone: it may be the killed one"
    watch.begin()
    assert watch.rose_up_s is None
    (group.folder / "cgroup.procs").unlink()
    watch.shared = None
    watch.read()
    assert watch.shared is None, "unknown"


def test_processes_below_our_group_count_in_version_2_only(tmp_path: Path) -> None:
    for top, shared in ((V2, True), (V1, False)):
        group = Group(tmp_path / top[:2], top)
        (group.folder / "job").mkdir()
        (group.folder / "job" / "cgroup.procs").write_text("99\n")
        group.watch.begin()
        assert group.watch.shared is shared


def test_a_process_is_ours_by_descent_or_by_the_mark_of_the_machine() -> None:
    marker = "SPOT_MACHINE_DIR=/nowhere/m"
    stranger, marked = orphan(""), orphan("/nowhere/m")
    try:
        with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
            assert is_of_machine(child.pid, marker)
            child.kill()
        assert is_of_machine(os.getpid(), marker)
        assert is_of_machine(1, marker), "the first one of a container"
        assert is_of_machine(2**22 + 1, marker), "it has ended"
        assert not is_of_machine(0, marker), "of another process namespace"
        assert not is_of_machine(stranger, marker)
        assert is_of_machine(marked, marker)
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.kill(marked, signal.SIGKILL)


def orphan(machine: str) -> int:
    """A process without a living parent, in a session of its own."""
    code = "import subprocess as s; print(s.Popen(['sleep', '60'], start_new_session=True, stdout=s.DEVNULL).pid)"
    env = {**os.environ, "SPOT_MACHINE_DIR": machine}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


# --- cards --------------------------------------------------------------------------------------------------------


class Cards(NvmlStub):
    """Two cards: their Xid events, and the memory that is in use on them."""

    def __init__(self, *used_gib: float) -> None:
        super().__init__()
        self.events: list[tuple[int, int]] = []
        self.used_gib = used_gib

    def nvmlEventSetCreate(self, pointer: Any) -> int:  # noqa: N802
        pointer._obj.value = 7
        return 0

    def nvmlDeviceRegisterEvents(self, *_: Any) -> int:  # noqa: N802
        return 0

    def nvmlEventSetWait_v2(self, events: Any, pointer: Any, milliseconds: Any) -> int:  # noqa: N802
        if not self.events:
            return 10
        pointer._obj.device, pointer._obj.data = self.events.pop(0)
        return 0

    def nvmlDeviceGetMemoryInfo(self, card: Any, pointer: Any) -> int:  # noqa: N802
        pointer._obj.total, pointer._obj.used = 24 << 30, int(self.used_gib[card.value - 100] * 2**30)
        return 0


def test_each_error_of_a_card_keeps_its_time_and_a_flood_replaces_none_of_the_hardware() -> None:
    library, clock = Cards(0.0, 0.0), ManualClock()
    cards = reader(library, monotonic=clock)
    library.events = [(101, 94)]
    cards.read()
    clock.now += 3600
    library.events = [(100, 13), (100, 13), (101, 94)]
    cards.read()
    assert cards.xids() == ((1, 94, 1000.0), (0, 13, 4600.0), (1, 94, 4600.0))
    nvml = Nvml(library, clock)
    handles = [nvml.card("0"), nvml.card("1")]
    for handle in handles:
        nvml.watch(handle)
    library.events = [(101, 79)]
    for _ in range(100):
        nvml.read(handles)
        clock.now += 10
        library.events = [(100, 31)]
    assert len(nvml.xid_events) == MAX_XIDS
    assert nvml.xid_events[0][:2] == (101, 79)
    told = looks.telling_xids([(0, 79, 1.0), *((1, 31, float(at)) for at in range(2, 40)), (1, 94, 40.0)])
    assert (len(told), told[0], told[-1]) == (8, (0, 79, 1.0), (1, 94, 40.0))


class Around:
    """Surroundings of a machine with two cards."""

    def __init__(self, folder: Path, *used_gib: float) -> None:
        self.folder = MachineFolder(str(folder / "machine"))
        self.folder.prepare()
        self.library = Cards(*used_gib)
        self.cards = reader(self.library, monotonic=lambda: 500.0) if used_gib else reader(None, load=no_library)
        group = Group(folder, V2)
        self.now = Surroundings(job(), self.folder, gpus=self.cards, oom=group.watch, training=Training())


def test_what_may_decide_is_told_only_where_it_is_notable(tmp_path: Path) -> None:
    around = Around(tmp_path, 0.9, 3.0)
    around.now.before("/", {})
    assert around.now.signs() == {"held": ((1, 3.0 * 2**30),)}, "a driver itself may use less than a GiB"
    around.library.events = [(101, 79)]
    around.now.at_end(failed=True)
    assert around.now.signs()["xids"] == ((1, 79, 500.0),), "of the last seconds before the end"
    around.now.oom.rose_up_s = 300.0
    assert around.now.signs()["oom_rose_up_s"] == 300.0
    assert around.now.signs()["oom_shared"] is False
    part = json.loads(json.dumps(around.now.part()))
    assert part["cards_before"] == [[0, int(0.9 * 1024) << 20, 24 << 30], [1, 3 << 30, 24 << 30]]
    assert part["xids"] == [[1, 79, 500.0]]
    assert part["oom"]["rose_up_s"] == 300.0
    assert part["start"]["cores"] == len(os.sched_getaffinity(0))
    assert part["files"]["complete"]

    (tmp_path / "quiet").mkdir()
    quiet = Around(tmp_path / "quiet", 0.2, 0.2)
    quiet.now.before("/", {})
    quiet.now.at_end(failed=False)
    assert quiet.now.signs() == {}
    assert (quiet.now.part()["tree"], quiet.now.part()["files"]) == ([], None), "a success is not looked at"


# A worker that needs more than the group may have; its main process does not.
GREEDY = """
import os, sys, time
worker = os.fork()
if worker == 0:
    block = bytearray(1 << 30)
    os._exit(0)
_, status = os.waitpid(worker, 0)
open(os.path.join(os.environ["SPOT_CHECKPOINT_DIR"], "step-1.tmp"), "w").write("half")
sys.exit("RuntimeError: DataLoader worker (pid %d) is killed by signal: Killed." % worker)
"""


def test_a_real_kill_for_memory_beside_cards_that_others_use(rig: Rig, tmp_path: Path) -> None:
    build(tmp_path)
    with memory_group(f"spot-agent-{os.getpid()}") as group, pytest.MonkeyPatch.context() as patch:
        if group is None:
            pytest.skip("no control group can be made here; recorded ones are read above")
        patch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        rig.wrapper = ("sh", "-c", ENTER, str(group))
        rig.start(sys.executable, "-S", "-c", GREEDY)
        last = rig.ended(60)
        end, told = last.exit, signs.decode(last.signs)
        assert end is not None
        assert (end.code, end.oom_kills) == (1, 1), rig.console
    part = json.loads(rig.store.get(runfiles.agent_evidence(RUN, 1))[0])
    oom = part["oom"]
    assert (oom["after"] - oom["before"], oom["shared"]) == (1, False)
    assert 0 < oom["rose_up_s"] <= part["exit"]["ran_s"] + 30
    assert (told.oom_rose_up_s, told.oom_shared) == (oom["rose_up_s"], False), "the beat carries what may decide"
    assert [list(xid) for xid in told.xids] == part["xids"]
    assert part["signs"]["oom"] == [oom["rose_up_s"], False], "and the evidence, stored before it"
    assert len(part["cards_before"]) == 2
    assert {code for _, code, _ in part["xids"]} <= {13, 79}
    assert part["start"]["mounts"]["checkpoints"]["kind"]
    assert part["start"]["command_python"] == sys.executable
    assert part["files"]["unfinished_bytes"] == 4
    assert len(part["tree"]) <= 1, "only the probe of the facts may be there"


# --- deadlines ----------------------------------------------------------------------------------------------------


def test_a_reader_that_hangs_is_left_behind_alone_and_costs_its_own_facts_only() -> None:
    gate, starts = threading.Event(), []

    def hang() -> Any:
        starts.append(1)
        gate.wait(60)
        return "late"

    def fail() -> Any:
        raise OSError(5, "Input/output error")

    some = Looks()
    for name, look in (("hangs", hang), ("fails", fail), ("works", lambda: 7)):
        some.begin(name, 0.2, look)
    began = time.monotonic()
    assert [some.result(name) for name in ("hangs", "fails", "works", "other")] == [None, None, 7, None]
    assert 0.1 < time.monotonic() - began < 5
    some.begin("hangs", 5.0, hang)
    assert len(starts) == 1, "no second thread waits beside the first"
    gate.set()
    assert wait_for(lambda: some.result("hangs"), 10) == "late"


def test_neither_a_start_nor_an_end_waits_longer_than_its_deadlines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def hang(*_: Any, **more: Any) -> Any:
        gate.wait(60)

    for name in ("cards_before", "start_facts", "tree_rows", "files_of"):
        monkeypatch.setattr(looks, name, hang)
    for name in ("START_S", "CARDS_S", "TREE_S", "FILES_S"):
        monkeypatch.setattr(looks, name, 0.2)
    around = Around(tmp_path, 1.0, 1.0)
    began = time.monotonic()
    around.now.before("/", {})
    around.now.at_end(failed=True)
    part = around.now.part()
    assert time.monotonic() - began < 10
    gate.set()
    assert (part["cards_before"], part["start"], part["tree"], part["files"]) == ((), None, [], None)


# --- the start ----------------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:40 / /mnt/data ro,relatime - nfs4 server:/export ro,vers=4.2
24 22 0:41 / /mnt/data\\040two rw - tmpfs tmpfs rw,size=8m
25 22 0:42 / /mnt/data rw - fuse.gcsfuse bucket rw
torn
"""


def test_the_start_of_a_command(tmp_path: Path) -> None:
    folder = MachineFolder(str(tmp_path))
    folder.prepare()
    env = {"PATH": os.environ["PATH"], "CONDA_PREFIX": "/opt/conda", "VIRTUAL_ENV": ""}
    facts = start_facts(job(command=("python3", "x.py"), stage=("a",), stage_dir="/"), folder, str(tmp_path), env)
    assert (facts["conda_prefix"], facts["virtual_env"]) == ("/opt/conda", None)
    assert facts["agent_python"] == sys.executable
    assert facts["command_python"] == shutil.which("python3")
    assert set(facts["mounts"]) == {"checkpoints", "results", "scratch", "workdir", "data"}
    assert facts["mounts"]["data"]["point"] == "/"
    json.dumps(facts)
    assert [ranges({0, 1, 2, 8}), ranges({5}), ranges({1, 3, 4})] == ["0-2,8", "5", "1,3-4"]

    link = tmp_path / "link"
    link.symlink_to("/mnt/data two/x")
    roles = {"root": "/home/x", "data": "/mnt/data/set", "near": "/mnt/data-2", "link": str(link)}
    places = {role: (m["kind"], m["read_only"]) for role, m in mounts_of(roles, MOUNTS).items()}
    assert places == {
        "root": ("ext4", False), "data": ("fuse.gcsfuse", False), "near": ("ext4", False), "link": ("tmpfs", False),
    }  # fmt: skip
    assert mounts_of({"data": "/mnt/data"}, MOUNTS.rpartition("25")[0])["data"]["read_only"]
    assert mounts_of(roles, "") == {}


# --- processes and files ------------------------------------------------------------------------------------------


def test_processes_with_their_threads_and_io() -> None:
    code = """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(1, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            [row] = wait_for(lambda: [r for r in tree_rows([child.pid, 2**22 + 1]) if len(r["threads"]) == 2])
        finally:
            child.kill()
    assert (row["pid"], row["parent"]) == (child.pid, os.getpid())
    assert row["rss_bytes"] > 1e6
    assert row["rchar"] > 0
    assert {thread[2] for thread in row["threads"]} <= {"S", "R"}
    assert row["threads"][0][0] == child.pid


def test_newest_files_unfinished_ones_and_the_folders_of_a_full_disk(small_disk: Path) -> None:
    for name, size in (("a.pt", 100), ("b.tmp", 2000), (".hidden", 30), ("deep/er/cache/x", 6 << 20)):
        path = small_disk / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    os.utime(small_disk / "a.pt", (time.time() + 50, time.time() + 50))
    files = files_of({"checkpoints": str(small_disk)}, str(small_disk), 0.0)
    assert (files["unfinished"], files["unfinished_bytes"], files["complete"]) == (2, 2030, True)
    assert files["newest"][0][:2] == [str(small_disk / "a.pt"), 100]
    assert "largest" not in files
    with suppress(OSError), (small_disk / "last").open("wb", buffering=0) as target:
        while True:
            target.write(b"x" * 65536)
    files = files_of({"checkpoints": str(small_disk)}, str(small_disk), 0.0)
    assert [folder for folder, _ in files["largest"]] == [str(small_disk), str(small_disk / "deep/er/cache")]
    assert all(size >= 6 << 20 for _, size in files["largest"])
    assert largest_folders(str(small_disk), (), time.monotonic() - 1) == ([], False)


def test_a_file_that_grows_during_the_look(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"x")
    timer = threading.Timer(0.1, lambda: path.write_bytes(b"x" * 11))
    timer.start()
    [row] = files_of({"results": str(tmp_path)}, str(tmp_path), 0.5)["newest"]
    timer.join()
    assert (row[1], row[3]) == (1, 10)
    assert start.held([(0, 2 << 30, 80 << 30)]) == (), "5 % of a large card is not much"

"""The agent's control group, from recorded trees of machines (cgroups/) and from this machine's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.contract.beat_telemetry import Cgroup

TREES = Path(__file__).with_name("cgroups")
GIB = 2.0**30
SEEN = {
    "v2-container": Cgroup(4 * GIB, 30 * GIB, 2, 3.5, 12.5, 12.34, 0.5, 41.0),
    # Its own limits are "max"; those of the slice above it count.
    "v2-slice": Cgroup(1_000_000_000.0, 16 * GIB, 0, 1.5),
    "v1-pod": Cgroup(5 * GIB, 8 * GIB, 1, 0.5, 2.5),
    # The host's path is not there: the mount point is the group. An older kernel counts no kills.
    "v1-hidden": Cgroup(100 * 2.0**20),
    "hybrid": Cgroup(0.0, 4 * GIB, 0, 2.0, None, 3.0),
}


def own(tree: Path) -> OwnCgroup:
    return OwnCgroup(str(tree), str(tree / "root"))


@pytest.mark.parametrize("name", sorted(SEEN))
def test_every_kind_of_machine_is_read(name: str) -> None:
    assert own(TREES / name).read() == SEEN[name]
    assert set(SEEN) == {tree.name for tree in TREES.iterdir()}


def test_kills_are_counted_again_at_each_reading(tmp_path: Path) -> None:
    shutil.copytree(TREES / "v2-container", tmp_path / "tree")
    group = own(tmp_path / "tree")
    events = tmp_path / "tree" / "root" / "sys" / "fs" / "cgroup" / "memory.events"
    assert group.oom_kills() == 2
    events.write_text(events.read_text().replace("oom_kill 2", "oom_kill 3"))
    assert group.oom_kills() == 3
    events.unlink()
    assert group.oom_kills() is None  # could not read is not zero


@pytest.mark.parametrize("text", ["", "max", "garbage 7 x\n\x00", "nan?", "-1", "0 0", "7" * 400 + " 0"])
def test_odd_files_are_absent_figures(tmp_path: Path, text: str) -> None:
    for name in SEEN:
        shutil.copytree(TREES / name, tmp_path / name)
        for path in (tmp_path / name / "root").rglob("*"):
            if path.is_file():
                path.write_text(text)
        cgroup = own(tmp_path / name).read()
        assert (cgroup.cpu_quota, cgroup.throttled_s, cgroup.cpu_pressure_pct, cgroup.oom_kills) == (None,) * 4


@pytest.mark.parametrize("text", ["", "0::/../../elsewhere\n", "x\n:::\n", "0:/"])
def test_odd_proc_files_give_no_group_or_the_mount_point(tmp_path: Path, text: str) -> None:
    shutil.copytree(TREES / "v2-container", tmp_path / "tree")
    (tmp_path / "tree" / "cgroup").write_text(text)
    assert own(tmp_path / "tree").read() in (Cgroup(), SEEN["v2-container"])
    (tmp_path / "tree" / "mountinfo").write_text("1 2 3\n - cgroup2\n" + text)
    assert own(tmp_path / "tree").read() == Cgroup()


def test_this_machine_can_be_read() -> None:
    """Whatever it has: figures within bounds, and the limit not below the used memory."""
    cgroup = OwnCgroup().read()
    assert all(figure is None or figure >= 0 for figure in cgroup)
    if cgroup.memory_bytes is not None and cgroup.memory_max_bytes is not None:
        assert cgroup.memory_bytes <= cgroup.memory_max_bytes
    assert OwnCgroup().oom_kills() == cgroup.oom_kills
    assert cgroup.cpu_quota is None or 0 < cgroup.cpu_quota <= 4 * (os.cpu_count() or 1)

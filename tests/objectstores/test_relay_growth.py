"""What a mirror keeps, and what it reads: no more with each save, each move and each run that was written off."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from supervisor.objectstores.mirror import KEPT_PASSES, forget_parts
from supervisor.ports.objectstore import ObjectInfo, StoreUnavailable
from supervisor.reconciler.acting import batonwork
from tests.objectstores.relay_world import CLOUD, LAB, OURS, RUN, RelayWorld, began

GPU1, GPU2 = LAB["gpu1"], LAB["gpu2"]


@pytest.fixture
def world(tmp_path: Path) -> RelayWorld:
    return RelayWorld(tmp_path)


def test_the_logs_of_all_runs_come_before_the_checkpoint_of_one(world: RelayWorld) -> None:
    agent = began(world)
    baton = batons.raise_next(batons.create(OURS, 1), "1.1.1", "nonce", holder_gone=True)
    batonwork.change(world.objects, "other", lambda before: before or baton)
    url = world.homes.settle("other", "1.1.1", GPU1, holder_gone=True)
    assert url is not None
    agent.save(30, size=100_000)
    FolderStore.at(url).put(runfiles.log_chunk("other", 1, 1), b"a line\n")
    host, call = world.hosts["gpu1"], world.hosts["gpu1"].call

    def cut(operation: str, values: Mapping[str, object], within_s: float) -> Mapping[str, object]:
        if values["method"] == "read" and "model.bin" in str(values["key"]):
            host.down = True
        return call(operation, values, within_s)

    host.call = cut  # type: ignore[method-assign]
    world.mirrors["gpu1"].copy()
    assert host.down
    assert world.own.get(runfiles.log_chunk("other", 1, 1))[0] == b"a line\n"


def test_a_save_checks_only_what_is_new(world: RelayWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, own = began(world), world.mirrors["gpu1"].own
    checked: list[str] = []
    stat = own.stat

    def noted(key: str) -> ObjectInfo:
        checked.append(key)
        return stat(key)

    monkeypatch.setattr(own, "stat", noted)
    for step in (30, 40, 50, 60):
        agent.save(step)
        world.mirrors["gpu1"].copy()
    world.whole()
    named = [key for key in checked if "/checkpoints/" in key]
    assert len(named) == len(set(named)) == 2 * 4
    copier = world.mirrors["gpu1"]._progress[f"{RUN}-1.1.1"].copier
    assert copier is not None
    assert len(copier._known_keys) == 3 * 4  # of each checkpoint: two files, a manifest and its content
    assert len(copier._manifests) == 3


def test_a_stay_that_was_written_off_is_not_read_in_each_pass(world: RelayWorld) -> None:
    began(world)
    host = world.hosts["gpu1"]
    host.down = True
    world.homes.write_off(RUN, "1.1.1", None)
    world.launch("1.2.1", CLOUD)
    host.down, host.machines = False, []
    host.calls.clear()
    for _ in range(KEPT_PASSES):
        world.mirrors["gpu1"].copy()
    assert host.calls.count("get") == 1
    assert host.calls.count("look") == 0


def test_a_launch_that_was_given_up_waits_for_no_holder_any_more(world: RelayWorld) -> None:
    began(world)
    for number in (2, 3, 4):
        with pytest.raises(StoreUnavailable, match="has not left yet"):
            world.launch(f"1.{number}.1", GPU2, holder_gone=False)
    assert [launch_id for launch_id, _ in world.homes._waits.values()] == ["1.4.1"]


def test_parts_of_runs_without_a_home_are_deleted_at_the_start(world: RelayWorld) -> None:
    began(world)
    parts = world.folder / "parts"
    for run_id in (RUN, "gone"):
        (parts / run_id).mkdir(parents=True)
        (parts / run_id / "part").write_bytes(b"x")
    forget_parts(world.own, parts)
    assert [path.name for path in parts.iterdir()] == [RUN], "its transfer goes on"
    world.launch("1.2.1", CLOUD)
    (parts / RUN).mkdir(exist_ok=True)
    (parts / RUN / "part").write_bytes(b"x")
    forget_parts(world.own, parts)
    assert list(parts.iterdir()) == []

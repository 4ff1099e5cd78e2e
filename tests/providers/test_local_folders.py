"""The folders of local machines: capacity, broken and foreign files, and what is kept when a machine has ended."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import Capacity, MachineState
from supervisor.host.files import Unreadable
from supervisor.host.folders import KEPT, Folders
from supervisor.ports.provider import CapacityInUse, LaunchRejected, MachineMissing, NoCapacity, ProviderUnavailable
from tests.contracts.provider_subject import ref
from tests.fakes.clock import FakeClock
from tests.providers.local_machines import LocalSubject, alive


def test_capacity_is_counted_over_living_machines_of_every_supervisor(local: LocalSubject) -> None:
    provider = local.provider = local.fresh(capacity={"local-a": 2, "local-b": 0, "local-c": None})
    first, second = local.request(run="one"), local.request(run="two", supervisor_id="supervisor-two")
    local.up(first)
    local.up(second)
    assert provider.machines().capacity == Capacity(zones={"local-a": 0})
    with pytest.raises(CapacityInUse, match="our own machines use all capacity of local-a"):
        provider.launch(local.request(run="three"))
    with pytest.raises(NoCapacity, match="local-b has no capacity for any machine"):
        provider.launch(local.request(run="three", zone=1))
    local.up(local.request(run="three", zone=2))
    provider.preempt(ref(first), 0.0)
    local.up(local.request(run="four"))


def test_the_whole_computer_may_be_limited_too(local: LocalSubject) -> None:
    provider = local.provider = local.fresh(most=2)
    first = local.request(run="one")
    local.up(first)
    local.up(local.request(run="two", zone=1))
    assert provider.machines().capacity == Capacity(machines=0)
    with pytest.raises(CapacityInUse, match="our own machines use all capacity of this computer"):
        provider.launch(local.request(run="three", zone=2))
    provider.release(ref(first))
    assert provider.machines().capacity == Capacity(machines=1)
    local.up(local.request(run="three", zone=2))


def test_a_stock_out_outlives_the_supervisor_and_ends_by_itself(local: LocalSubject) -> None:
    request, clock = local.request(), FakeClock()
    local.fresh(clock=clock).stockout(["local-a"], 60.0)
    clock.advance(59.0)
    with pytest.raises(NoCapacity):
        local.fresh(clock=clock).launch(request)
    clock.advance(2.0)
    assert local.fresh(clock=clock).launch(request).machine_id


def test_a_torn_list_of_stock_outs_is_not_taken_for_none(local: LocalSubject) -> None:
    (local.data_dir / "local" / "stockouts.json").write_text('{"local-a": "soon"}')
    with pytest.raises(ProviderUnavailable, match="stockouts"):
        local.provider.launch(local.request())
    assert local.provider.machines().machines == ()


def test_ten_machines_of_another_supervisor_are_told_as_theirs(local: LocalSubject) -> None:
    """An empty database with a full data folder."""
    theirs = [local.request(run=f"run-{n}", supervisor_id="supervisor-two") for n in range(10)]
    for request in theirs:
        local.up(request)
    listing = local.fresh().machines()
    assert sorted(m.name for m in listing.machines) == sorted(request.name for request in theirs)
    assert {(m.supervisor_id, m.state) for m in listing.machines} == {("supervisor-two", MachineState.UP)}


@pytest.mark.parametrize("paper", ["job.json", "agent.json", "notice.json"])
def test_a_torn_paper_makes_its_zone_unknown(local: LocalSubject, paper: str) -> None:
    request, other = local.request(), local.request(run="other", zone=1)
    local.up(request)
    stays = local.up(other)
    (local.folder(request) / paper).write_text('{"pid": ')
    listing = local.provider.machines()
    assert (listing.machines, listing.unreachable) == ((stays,), frozenset({"local-a"}))
    # A supervisor that never read it does not know its zone.
    assert local.fresh().machines().unreachable == frozenset({"local-a", "local-b", "local-c"})


def test_the_data_folder_may_be_reached_by_another_name(local: LocalSubject) -> None:
    request = local.scripted(local.request(), stray=True)
    local.up(request)
    stray = local.pids(request)["stray"]
    other_name = local.data_dir.parent / f"{local.data_dir.name}-link"
    other_name.symlink_to(local.data_dir)
    LocalSubject(other_name).provider.release(ref(request))
    assert not alive(stray)


def test_a_living_machine_without_its_job_is_not_absent(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    (local.folder(request) / "job.json").unlink()
    assert local.provider.machines().unreachable == frozenset({"local-a"})


def test_what_is_no_machine_is_passed_over(local: LocalSubject) -> None:
    request = local.request()
    machine = local.up(request)
    machines = local.data_dir / "machines"
    (machines / ".hidden").write_text("x")
    (machines / "an-empty-folder").mkdir()
    copy = machines / "a-copy"
    copy.mkdir()
    for paper in ("job.json", "agent.json"):
        (copy / paper).write_bytes((local.folder(request) / paper).read_bytes())
    listing = local.provider.machines()
    assert (listing.machines, listing.unreachable) == ((machine,), frozenset())
    copied = replace(request, name="a-copy")
    local.provider.release(ref(copied))
    local.provider.ask_to_stop(ref(copied))
    with pytest.raises(MachineMissing):
        local.provider.kill(ref(copied))
    with pytest.raises(LaunchRejected):
        local.provider.launch(copied)
    assert local.listed(request) == machine


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a\n"])
def test_a_name_that_leaves_the_folder_is_refused(local: LocalSubject, name: str) -> None:
    with pytest.raises(LaunchRejected, match="not a machine name"):
        local.provider.launch(replace(local.request(), name=name))


def test_machines_on_a_disk_of_their_own_are_put_away_too(local: LocalSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scratch disk at machines/: a folder cannot be renamed onto another file system."""
    request = local.scripted(local.request(), runs_s=0.0)
    local.provider.launch(request)
    local.gone(request)
    (local.folder(request) / "work").mkdir(exist_ok=True)
    rename = Path.rename

    def within_a_disk(self: Path, target: Path) -> Path:
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", within_a_disk)
    local.provider.release(ref(request))
    assert list(local.folder(request).parent.iterdir()) == []
    kept = local.data_dir / "local" / "released" / request.name
    assert {"job.json", "agent.json"} <= {path.name for path in kept.iterdir()} <= KEPT


def test_old_folders_are_put_away_and_only_the_last_hundred_kept(local: LocalSubject) -> None:
    request = local.scripted(local.request(), runs_s=0.0)
    local.provider.launch(request)
    local.gone(request)
    assert local.folder(request).exists()
    released = local.data_dir / "local" / "released"
    for number in range(120):
        (released / f"old-{number}").mkdir()
        os.utime(released / f"old-{number}", (number, number))
    local.fresh(dead_kept_s=0.0).machines()
    assert not local.folder(request).exists()
    kept = {path.name for path in released.iterdir()}
    assert len(kept) == 100
    assert request.name in kept
    assert "old-119" in kept
    assert "old-0" not in kept


def test_a_set_of_machines_has_one_name_wherever_it_is_moved(tmp_path: Path) -> None:
    name = Folders(tmp_path / "data", "local").scope()
    assert Folders(tmp_path / "data", "local").scope() == name
    (tmp_path / "data").rename(tmp_path / "moved")
    assert Folders(tmp_path / "moved", "local").scope() == name
    assert Folders(tmp_path / "other", "local").scope() != name


def test_an_empty_folder_takes_over_the_name_that_its_runs_know(tmp_path: Path) -> None:
    assert Folders(tmp_path / "data", "local").scope(lambda: "0a1b2c3d4e5f") == "0a1b2c3d4e5f"
    asked: list[str] = []
    assert Folders(tmp_path / "data", "local").scope(lambda: asked.append("?") or "ffffffffffff") == "0a1b2c3d4e5f"
    assert asked == [], "once named, it keeps its name, and nobody is asked"


def test_a_lost_name_is_not_made_up_again_beside_machines(tmp_path: Path) -> None:
    folders = Folders(tmp_path, "local")
    folders.scope()
    (tmp_path / "machines" / "spot-0a1b2c3d-a1-t1").mkdir()
    paper = tmp_path / "local" / "scope.json"
    kept = paper.read_text()
    for damaged in ("", "{", "[]", '{"scope": 7}', '{"scope": "two words"}'):
        paper.write_text(damaged)
        with pytest.raises(Unreadable):
            folders.scope()
    paper.unlink()
    with pytest.raises(Unreadable):
        folders.scope()
    paper.write_text(kept)
    assert folders.scope()

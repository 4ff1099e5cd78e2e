"""Staged files: whole and proven, or nothing is started; broken transfers continue; machines share what they have."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine import downloads
from supervisor.agent.machine.command import NotStarted
from supervisor.agent.machine.downloads import KEPT_S, Downloads, hub_folder, kept_files
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import StagedFile
from supervisor.agent.store.access import TRIES, GaveUp
from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from tests.agent.bench import ManualClock, job, patient
from tests.agent.file_server import FileServer
from tests.agent.machine_rig import Rig

CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv(downloads.SCRATCH, raising=False)
    monkeypatch.setattr(downloads, "PIECE_BYTES", 1000)
    server = FileServer()
    server.files["data"] = CONTENT
    yield server
    server.close()


class Machine:
    def __init__(self, files: FileServer, tmp_path: Path, name: str = "machine") -> None:
        self.folder = MachineFolder(str(tmp_path / name))
        self.kept = tmp_path / "host" / "staged"
        self.clock = ManualClock()
        self.reports: list[str] = []
        self.stage = StagedFile(files.url("data"), "sets/train.bin", SHA256)
        self.job: dict[str, Any] = {"stage_dir": str(tmp_path / "host")}

    def fetch(self, *, until: float = 1e9, bucket: "FolderStore | None" = None, **changes: Any) -> Path:
        """The file as the command finds it. `bucket`: what every address of a bucket leads to."""
        made = job(stage=(self.stage,), **{**self.job, **changes})
        agent = Downloads(made, self.folder, lambda _: bucket, patient(self.clock, until), self.reports.append)
        try:
            agent.fetch()
        finally:
            for lock in agent.locks:  # as at its end
                os.close(lock)
        return Path(self.folder.staged, self.stage.to)

    @property
    def part(self) -> Path:
        return self.kept / f"{SHA256}.part"


@pytest.fixture
def machine(files: FileServer, tmp_path: Path) -> Machine:
    return Machine(files, tmp_path)


def test_a_file_is_downloaded_once_on_a_machine(files: FileServer, machine: Machine, tmp_path: Path) -> None:
    assert machine.fetch().read_bytes() == CONTENT
    assert machine.reports[-1] == ""
    later = Machine(files, tmp_path, "later")
    assert later.fetch().read_bytes() == CONTENT
    assert files.asked == [""]
    assert not os.access(later.fetch(), os.W_OK) or os.geteuid() == 0, "another run uses it too"
    assert oct((machine.kept / SHA256).stat().st_mode)[-3:] == "444"


def test_a_transfer_continues_at_its_last_byte(files: FileServer, machine: Machine) -> None:
    files.cut_after = 4000
    assert machine.fetch().read_bytes() == CONTENT
    assert files.asked == ["", "bytes=4000-", "bytes=8000-"]


def test_the_next_attempt_continues_too(files: FileServer, machine: Machine) -> None:
    files.cut_after = 4000
    machine.clock.on_sleep = lambda: setattr(files, "cut_after", 0)
    with pytest.raises(GaveUp):
        machine.fetch(until=machine.clock.now + 20)
    assert machine.part.stat().st_size == 4000
    files.cut_after, files.asked = None, []
    assert machine.fetch().read_bytes() == CONTENT
    assert files.asked == ["bytes=4000-"]


def test_a_server_without_ranges_begins_again(files: FileServer, machine: Machine) -> None:
    machine.kept.mkdir(parents=True)
    machine.part.write_bytes(b"x" * 4000)
    files.ranges = False
    assert machine.fetch().read_bytes() == CONTENT


def test_a_part_of_another_content_is_thrown_away(files: FileServer, machine: Machine) -> None:
    machine.kept.mkdir(parents=True)
    machine.part.write_bytes(b"x" * len(CONTENT))  # nothing follows it: 416
    assert machine.fetch().read_bytes() == CONTENT
    assert files.asked == [f"bytes={len(CONTENT)}-", ""]


def test_another_content_is_never_given_to_the_command(files: FileServer, machine: Machine) -> None:
    files.files["data"] = CONTENT[:-1] + b"?"
    with pytest.raises(NotStarted, match=f"its sha256 is [0-9a-f]+, and not {SHA256} .downloaded {TRIES} times"):
        machine.fetch()
    assert not Path(machine.folder.staged, machine.stage.to).exists()
    assert not (machine.kept / SHA256).exists()


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_refusal_ends_the_attempt(files: FileServer, machine: Machine, status: int) -> None:
    files.answers = [status]
    with pytest.raises(NotStarted, match=f"sets/train.bin cannot be downloaded: .* responded {status}"):
        machine.fetch()


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_is_asked_again(files: FileServer, machine: Machine, status: int) -> None:
    files.answers = [status, status]
    assert machine.fetch().read_bytes() == CONTENT


def test_a_bucket_is_read_with_the_account_of_the_machine(machine: Machine, tmp_path: Path) -> None:
    store = FolderStore.create(tmp_path / "bucket")
    store.put("sets/data", CONTENT)
    machine.kept.mkdir(parents=True)
    machine.part.write_bytes(CONTENT[:5000])
    machine.stage = StagedFile("gs://bucket/sets/data", "x", SHA256)
    assert machine.fetch(bucket=store).read_bytes() == CONTENT
    machine.stage = StagedFile("gs://bucket/nothing", "x", "0" * 64)
    with pytest.raises(NotStarted, match="gs://bucket/nothing cannot be downloaded"):
        machine.fetch(bucket=store)


def test_no_server_decides_nothing(files: FileServer, machine: Machine) -> None:
    machine.stage = StagedFile("http://127.0.0.1:1/data", "x", SHA256)
    with pytest.raises(GaveUp):
        machine.fetch(until=machine.clock.now + 60)


def test_one_agent_downloads_and_the_others_wait(files: FileServer, machine: Machine) -> None:
    machine.kept.mkdir(parents=True)
    other = machine.part.open("ab")
    fcntl.flock(other, fcntl.LOCK_EX)

    def the_other_is_done() -> None:
        if not other.closed:
            other.write(CONTENT)
            other.close()
            machine.part.rename(machine.kept / SHA256)
            downloads._prove(str(machine.kept / SHA256))

    machine.clock.on_sleep = the_other_is_done
    assert machine.fetch().read_bytes() == CONTENT
    assert files.asked == []
    assert "another run on this machine downloads the same file" in machine.reports
    assert not machine.part.exists()


def test_a_file_that_a_run_has_written_to_is_downloaded_again(files: FileServer, machine: Machine) -> None:
    kept = machine.fetch().resolve()
    kept.chmod(0o644)
    kept.write_bytes(b"x" * len(CONTENT))
    assert machine.fetch().read_bytes() == CONTENT
    assert files.asked == ["", ""]


def test_what_nobody_uses_is_removed_after_a_while(files: FileServer, machine: Machine) -> None:
    machine.kept.mkdir(parents=True)
    old, unfinished, young, in_use = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
    ages_s = {old: KEPT_S + 60, unfinished: KEPT_S + 60, young: KEPT_S - 3600, in_use: KEPT_S + 60}
    for name, age_s in ages_s.items():
        (machine.kept / (name + (".part" if name == unfinished else ""))).write_bytes(b"x")
        lock = machine.kept / f"{name}.lock"
        lock.touch()
        at = lock.stat().st_mtime - age_s
        os.utime(lock, (at, at))
    with (machine.kept / f"{in_use}.lock").open() as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        machine.fetch()
    assert {path.name.partition(".")[0] for path in machine.kept.iterdir()} == {SHA256, young, in_use}


def test_the_fastest_disk_that_can_be_written_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, given = MachineFolder(str(tmp_path / "m")), job(stage_dir=str(tmp_path / "host"))
    nvme, scratch, no_folder = str(tmp_path / "nvme"), str(tmp_path / "scratch"), tmp_path / "file"
    no_folder.touch()
    fast = job(stage_dir=given.stage_dir, local_nvme=nvme)
    assert kept_files(fast, folder, {}) == f"{nvme}/spot/staged"
    assert hub_folder(fast) == f"{nvme}/spot/huggingface"
    unusable = job(stage_dir=given.stage_dir, local_nvme=str(no_folder))
    assert kept_files(unusable, folder, {downloads.SCRATCH: scratch}) == f"{scratch}/staged"
    assert hub_folder(unusable) is None
    assert kept_files(given, folder, {}) == f"{given.stage_dir}/staged"
    assert kept_files(job(), folder, {}) == folder.downloads


def test_the_command_finds_its_files(rig: Rig, files: FileServer, tmp_path: Path) -> None:
    """The agent as a process."""
    files.cut_after = 4000
    stage = [{"from": files.url("data"), "to": "sets/train.bin", "sha256": SHA256}]
    command = 'cp "$SPOT_STAGE_DIR/sets/train.bin" "$SPOT_RESULTS_DIR/seen"; echo $HF_HOME > "$SPOT_RESULTS_DIR/hub"'
    rig.start("sh", "-c", command, stage=stage, local_nvme=str(tmp_path / "nvme"))
    beat = rig.ended()
    assert beat.exit is not None, rig.console
    assert beat.exit.code == 0, rig.console
    results = runfiles.results("digits-7", 1)
    assert rig.store.get(results + "seen")[0] == CONTENT
    assert rig.store.get(results + "hub")[0].decode().strip() == str(tmp_path / "nvme" / "spot" / "huggingface")


def test_a_missing_file_is_named(rig: Rig, files: FileServer) -> None:
    rig.start("true", stage=[{"from": files.url("nothing"), "to": "x", "sha256": SHA256}])
    beat = rig.ended()
    assert beat.exit is not None
    assert beat.exit.code == downloads.REFUSED
    assert "x cannot be downloaded" in beat.exit.last_line
    assert rig.baton.done is None

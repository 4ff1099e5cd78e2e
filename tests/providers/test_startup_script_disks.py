"""The start-up script and data disks: made once, kept for ever, never made over."""

from pathlib import Path

from tests.cloud.vm import Scene
from tests.providers.startup_rig import StartupRig


def use(rig: StartupRig, folder: Path) -> None:
    rig.attributes["spot-data-disk-device-name"] = "spot-data"
    rig.attributes["spot-data-disk-mount-path"] = f"{folder}/data"
    rig.attributes["spot-data-disk-fs-type"] = "ext4"
    rig.job(write=f"{folder}/data/diary")


def test_a_blank_disk_is_made_once_and_keeps_what_is_on_it(rig: StartupRig, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    use(rig, rig.folder)
    vm = rig.boot(Scene(disks={"spot-data": disk}))
    rig.ended(vm)
    assert [call[0] for call in vm.calls("mkfs")] == ["mkfs.ext4"]
    assert f"{vm.root}/mnt/disks/spot-data:{rig.folder}/data" in vm.calls("docker")[-1]
    assert vm.close() == []
    rig.folder = tmp_path / "another"  # the next machine, with the same disk
    use(rig, rig.folder)
    vm = rig.boot(Scene(disks={"spot-data": disk}))
    rig.ended(vm)
    assert vm.calls("mkfs") == []
    assert (rig.folder / "data" / "diary").read_text() == "written\n" * 2


def test_a_disk_that_cannot_be_read_is_not_made(rig: StartupRig, tmp_path: Path) -> None:
    use(rig, rig.folder)
    rig.boot(Scene(disks={"spot-data": tmp_path / "disk"}, blkid="8"))
    vm = rig.given_up("no_start", "data disk spot-data")
    assert vm.calls("mkfs") == []
    assert (tmp_path / "disk").read_bytes() == b""


def test_a_disk_with_something_else_on_it_is_not_made(rig: StartupRig, tmp_path: Path) -> None:
    (tmp_path / "disk").write_text("LVM2_member")
    use(rig, rig.folder)
    rig.boot(Scene(disks={"spot-data": tmp_path / "disk"}))
    vm = rig.given_up("no_start", "data disk spot-data", "wrong fs type")
    assert vm.calls("mkfs") == []
    assert (tmp_path / "disk").read_text() == "LVM2_member"


def test_a_disk_that_is_not_there(rig: StartupRig) -> None:
    use(rig, rig.folder)
    rig.boot(Scene(hurry=500))
    rig.given_up("no_start", "data disk spot-data", "No such file")


def test_a_disk_that_many_machines_share_is_neither_made_nor_written(rig: StartupRig, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_text("ext4")
    (tmp_path / "disk.content").mkdir()
    use(rig, rig.folder)
    rig.job()
    vm = rig.boot(Scene(disks={"spot-data": disk}), spot_data_disk_read_only="true")
    rig.ended(vm)
    assert vm.calls("mkfs") == []
    assert any(call[:2] == ["-o", "ro,noload"] for call in vm.calls("mount"))
    assert f"{vm.root}/mnt/disks/spot-data:{rig.folder}/data:ro" in vm.calls("docker")[-1]
    assert rig.seen()["command"] == "true"


def test_a_shared_disk_without_a_file_system_is_not_made(rig: StartupRig, tmp_path: Path) -> None:
    use(rig, rig.folder)
    rig.boot(Scene(disks={"spot-data": tmp_path / "disk"}), spot_data_disk_read_only="true")
    vm = rig.given_up("no_start", "data disk spot-data")
    assert vm.calls("mkfs") == []
    assert (tmp_path / "disk").read_bytes() == b""


def scratch(rig: StartupRig) -> None:
    """The stub docker mounts inside the machine's folder only."""
    whole = rig.script
    rig.script = whole.replace("SCRATCH=/mnt/disks/scratch ", f"SCRATCH={rig.folder}/scratch ")
    assert rig.script != whole
    rig.job(write=f"{rig.folder}/scratch/cache")


def local_ssds(folder: Path, count: int) -> dict[str, Path]:
    return {f"local-nvme-ssd-{number}": folder / f"ssd{number}" for number in range(count)}


def test_a_local_ssd_that_is_paid_for_is_the_trainings_scratch_space(rig: StartupRig, tmp_path: Path) -> None:
    scratch(rig)
    vm = rig.boot(Scene(disks=local_ssds(tmp_path, 1)))
    rig.ended(vm)
    assert rig.seen()["env"]["SPOT_SCRATCH_DIR"] == f"{rig.folder}/scratch"
    assert (rig.folder / "scratch" / "cache").read_text() == "written\n"
    assert [call[0] for call in vm.calls("mkfs")] == ["mkfs.ext4"]
    assert vm.calls("mdadm") == []


def test_several_local_ssds_are_one(rig: StartupRig, tmp_path: Path) -> None:
    scratch(rig)
    vm = rig.boot(Scene(disks=local_ssds(tmp_path, 4)))
    rig.ended(vm)
    (call,) = vm.calls("mdadm")
    assert {"--level=0", "--raid-devices=4"} <= set(call)
    assert [Path(word).name for word in call[-4:]] == [f"google-local-nvme-ssd-{number}" for number in range(4)]
    assert (rig.folder / "scratch" / "cache").read_text() == "written\n"


def test_local_ssds_that_cannot_be_used_end_no_boot(rig: StartupRig, tmp_path: Path) -> None:
    (rig.folder / "stub").mkdir(parents=True)
    (rig.folder / "stub" / "mdadm").write_text("mdadm: Defective drive\n")
    vm = rig.boot(Scene(disks=local_ssds(tmp_path, 2)))
    rig.ended(vm)
    assert "the local SSDs cannot be used: mdadm: Defective drive" in vm.serial()
    assert "SPOT_SCRATCH_DIR" not in rig.seen()["env"]


def test_a_machine_without_local_ssds_says_nothing_of_them(rig: StartupRig) -> None:
    vm = rig.boot()
    rig.ended(vm)
    assert "local SSD" not in vm.serial()
    assert "SPOT_SCRATCH_DIR" not in rig.seen()["env"]

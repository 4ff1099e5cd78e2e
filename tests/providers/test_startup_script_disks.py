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

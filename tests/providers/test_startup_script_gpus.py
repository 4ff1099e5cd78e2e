"""The start-up script and GPUs: the driver on every boot, cards that come late or never, what a container gets."""

import pytest

from tests.cloud.vm import Scene
from tests.providers.startup_rig import StartupRig
from tests.waiting import wait_for

KERNEL = "[   31.2] NVRM: GPU 0000:00:04.0: RmInitAdapter failed! (0x24:0x65:1457)"


def devices(call: list[str]) -> list[str]:
    return [call[index + 1].rpartition(":")[2] for index, word in enumerate(call) if word == "--device"]


def test_the_container_gets_every_card_and_the_drivers_libraries(rig: StartupRig) -> None:
    image = {"LD_LIBRARY_PATH": "/opt/own/lib"}
    vm = rig.boot(Scene(image_env=image), spot_gpus="4", spot_gpu_driver_version="535.183.01")
    rig.ended(vm)
    assert ["install", "gpu", "--", "-version=535.183.01"] in vm.calls("cos-extensions")
    assert ["start", "gcr-online.target", "docker.socket"] in vm.calls("systemctl")
    assert "4 GPUs respond, driver 535.183.01" in vm.serial()
    run = vm.calls("docker")[-1]
    cards = [f"/dev/nvidia{card}" for card in range(4)]
    assert devices(run) == [*cards, "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    nvidia = vm.root / "var/lib/nvidia"
    # Read-only: what a training changed there would be the driver of this machine.
    assert f"{nvidia}/lib64:/usr/local/nvidia/lib64:ro" in run
    assert f"{nvidia}/bin:/usr/local/nvidia/bin:ro" in run
    assert vm.calls("nvidia-persistenced") == [[f"LD_LIBRARY_PATH={nvidia}/lib64"]]
    assert not {"--gpus", "--runtime"} & set(run)
    seen = rig.seen()["env"]
    assert seen["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/opt/own/lib"
    assert seen["PATH"].endswith("/usr/bin:/bin:/usr/local/nvidia/bin")
    for folder in (nvidia, vm.machine):
        assert ["--bind", str(folder), str(folder)] in vm.calls("mount")
        assert ["-o", "remount,exec", str(folder)] in vm.calls("mount")


def test_a_machine_without_gpus_installs_no_driver(rig: StartupRig) -> None:
    vm = rig.boot(Scene(cards=1))
    rig.ended(vm)
    assert vm.calls("cos-extensions") == []
    assert devices(vm.calls("docker")[-1]) == []
    assert "LD_LIBRARY_PATH" not in rig.seen()["env"]


def test_cards_that_come_late_are_waited_for(rig: StartupRig) -> None:
    vm = rig.boot(Scene(cards=0, driver=("Failed to download the driver: timed out", "ok")), spot_gpus="1")
    wait_for(lambda: "the driver is installed" in vm.serial())
    (vm.stub / "cards").write_text("1\n")
    rig.ended(vm)
    assert rig.phases() == ["boot", "driver", "image", "container", "end", "off"]
    assert "could not be installed: Failed to download the driver: timed out" in vm.serial()
    assert devices(vm.calls("docker")[-1])[0] == "/dev/nvidia0"


@pytest.mark.parametrize(("cards", "promised"), [(0, 1), (2, 4)])
def test_without_all_the_cards_there_is_no_training(rig: StartupRig, cards: int, promised: int) -> None:
    scene = Scene(cards=cards, dmesg=KERNEL + "\n[   32.0] something else")
    rig.boot(scene, spot_gpus=str(promised), spot_gpu_timeout_sec="1")
    vm = rig.given_up("no_gpu", f"{cards} of {promised} GPUs after 1 s", "Finished installing the drivers.")
    console = vm.serial()
    assert "spot: gpu: 00:04.0 3D controller: NVIDIA Corporation TU104GL" in console
    assert f"spot: gpu: {KERNEL}" in console
    assert "something else" not in console
    assert "spot: gpu: Available extensions for COS" in console
    assert ("/dev/nvidia0" in console) == (cards > 0)
    assert vm.calls("docker") == []


def test_a_driver_that_cannot_be_installed_says_why(rig: StartupRig) -> None:
    words = "ERROR: precompiled driver is not available for this kernel"
    rig.boot(Scene(driver=(words,)), spot_gpus="1", spot_gpu_timeout_sec="1")
    rig.given_up("no_gpu", "0 of 1 GPUs", words)


STEADY = "E1123 04:05:{second:02}.123456     {pid} main.go:88] no driver for COS build 19506.505.8"


def impatient(rig: StartupRig, same_s: int) -> None:
    whole = rig.script
    rig.script = whole.replace("SAME_FAILURES_S=180 ", f"SAME_FAILURES_S={same_s} ")
    assert rig.script != whole


def test_an_installer_that_fails_at_once_in_the_same_words_ends_early(rig: StartupRig) -> None:
    """Times and process ids differ each time. The whole GPU time, 20 minutes, would be billed for nothing."""
    impatient(rig, 1)
    failures = tuple(STEADY.format(second=number, pid=900 + number) for number in range(9))
    rig.boot(Scene(cards=0, driver=failures, hurry=40), spot_gpus="1", spot_gpu_timeout_sec="1200")
    vm = rig.given_up("no_gpu", "the driver installer failed", "with the same message", "no driver for COS build")
    assert len([call for call in vm.calls("cos-extensions") if call[0] == "install"]) >= 5


@pytest.mark.parametrize(
    ("failures", "same_s"),
    [
        (("no route to host", "connection refused") * 6, 0),  # it does not say the same
        (("no route to host",) * 6, 60),  # not for so long yet
        (("no route to host",) * 4, 0),  # not so often yet
    ],
)
def test_an_installer_that_may_still_succeed_is_tried_again(
    rig: StartupRig, failures: tuple[str, ...], same_s: int
) -> None:
    impatient(rig, same_s)
    vm = rig.boot(Scene(driver=(*failures, "ok"), hurry=500), spot_gpus="1", spot_gpu_timeout_sec="1200")
    rig.ended(vm)
    assert len([call for call in vm.calls("cos-extensions") if call[0] == "install"]) == len(failures) + 1
    assert rig.seen()["command"] == "true"


def test_a_persistence_daemon_that_does_not_start_ends_no_boot(rig: StartupRig) -> None:
    (rig.folder / "stub").mkdir(parents=True)
    (rig.folder / "stub" / "persistenced-fails").touch()
    vm = rig.boot(spot_gpus="1")
    rig.ended(vm)
    assert "nvidia-persistenced could not be started" in vm.serial()
    assert rig.seen()["command"] == "true"


@pytest.mark.parametrize("left_s", ["0", "-4"])
def test_the_last_try_to_install_the_driver_has_a_limit_too(rig: StartupRig, left_s: str) -> None:
    """`timeout 0` would be none at all, and less is refused."""
    whole = rig.script
    rig.script = whole.replace("install_driver $((end - $(uptime_s)))", f"install_driver {left_s}").replace(
        " timeout -k 10 ", " echo limit "
    )
    assert rig.script.count("echo limit") == 2
    rig.boot(Scene(cards=0), spot_gpus="1", spot_gpu_timeout_sec="0")
    vm = rig.given_up("no_gpu", "0 of 1 GPUs")
    assert "spot: gpu: limit 1 cos-extensions install gpu" in vm.serial()


def test_a_driver_that_is_there_already_is_used(rig: StartupRig) -> None:
    vm = rig.boot(Scene(cos=False), spot_gpus="1")
    rig.ended(vm)
    assert devices(vm.calls("docker")[-1])[0] == "/dev/nvidia0"


@pytest.mark.parametrize(
    ("refusal", "left"),
    [
        ("125 error gathering device information while adding custom device", "no_gpu"),
        ("125 Conflict. The container name is in use", "no_start"),
    ],
)
def test_a_container_that_docker_does_not_start(rig: StartupRig, refusal: str, left: str) -> None:
    rig.boot(Scene(refusal=refusal), spot_gpus="1")
    rig.given_up(left, "docker", refusal.removeprefix("125 "))


@pytest.mark.parametrize(
    ("option", "words"), [("--gpus all", "mode 'cdi'"), ("--runtime nvidia", "invalid runtime name: nvidia")]
)
def test_a_script_that_asks_for_gpus_in_another_way_is_caught(rig: StartupRig, option: str, words: str) -> None:
    rig.script = rig.script.replace("(--name spot", f"({option} --name spot")
    rig.boot(spot_gpus="1")
    rig.given_up("no_gpu", words)

"""The start-up script under a real systemd that shuts the machine down: the order of stops decides what is saved."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloud.vm import Scene
from tests.components import require_component
from tests.providers.startup_rig import StartupRig
from tests.providers.systemd_vm import SystemdVm, can_run
from tests.waiting import wait_for

SAVES_S = 2.0


@pytest.fixture
def machine() -> Iterator[StartupRig]:
    """On the disk: a systemd mounts a /dev/shm of its own over what is there."""
    require_component("systemd", can_run(), "run as root, where systemd may be PID 1 of its own namespaces")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        rig = StartupRig(Path(folder, "vm"))
        rig.job(wait=True, saves_s=SAVES_S)
        yield rig
        rig.close()


def booted(rig: StartupRig) -> SystemdVm:
    vm = SystemdVm(rig.instance(), rig.folder.resolve(), Scene(), (None, None), None)
    rig.vm = vm
    wait_for((vm.machine / "seen.json").exists, 60, f"the agent:\n{vm.console()}")
    assert (vm.stub / "began-docker").exists()
    return vm


def shut_down(vm: SystemdVm) -> None:
    vm.acpi_shutdown()
    wait_for(vm.script_ended.is_set, 60, "the machine's end")


def test_docker_outlives_the_script_that_passes_term_on(machine: StartupRig) -> None:
    vm = booted(machine)
    shut_down(vm)
    console = vm.console()
    assert 'msg="received TERM: the machine is shutting down"' in console
    heard = float((vm.machine / "heard").read_text())  # both on the clock since the boot of the host
    for daemon in ("docker", "containerd"):
        ended = float((vm.stub / f"ended-{daemon}").read_text())
        assert ended >= heard + SAVES_S, f"{daemon} was stopped while the container was saving\n{console}"


def test_without_the_order_docker_goes_while_the_container_saves(machine: StartupRig) -> None:
    """What the drop-in is for: without After= all units stop at once."""
    whole = machine.script
    machine.script = whole.replace("'After=docker.service containerd.service'", "''")
    assert machine.script != whole
    vm = booted(machine)
    shut_down(vm)
    heard = float((vm.machine / "heard").read_text())
    assert float((vm.stub / "ended-docker").read_text()) < heard + SAVES_S

"""The start-up script and the end of a machine: TERM reaches the container at once, and nothing outlives it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cloud import vm_processes
from tests.cloud.vm import RunningVm, Scene
from tests.providers.startup_rig import StartupRig
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
PARENT = """
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={}).wait()
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        time.sleep(0.01)
"""
STRAY = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(600)"


def running(rig: StartupRig, scene: Scene | None = None, **job: object) -> RunningVm:
    rig.job(wait=True, **job)
    vm = rig.boot(scene)
    wait_for((vm.machine / "seen.json").exists, what="the agent")
    return vm


def test_term_reaches_the_container_within_a_second(rig: StartupRig) -> None:
    vm = running(rig)
    told_at = time.monotonic()
    vm.acpi_shutdown()
    rig.ended(vm)
    assert float((vm.machine / "heard").read_text()) - told_at < 1.0
    assert rig.off == ["off"]
    assert not vm.switched_off  # the machine is going down already
    assert vm.lines()[-1].endswith('msg="received TERM: the machine is shutting down"')
    assert ["kill", "--signal", "TERM", "spot"] in vm.calls("docker")


@pytest.mark.parametrize("daemon", ["hang", "gone"])
def test_term_reaches_a_container_whose_daemon_does_not_answer(rig: StartupRig, daemon: str) -> None:
    """docker kill is not waited for longer than three seconds, and the agent gets the signal without it."""
    vm = running(rig)
    (vm.stub / "daemon").write_text(daemon)
    told_at = time.monotonic()
    vm.acpi_shutdown()
    rig.ended(vm)
    assert float((vm.machine / "heard").read_text()) - told_at < 8.0
    assert vm.lines()[-1].endswith('msg="received TERM: the machine is shutting down"')


def test_a_script_that_waits_in_the_foreground_is_caught(rig: StartupRig) -> None:
    whole = rig.script
    rig.script = whole.replace('    "$1" &\n    WORK=$!\n    wait "$WORK"\n', '    "$1"\n')
    assert rig.script != whole
    vm = running(rig)
    vm.acpi_shutdown(grace_s=1.2)
    rig.ended(vm)
    assert not (vm.machine / "heard").exists()


def test_what_does_not_hear_is_cut_off_when_the_grace_is_over(rig: StartupRig) -> None:
    vm = running(rig, deaf=True)
    vm.acpi_shutdown(grace_s=0.5)
    rig.ended(vm)
    assert rig.off == ["off"]


@pytest.mark.parametrize(
    ("scene", "gpus", "phase"), [(Scene(pulls=("hang",)), "0", "image"), (Scene(cards=0), "1", "driver")]
)
def test_term_during_the_boot_ends_it_at_once(rig: StartupRig, scene: Scene, gpus: str, phase: str) -> None:
    vm = rig.boot(scene, spot_gpus=gpus)
    wait_for(lambda: f"phase={phase}" in vm.serial())
    told_at = time.monotonic()
    vm.acpi_shutdown()
    rig.ended(vm)
    assert time.monotonic() - told_at < 10
    assert not vm.switched_off
    assert not any(call[0] == "run" for call in vm.calls("docker"))


def test_the_end_comes_when_nobody_listens_any_more(rig: StartupRig) -> None:
    """Google's runner, which reads the script's output, gets the TERM too, and is faster."""
    vm = running(rig)
    (pid,) = [pid for pid in vm.processes() if os.getsid(pid) == pid and _is_script(pid)]
    os.kill(pid, signal.SIGPIPE)
    vm.acpi_shutdown()
    rig.ended(vm)
    assert (vm.machine / "heard").exists()


def _is_script(pid: int) -> bool:
    return b"startup-script" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_cut_ends_everything_and_nobody_is_told(rig: StartupRig) -> None:
    vm = running(rig)
    agent = int((vm.stub / "container").read_text())
    assert agent in vm.processes()
    assert vm.kill() == []
    assert vm.processes() == set()
    assert vm.ended.is_set()
    assert rig.off == []


def test_a_process_that_hid_itself_ends_too(tmp_path: Path) -> None:
    """A daemon with an empty environment: still a descendant, as those of the stub docker are."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, STRAY], env={vm_processes.MARKER: str(tmp_path)}, start_new_session=True
    )
    try:
        (stray,) = wait_for(lambda: [pid for pid in vm_processes.alive(tmp_path) if pid != parent.pid and _hid(pid)])
        assert vm_processes.end(tmp_path) == []
        assert not _alive(stray)
    finally:
        parent.kill()
        parent.wait()


def _hid(pid: int) -> bool:
    """It is a daemon now: in a session whose leader has ended."""
    try:
        return not Path(f"/proc/{os.getsid(pid)}").exists()
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


KILLED = """
import sys, time
from pathlib import Path
from tests.providers.startup_rig import StartupRig
rig = StartupRig(Path(sys.argv[1]))
rig.job(wait=True)
vm = rig.boot()
while not (vm.machine / "seen.json").exists():
    time.sleep(0.01)
print("up", flush=True)
time.sleep(600)
"""


def test_no_machine_outlives_tests_that_are_killed(tmp_path: Path) -> None:
    folder = tmp_path / "vm"
    tests = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"up\n"
        assert vm_processes.alive(folder)
    finally:
        tests.kill()
        tests.communicate()
    wait_for(lambda: not vm_processes.alive(folder), what="the machine's end")

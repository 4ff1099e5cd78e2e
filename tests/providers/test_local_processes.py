"""A process is pid + start ticks + boot: nothing else is ever signalled."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.host import processes
from supervisor.host.processes import Identity, Table
from tests.providers.local_machines import alive, bystander
from tests.waiting import wait_for


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with bystander() as child:
        yield child


def test_a_process_is_read_with_its_session_and_its_start(sleeper: subprocess.Popen[bytes]) -> None:
    process = processes.read(sleeper.pid)
    assert process is not None
    assert (process.parent, process.session, process.group) == (os.getpid(), sleeper.pid, sleeper.pid)
    assert process.start_ticks > 0
    assert process.alive


def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields(tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    with bystander([str(odd), "3600"]) as child:
        process = processes.read(child.pid)
    assert process is not None
    assert (process.parent, process.session) == (os.getpid(), child.pid)
    assert process.state != "Z"


def test_a_zombie_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    wait_for(lambda: (p := processes.read(sleeper.pid)) and p.state == "Z", what="a zombie")
    process = processes.read(sleeper.pid)
    assert process is not None
    assert not process.alive


def test_nothing_is_signalled_when_the_pid_has_another_start(sleeper: subprocess.Popen[bytes]) -> None:
    process = processes.read(sleeper.pid)
    assert process is not None
    processes.send(process._replace(start_ticks=process.start_ticks - 1), signal.SIGKILL)
    assert sleeper.poll() is None
    processes.send(process, signal.SIGKILL)
    assert sleeper.wait(30) == -signal.SIGKILL
    processes.send(process, signal.SIGKILL)  # it is not there any more: nothing happens


def test_kernels_without_pidfd_check_the_start_too(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    process = processes.read(sleeper.pid)
    assert process is not None
    processes.send(process._replace(start_ticks=process.start_ticks + 1), signal.SIGKILL)
    assert sleeper.poll() is None
    processes.send(process, signal.SIGKILL)
    assert sleeper.wait(30) == -signal.SIGKILL


def test_an_identity_of_another_boot_or_start_finds_nobody(sleeper: subprocess.Popen[bytes]) -> None:
    process, boot = processes.read(sleeper.pid), processes.boot_id()
    assert process is not None
    itself = Identity(sleeper.pid, process.start_ticks, boot)
    found = processes.find(itself, boot)
    assert found is not None
    assert found._replace(state=process.state) == process, "asleep or not: the same process"
    assert processes.find(itself._replace(boot_id="00000000" + boot[8:]), boot) is None
    assert processes.find(itself._replace(start_ticks=process.start_ticks + 1), boot) is None


def test_a_session_is_no_proof_when_its_leader_is_another_process(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    process, boot = processes.read(sleeper.pid), processes.boot_id()
    assert process is not None
    leader = Identity(sleeper.pid, process.start_ticks, boot)
    assert [p.pid for p in Table().members(tmp_path, leader)] == [sleeper.pid]
    reused = leader._replace(start_ticks=process.start_ticks - 100)
    assert Table().members(tmp_path, reused) == []


@pytest.mark.parametrize(("carried", "ours"), [("here", True), ("there", False), ("here/below", False), (None, False)])
def test_a_process_belongs_to_the_folder_that_it_carries(tmp_path: Path, carried: str | None, ours: bool) -> None:
    environment = {"SPOT_MACHINE": "here"}
    if carried is not None:
        environment["SPOT_MACHINE_DIR"] = str(tmp_path / carried)
    with bystander(env=environment) as child:
        # In the moment of its exec a process has no environment.
        wait_for(lambda: Path(f"/proc/{child.pid}/environ").read_bytes(), what="the environment of the process")
        members = [p.pid for p in Table().members(tmp_path / "here", None)]
    assert (child.pid in members) is ours


def test_everything_dies_though_it_forks_while_it_is_killed(tmp_path: Path) -> None:
    breeder = "while :; do /bin/sleep 3600 & [ $(jobs -p | wc -l) -gt 20 ] && wait; done"
    environment = {"SPOT_MACHINE": tmp_path.name, "SPOT_MACHINE_DIR": str(tmp_path), "PATH": os.environ["PATH"]}
    with bystander(["/bin/sh", "-c", breeder], env=environment) as child:
        wait_for(lambda: len(Table().members(tmp_path, None)) > 5, what="some children")
        left = processes.kill_all(lambda: Table().members(tmp_path, None), None, 30.0)
    assert list(left) == []
    assert not alive(child.pid)


def test_nobody_else_is_killed_before_each_thread_of_the_agent_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy computer a stop takes time; the agent would see its training die and report a failure."""
    threads = "import threading, time\nfor _ in range(4): threading.Thread(target=time.sleep, args=(60,)).start()"
    environment = {"SPOT_MACHINE_DIR": str(tmp_path)}
    standing: list[bool] = []
    sent: list[tuple[int, int]] = []
    plain, stands = processes.send, processes._is_stopped
    with bystander([sys.executable, "-c", threads], env=environment) as lead, bystander(env=environment) as other:
        wait_for(lambda: len(os.listdir(f"/proc/{lead.pid}/task")) == 5, what="its threads")
        started = processes.read(lead.pid)
        assert started is not None
        agent = processes.Identity(lead.pid, started.start_ticks, processes.boot_id())
        assert not stands(started)

        def send(process: processes.Process, number: int) -> None:
            sent.append((process.pid, number))
            standing.append(stands(started))
            if (process.pid, number) != (lead.pid, signal.SIGSTOP) or len(sent) > 2:  # the first two stops are slow
                plain(process, number)

        monkeypatch.setattr(processes, "send", send)
        monkeypatch.setattr(
            processes, "STOP_WAIT_S", 20.0
        )  # a busy computer may need longer than 0.5 s for three stops
        assert list(processes.kill_all(lambda: Table().members(tmp_path, agent), agent, 30.0)) == []
        killed = sent.index((other.pid, signal.SIGKILL))
        assert sent[:killed] == [(lead.pid, signal.SIGSTOP)] * killed
        assert killed >= 3
        assert standing[killed]

"""Launches that are cut short, and supervisors that are killed: always exactly one agent, found again by the next."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import MachineState
from supervisor.host.folders import Folders
from supervisor.host.starting import Agents
from supervisor.ports.provider import LaunchRejected, LaunchRequest, ProviderUnavailable
from tests.contracts.provider_subject import ref
from tests.providers.local_machines import SCRIPTED_AGENT, LocalSubject, alive
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
# A supervisor of its own: it launches the given machine and stays until it is killed.
LAUNCHER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.providers.local_machines import LocalSubject

subject = LocalSubject(Path(sys.argv[1]))
subject.token = sys.argv[2]
sys.stdin.readline()
machine = subject.provider.launch(subject.request())
print(machine.machine_id, flush=True)
sys.stdin.readline()
"""


class Killed(BaseException):
    """A stand-in for a kill -9 at this line: nothing after it runs."""


def die(*_: object) -> None:
    raise Killed


def starts(local: LocalSubject, request: LaunchRequest) -> int:
    """How many agents got hold of the machine's lock, ever."""
    return len((local.folder(request) / "starts").read_text().splitlines())


def launcher(local: LocalSubject) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(local.data_dir), local.token],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_crash_before_the_folder_is_there_leaves_nothing(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = local.request()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            local.provider.launch(request)
    assert local.provider.machines().machines == ()
    assert [path.name[:5] for path in (local.data_dir / "machines").iterdir()] == [".new-"]
    local.provider = local.fresh()
    assert list((local.data_dir / "machines").iterdir()) == [], "the next supervisor clears it away"
    local.up(request)
    assert starts(local, request) == 1


def test_an_empty_folder_in_its_place_is_taken_over(local: LocalSubject) -> None:
    request = local.request()
    local.folder(request).mkdir()
    assert local.provider.machines().machines == ()
    local.up(request)


def test_a_crash_between_folder_and_agent_is_finished_by_the_same_launch(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = local.request()
    with monkeypatch.context() as patch:
        patch.setattr(Agents, "start", die)
        with pytest.raises(Killed):
            local.provider.launch(request)
    assert (local.folder(request) / "job.json").exists()
    assert local.provider.machines().machines == (), "nothing of it lives: asking again is right"
    local.provider = local.fresh()
    local.up(request)
    assert starts(local, request) == 1


def test_a_crash_between_agent_and_its_name_adopts_that_agent(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = local.scripted(local.request(), wait_for="go")
    with monkeypatch.context() as patch:
        patch.setattr("supervisor.host.machines.Machines._await_agent", die)
        with pytest.raises(Killed):
            local.provider.launch(request)
    seen = local.eventually(lambda: local.listed(request), "a process that is not yet its agent by name")
    assert (seen.state, seen.machine_id) == (MachineState.STARTING, "")
    (local.folder(request) / "go").touch()
    local.provider = local.fresh()
    machine = local.provider.launch(request)
    assert machine.machine_id.split(":")[2] == str(local.pids(request)["agent"])
    assert starts(local, request) == 1


def test_a_machine_that_starts_can_be_released(local: LocalSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    request = local.scripted(local.request(), wait_for="never")
    monkeypatch.setattr("supervisor.host.machines.START_WAIT_S", 0.2)
    assert local.provider.launch(request).state is MachineState.STARTING
    local.provider.release(ref(request))
    assert local.provider.machines().machines == ()
    assert not local.folder(request).exists()


def test_a_machine_that_was_just_started_is_not_put_away_unseen(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the moment of its exec no mark can be read, so there seems to be nothing to kill."""
    request = local.scripted(local.request(), wait_for="go")
    with monkeypatch.context() as patch:
        patch.setattr("supervisor.host.machines.START_WAIT_S", 0.0)
        patch.setattr("supervisor.host.processes.MARKER", b"NOBODY_CARRIES_THIS=")
        with pytest.raises(ProviderUnavailable, match="is being started again"):
            local.provider.launch(request)
        with pytest.raises(ProviderUnavailable, match="not ended yet"):
            local.provider.release(ref(request))
    assert local.folder(request).exists()
    local.provider.release(ref(request))
    assert not local.folder(request).exists()


def test_two_agents_on_one_folder_cannot_be(local: LocalSubject) -> None:
    request = local.request()
    machine = local.up(request)
    agent = [sys.executable, str(SCRIPTED_AGENT), str(local.folder(request))]
    second = subprocess.run(agent, capture_output=True, timeout=60, check=False)
    assert second.returncode == 1
    assert b"another agent lives here" in second.stderr
    assert local.listed(request) == machine


def test_an_agent_that_ends_before_it_begins_is_a_definite_no(local: LocalSubject) -> None:
    request = local.scripted(local.request(), refuse=True)
    with pytest.raises(LaunchRejected, match=r"the scripted agent refuses$"):
        local.provider.launch(request)
    assert local.provider.machines().machines == ()
    assert not local.folder(request).exists()
    local.up(local.request())


@pytest.mark.parametrize(("missing", "text"), [("agent", "nowhere.pyz"), ("python", "cannot be started")])
def test_what_cannot_start_is_refused_and_leaves_nothing(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch, missing: str, text: str
) -> None:
    request = local.request()
    with monkeypatch.context() as patch:
        if missing == "python":
            patch.setattr(sys, "executable", "/nowhere/python")
        fresh = local.fresh(**({"agent": Path("nowhere.pyz")} if missing == "agent" else {}))
    with pytest.raises(LaunchRejected, match=text):
        fresh.launch(request)
    assert list((local.data_dir / "machines").iterdir()) == []
    local.up(request)


def test_a_full_disk_is_a_definite_no_and_hides_no_machine(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, over, request = (local.request(run=run) for run in ("lives", "over", "new"))
    machine = local.up(lives)
    local.up(over)
    pids = local.pids(over)
    local.provider.preempt(ref(over), 3600.0)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkstemp", _no_space)
        patch.setattr("tempfile.mkdtemp", _no_space)
        with pytest.raises(LaunchRejected, match="No space left"):
            local.provider.launch(request)
        ended = wait_for(lambda: (m := local.listed(over)) and m.state is MachineState.ENDED and m, what="the end")
        assert ended.record is not None
        assert local.listed(lives) == machine
        with pytest.raises(ProviderUnavailable, match="No space left"):
            local.provider.release(ref(over))
    local.provider.release(ref(over))
    assert local.listed(over) is None


def _no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_supervisors_that_launch_the_same_at_once_make_one_agent(local: LocalSubject) -> None:
    """Four processes (a lease lost and taken, at its worst) with one request."""
    children = [launcher(local) for _ in range(4)]

    def go(child: subprocess.Popen[str]) -> str:
        return child.communicate("go\n\n", timeout=120)[0].strip()

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(go, children))
    request = local.request()
    machine = local.listed(request)
    assert machine is not None
    assert answers == {machine.machine_id}
    assert starts(local, request) == 1
    for child in children:
        assert child.returncode == 0


def test_a_killed_supervisor_leaves_its_machines_alone(local: LocalSubject) -> None:
    child = launcher(local)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("go\n")
    child.stdin.flush()
    machine_id = child.stdout.readline().strip()
    child.kill()
    child.communicate(timeout=60)
    request = local.request()
    pids = local.pids(request)
    machine = local.fresh().find(ref(request, machine_id))
    assert machine is not None
    assert machine.state is MachineState.UP
    assert all(alive(pid) for pid in pids.values())
    assert local.provider.launch(request).machine_id == machine_id
    local.provider.release(ref(request, machine_id))
    assert not any(alive(pid) for pid in pids.values())


def test_the_agent_gets_none_of_the_supervisors_secrets_or_files(
    local: LocalSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOT_DATABASE_URL", "postgresql://me:open-sesame@nowhere/db")
    request = local.request()
    with (local.data_dir / "held-by-the-supervisor").open("w") as held:
        local.up(request)
        pid = local.pids(request)["agent"]
        opened = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert held.name not in opened
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"open-sesame" not in environment
    assert b"SPOT_MACHINE=" + request.name.encode() in environment
    assert os.readlink(f"/proc/{pid}/cwd") == str(local.folder(request))


def test_a_later_build_of_the_agent_does_not_change_living_ones(local: LocalSubject, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    shutil.copyfile(SCRIPTED_AGENT, agent)
    request = local.request()
    local.provider = local.fresh(agent=agent)
    local.up(request)
    agent.write_text("raise SystemExit('another build')")
    assert (local.folder(request) / "agent.pyz").read_text() == SCRIPTED_AGENT.read_text()


def test_a_job_that_is_not_json_is_refused(local: LocalSubject) -> None:
    request = local.request()
    broken = replace(request, job={"command": object()})
    with pytest.raises(LaunchRejected, match="not JSON serializable"):
        local.provider.launch(broken)
    assert list((local.data_dir / "machines").iterdir()) == []


def test_folders_are_for_this_user_only(local: LocalSubject) -> None:
    request = local.request()
    local.up(request)
    Folders(local.data_dir, "local")
    assert (local.data_dir / "machines").stat().st_mode & 0o077 == 0
    assert (local.folder(request) / "job.json").stat().st_mode & 0o077 == 0
    assert json.loads((local.folder(request) / "job.json").read_text())["nonce"] == "secret-nonce"

"""Unexpected errors in the main thread: the last beat reports them, and result files wait for a person."""

import subprocess
from pathlib import Path

import pytest

from supervisor.agent.life.leaving import Leaving
from supervisor.agent.life.parts import Parts
from supervisor.agent.life.results import LoadCheck, ResultsUploader, Unverified
from supervisor.agent.life.supervise import Supervision
from supervisor.agent.machine.folder import MachineFolder
from tests.agent.bench import IDENTITY, ManualClock, job, patient, store_in


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    folder = MachineFolder(str(tmp_path / "machine"))
    folder.prepare()
    return Parts(folder, job(server_file=str(tmp_path / "server.json")), IDENTITY, store=store_in(tmp_path), secrets={})


def test_a_process_that_got_the_commands_pid_survives(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results may take hours: the command's pid and group may be reused before the last beat."""
    monkeypatch.setattr("os.getsid", lambda pid: 0)  # this process is no agent, whatever session it leads
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        parts.training.pid, parts.training.status = stranger.pid, 0
        Leaving(parts)._send_last_beat(None, None)
        assert stranger.poll() is None
        stranger.kill()
    parts.renames.close()


def test_a_full_disk_does_not_suppress_a_verdict(tmp_path: Path) -> None:
    folder = MachineFolder(str(tmp_path))
    (tmp_path / "work").mkdir()
    Path(folder.output).symlink_to("/dev/full")
    folder.add_to_output("the command was not started")


def broken(*_: object) -> None:
    raise RuntimeError("broken")


def test_an_agent_with_an_own_error_reports_it_in_its_last_beat(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[str] = []
    monkeypatch.setattr(parts.pushed, "step", lambda: pushed.append(parts.beat_state.now.message))
    supervision = Supervision(parts)
    monkeypatch.setattr(supervision, "_begin", broken)
    with pytest.raises(RuntimeError):
        supervision._run_attempt()
    assert pushed == ["the agent failed: RuntimeError: broken"]
    parts.renames.close()


def test_an_unexpected_error_while_saving_results_needs_a_person(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    uploader = ResultsUploader(parts.store, parts.results_folder, "runs/x/results/", retrier=patient(ManualClock()))
    monkeypatch.setattr(uploader, "upload", broken)
    with pytest.raises(Unverified, match="unexpected RuntimeError: broken"):
        Leaving(parts)._upload(uploader, LoadCheck(parts, patient(ManualClock())), "runs/x/results/")
    parts.renames.close()

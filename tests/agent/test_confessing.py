"""Errors that nobody foresaw in the main thread: the last beat says so, and result files wait for a person."""

import subprocess
from pathlib import Path

import pytest

from supervisor.agent.life.leaving import Leaving
from supervisor.agent.life.results import LoadCheck, ResultsUploader, Unverified
from supervisor.agent.life.station import Station
from supervisor.agent.life.supervise import Supervision
from supervisor.agent.machine.folder import MachineFolder
from tests.agent.desk import IDENTITY, HandClock, job, patient, store_in


@pytest.fixture
def station(tmp_path: Path) -> Station:
    folder = MachineFolder(str(tmp_path / "machine"))
    folder.furnish()
    return Station(
        folder, job(server_file=str(tmp_path / "server.json")), IDENTITY, store=store_in(tmp_path), secrets={}
    )


def test_a_stranger_that_got_the_commands_number_lives(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results may take hours: the command's pid and group are long free by the last words."""
    monkeypatch.setattr("os.getsid", lambda pid: 0)  # this process is no agent, whatever session it leads
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        station.training.pid, station.training.status = stranger.pid, 0
        Leaving(station)._say(None, None)
        assert stranger.poll() is None
        stranger.kill()
    station.renames.close()


def test_a_full_disk_keeps_no_verdict_from_being_told(tmp_path: Path) -> None:
    folder = MachineFolder(str(tmp_path))
    (tmp_path / "work").mkdir()
    Path(folder.output).symlink_to("/dev/full")
    folder.say("the command was not started")


def broken(*_: object) -> None:
    raise RuntimeError("broken")


def test_an_agent_that_dies_of_its_own_error_says_so_in_its_last_beat(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[str] = []
    monkeypatch.setattr(station.pushed, "step", lambda: pushed.append(station.situation.now.message))
    supervision = Supervision(station)
    monkeypatch.setattr(supervision, "_begin", broken)
    with pytest.raises(RuntimeError):
        supervision._live()
    assert pushed == ["the agent failed: RuntimeError: broken"]
    station.renames.close()


def test_an_unforeseen_error_while_saving_results_is_for_a_person(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploader = ResultsUploader(station.store, station.results_folder, "runs/x/results/", patience=patient(HandClock()))
    monkeypatch.setattr(uploader, "upload", broken)
    with pytest.raises(Unverified, match="unexpected RuntimeError: broken"):
        Leaving(station)._upload(uploader, LoadCheck(station, patient(HandClock())), "runs/x/results/")
    station.renames.close()

"""Whole sessions of notebooks: the platform runs the cell, with the real agent, before a door on loopback."""

from __future__ import annotations

import json
import os
import stat

from supervisor.contract import heartbeat, runfiles
from tests.agent.machine_rig import RUN
from tests.notebooks.conftest import Desk
from tests.waiting import wait_for


def test_a_cell_claims_trains_and_ends(desk: Desk) -> None:
    machine = desk.machine(gpus=["Tesla T4", "Tesla T4"])
    desk.door.secrets = {"API_KEY": "a-very-secret-value"}
    machine.start(desk.cell(secrets=["API_KEY"], gpus=2, gpu_model="T4"))
    output = machine.ended()
    assert machine.exit_code == 0
    assert "its training starts" in output
    assert "step 5 of 5" in output
    assert "safe" in output
    assert "the training is done, and its results are saved" in output
    assert desk.baton.done is not None
    (claim,) = desk.door.claims
    assert claim["session"]["platform"] == "kaggle"
    assert claim["session"]["id"] == "352993764"
    assert claim["session"]["kaggle_kernel_run_type"] == "Batch"
    assert claim["session"]["gpus"] == "2 x Tesla T4"
    assert desk.last_beat.machine_id == claim["claimant"]
    assert "token" not in json.dumps(claim)
    folder = machine.folder()
    for private in (folder, folder / "pass.json", folder / "job.json", folder / "claimant"):
        assert stat.S_IMODE(private.stat().st_mode) & 0o077 == 0, private
    shown = output + "".join(path.read_text() for path in folder.glob("*.json") if path.name != "pass.json")
    assert "a-very-secret-value" not in shown
    assert not [text for text in desk.door.passes if text in shown]
    assert list(machine.working.iterdir()) == []


def test_neither_a_killed_kernel_nor_an_interrupted_cell_ends_the_training_and_the_next_cell_shows_it(
    desk: Desk,
) -> None:
    machine = desk.machine("colab")
    cell = desk.cell(1, "--wait-at", "3")
    machine.start(cell)
    desk.at_step(3)
    agent = json.loads((machine.folder() / "agent.json").read_text())["pid"]
    assert os.getsid(agent) == agent
    assert "--url" in machine.words()
    assert "ticket-1" not in machine.words(), "another user of the machine could claim the job"
    machine.end_kernel()
    machine.start(cell)
    wait_for(lambda: "this cell only shows it" in machine.output)
    machine.interrupt()
    output = machine.ended()
    assert machine.exit_code == 0
    assert "the training goes on without this cell" in output
    assert f"spot stop {RUN}" in output
    assert machine.alive
    machine.start(cell)
    wait_for(lambda: machine.output.count("this cell only shows it") == 2)
    assert len(desk.door.claims) == 1
    desk.go()
    assert "the training is done" in machine.ended()
    machine.start(cell)
    assert "the training of this session has ended" in machine.ended()
    assert len(desk.door.claims) == 1


def test_the_next_session_goes_on_after_one_that_ended_without_a_word(desk: Desk) -> None:
    first = desk.machine()
    first.start(desk.cell(1, "--wait-at", "3", hazard=1.0))
    desk.beat_with("a checkpoint", lambda beat: beat.checkpoint_step == 2)
    first.kill()
    assert not first.alive
    second = desk.machine(session="352993999")
    second.start(desk.cell(2, holder_gone=True))
    assert "the training is done" in second.ended()
    assert desk.last_beat.resumed_from == 2
    assert [claim["session"]["id"] for claim in desk.door.claims] == ["352993764", "352993999"]


def test_a_training_that_fails_is_a_record_and_no_failure_of_the_cell(desk: Desk) -> None:
    machine = desk.machine()
    machine.start(desk.cell(1, "--exit", "3"))
    output = machine.ended()
    assert machine.exit_code == 0
    assert "the training has ended with exit code 3" in output
    assert json.loads(desk.store.get(runfiles.exit_record(RUN, 1))[0])["exit"]["code"] == 3


def test_a_pass_that_expires_is_renewed_by_a_beat(desk: Desk) -> None:
    machine = desk.machine()
    machine.start(desk.cell(1, "--wait-at", "3"))
    desk.at_step(3)
    asked = len([each for each in desk.door.requests if each.one("pass") == "1"])
    assert asked == 0
    desk.door.expire_passes()
    wait_for(lambda: [each for each in desk.door.requests if each.one("pass") == "1"], what="a beat that asks")
    desk.go()
    assert "the training is done" in machine.ended()
    text = json.loads((machine.folder() / "pass.json").read_text())["text"]
    assert text in desk.door.passes


def test_the_wrong_accelerator_is_reported_at_once_and_nothing_starts(desk: Desk) -> None:
    machine = desk.machine(gpus=["Tesla P100-PCIE-16GB"])
    machine.start(desk.cell(1, gpus=2, gpu_model="T4"))
    output = machine.ended()
    assert machine.exit_code == 0
    assert "the accelerator was not taken: 2 × T4 was asked for, and the session has 1 × Tesla P100-PCIE-16GB" in output
    (beat,) = desk.door.beats
    assert (beat.left, beat.phase, beat.nonce) == (heartbeat.NO_START, heartbeat.BOOT, "secret")
    assert "was not taken" in beat.message
    assert not (machine.folder() / "agent.json").exists()


def test_without_network_the_cell_says_so_and_ends(desk: Desk) -> None:
    machine = desk.machine(network=False)
    machine.start(desk.cell().replace("(0, 1, 5, 15)", "(0, 0.1)"))
    output = machine.ended()
    assert machine.exit_code == 0
    assert "The session has no network to it" in output
    assert desk.door.claims == []


def test_two_tabs_with_one_cell_are_one_session(desk: Desk) -> None:
    first, second = desk.machine("colab"), desk.machine("colab")
    cell = desk.cell(1, "--wait-at", "3")
    first.start(cell)
    desk.at_step(3)
    second.start(cell)
    assert "another session has used the ticket of this cell" in second.ended()
    assert not second.alive
    desk.go_in(first)
    assert "the training is done" in first.ended()


def test_an_old_cell_downloads_nothing_that_it_does_not_know(desk: Desk) -> None:
    machine = desk.machine()
    cell = desk.cell().replace("(0, 1, 5, 15)", "(0, 0)")
    desk.door.archive += b"of a newer supervisor"
    machine.start(cell)
    assert "Copy a new cell" in machine.ended()
    assert not list(machine.folder().iterdir())

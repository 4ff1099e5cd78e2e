"""End to end: a rented host bills until somebody stops it. A real supervisor, a real sshd, real commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_ssh_digits import Lab
from tests.waiting import wait_for

RENTED = {"SPOT_SSH_PRESET": "runpod", "SPOT_SSH_PRICES": "gpu1=1.20"}
WAITS = "until [ -e {gate} ]; do sleep 0.1; done"

Start = Callable[..., Lab]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    labs: list[Lab] = []

    def started(**more: str) -> Lab:
        labs.append(Lab(tmp_path, **RENTED, **more))
        return labs[-1]

    yield started
    for lab in labs:
        lab.close()


def script(path: Path, text: str) -> Path:
    """A program under this name at once, or not yet."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(f"#!/bin/sh\n{text}\n")
    draft.chmod(0o755)
    draft.rename(path)
    return path


def asks(lab: Lab, run_id: str) -> Any:
    return lab.until(run_id, lambda run: run["status"] == "awaiting_teardown", f"{run_id} to ask")


def teardown(lab: Lab, run_id: str = "small") -> Any:
    return lab.daemon.call("GET", f"/v1/runs/{run_id}/teardown")


def gate(lab: Lab, name: str, run_id: str = "small") -> Any:
    gates = lab.daemon.call("GET", f"/v1/runs/{run_id}/gates")["gates"]
    return next(item for each in gates for item in each["verdicts"] if item["check"] == name)


def test_the_command_runs_after_the_approval_and_a_later_read_completes_the_run(start: Start, tmp_path: Path) -> None:
    stopped, confirm = tmp_path / "stopped", tmp_path / "confirm"
    stop = script(tmp_path / "stop", f'echo "$# $1 $2" >> {stopped}; env > {tmp_path}/env')
    lab = start(SPOT_SSH_METER_COMMAND=f"{stop} {{host}} {{verb}}", SPOT_SSH_METER_CONFIRM=f"{confirm} {{host}}")
    lab.daemon.submit("small", command="echo done")
    run = asks(lab, "small")
    assert "gpu1 bills $1.20/h until somebody stops it. Next: approve `terminate`" in run["status_text"]
    assert (gate(lab, "approved")["state"], gate(lab, "approved")["code"]) == ("fail", "NOT_APPROVED")
    time.sleep(1.5)  # ticks without an approval
    assert not stopped.exists()
    shown = lab.spot("approve", "small", "--yes", "--verb", "terminate")
    assert "awaiting_teardown" in shown or "to approve" in shown
    carried_out = "`terminate` of gpu1 was carried out"  # until this is stored, a kill repeats the command
    wait_for(lambda: carried_out in lab.told("small"), 30, "the command to be carried out")
    assert stopped.exists()
    unread = wait_for(lambda: (shown := teardown(lab))["problem"] and shown, 30, "a read that fails")
    assert "it cannot be read" in unread["problem"], unread
    assert "cannot be started" in unread["problem"], unread
    assert gate(lab, "meter_stopped")["code"] == "METER_UNCONFIRMED"
    lab.daemon.kill()
    lab.daemon.start()
    script(confirm, "echo RUNNING; exit 3")
    wait_for(lambda: teardown(lab)["problem"] == "exit code 3: RUNNING", 30, "a read that says that it runs on")
    assert lab.daemon.run("small")["status"] == "awaiting_teardown", "it still runs"
    (meter,) = lab.daemon.call("GET", "/v1/machines")["meters"]
    assert (meter["host"], meter["state"], meter["usd_per_h"]) == ("gpu1", "to_end", 1.2)
    script(confirm, "echo NOT FOUND; exit 0")
    lab.until("small", lambda run: run["status"] == "completed", "small to complete")
    assert stopped.read_text() == "2 gpu1 terminate\n", "once, also over a kill of the supervisor"
    assert "SPOT_SSH_HOSTS" not in (tmp_path / "env").read_text()
    assert "The bill of gpu1 has ended: a later read says so (exit code 0: NOT FOUND)." in lab.told("small")
    assert gate(lab, "meter_stopped")["state"] == "pass"
    wait_for(lambda: not lab.machine_pids(), 60, "the machine to be gone")


def test_a_person_stops_it_and_says_so(start: Start) -> None:
    lab = start()
    lab.daemon.submit("small", command="echo done")
    asks(lab, "small")
    assert teardown(lab)["how"] == "ask"
    lab.spot("approve", "small", "--yes")
    wait_for(lambda: teardown(lab)["left_at"], 30, "the run's processes to be gone")
    text = lab.daemon.run("small")["status_text"]
    assert "`terminate` approved by" in text
    assert "confirm with `spot approve small --meter-stopped`" in text
    lab.host.stop()  # somebody has stopped the host
    time.sleep(1.5)
    assert lab.daemon.run("small")["status"] == "awaiting_teardown", "a host that is away may still bill"
    lab.spot("approve", "small", "--yes", "--meter-stopped")
    lab.until("small", lambda run: run["status"] == "completed", "small to complete")
    wait_for(lambda: lab.daemon.run("small")["machine_id"] is None, 30, "its row to be settled")
    lab.host.start()


def test_the_last_of_two_runs_on_a_host_asks(start: Start, tmp_path: Path) -> None:
    lab, wait = start(SPOT_SSH_MACHINES="2"), tmp_path / "go"
    lab.daemon.submit("long", command=WAITS.format(gate=wait))
    lab.until("long", lambda run: run["status"] == "running", "long to run")
    lab.daemon.submit("small", command="echo done")
    lab.until("small", lambda run: run["status"] == "completed", "small to complete without a question")
    assert "gpu1 is still used by long, so its bill goes on." in lab.told("small")
    assert lab.daemon.run("long")["status"] == "running"
    (meter,) = lab.daemon.call("GET", "/v1/machines")["meters"]
    assert (meter["state"], meter["runs"][0]) == ("in_use", "long")
    wait.touch()
    asks(lab, "long")

"""Machines that are kept for a person: asked before they go, kept for a while, and never longer than was said."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.acceptance.stories import Stories, pids_of, stories
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-people")
WORKS = 'echo result > "$SPOT_RESULTS_DIR/out.txt"'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("people")) as told:
        yield told


def test_a_machine_that_is_asked_for_goes_only_when_the_right_thing_is_approved(house: Stories) -> None:
    house.daemon.submit("ask", command=WORKS, on_success="ask")
    run = house.wait("ask", "awaiting_teardown", "failed")
    machine, results = run["machine_id"], run["results_manifest_sha256"]
    assert machine.startswith("local:")
    assert "Results verified (1 file, 7 B)" in run["status_text"]
    assert "is kept until you agree" in run["status_text"]
    assert "approve its release with `spot approve ask`" in run["status_text"]
    assert run["next_action"]["what"] == "needs you"
    assert pids_of(house.machine("ask").name)

    for wrong in (
        {"machine_id": machine + "0", "results_sha256": results},
        {"machine_id": machine, "results_sha256": "0" * 64},
        {"machine_id": machine},
    ):
        answer = house.post("/v1/runs/ask/approve", wrong)
        assert (answer.status_code, answer.json()["code"]) == (409, "APPROVAL_MISMATCH")
    stop = house.post("/v1/runs/ask/stop")
    assert (stop.status_code, stop.json()["status"]) == (202, "awaiting_teardown")
    assert "the work is finished and verified" in house.told("ask", "stop_ignored")[0]
    resume = house.post("/v1/runs/ask/resume")
    assert resume.status_code == 409
    assert "awaits approval" in resume.json()["detail"]
    assert house.daemon.run("ask")["status"] == "awaiting_teardown"
    assert pids_of(house.machine("ask").name)

    right = {"machine_id": machine, "results_sha256": results}
    assert house.post("/v1/runs/ask/approve", right).status_code == 202
    run = house.wait("ask", "completed")
    assert "results verified" in run["status_text"]
    assert f"approved the release of {machine}" in house.told("ask", "approved")[0]
    house.nothing_is_left("ask")
    again = house.post("/v1/runs/ask/approve", {**right, "machine_id": "another"})
    assert (again.status_code, again.json()["code"]) == (409, "NOTHING_TO_APPROVE")


def test_a_kept_machine_stays_so_long_and_then_goes(house: Stories) -> None:
    specs = {
        "kept-good": {"command": WORKS, "on_success": "keep"},
        "kept-bad": {"command": "echo oops; exit 4", "on_failure": "keep"},
        "kept-none": {"command": ["no-such-command"], "on_failure": "keep"},
    }
    began = time.time()
    for run_id, spec in specs.items():
        house.daemon.submit(run_id, **spec, keep_s=3)
    names, until = {}, {}
    for run_id in specs:
        run = house.wait(run_id, "completed", "partial", "failed")
        assert run["status"] == ("completed" if run_id == "kept-good" else "failed")
        assert "Its machine is kept until" in run["status_text"]
        assert run["next_action"]["what"].startswith("release in")
        assert run["kept_until"] == run["next_action"]["at"]
        names[run_id], until[run_id] = house.machine(run_id).name, run["kept_until"]
        assert pids_of(names[run_id])
        assert (house.machine(run_id) / "work").is_dir()
    for run_id in specs:
        house.nothing_is_left(run_id)
        [attempt] = house.attempts(run_id)
        assert attempt["gone_at"] >= until[run_id]
        assert house.told(run_id)[-1] == f"Machine {names[run_id]} is gone."
    assert time.time() - began >= 3


def test_a_kept_machine_goes_at_once_when_its_run_is_resumed(house: Stories) -> None:
    flag = house.folder / "fixed"
    house.daemon.submit("kept-resumed", command=f'test -e "{flag}" && {WORKS}', on_failure="keep", keep_s=3600)
    house.wait("kept-resumed", "failed")
    first = house.machine("kept-resumed").name
    assert pids_of(first)
    flag.touch()
    house.daemon.call("POST", "/v1/runs/kept-resumed/resume")
    assert house.wait("kept-resumed", "completed", "failed")["status"] == "completed"
    wait_for(lambda: not pids_of(first), 60, "the kept machine to go")
    house.nothing_is_left("kept-resumed")


def test_a_failure_that_is_repeated_keeps_no_machine(house: Stories) -> None:
    """on_failure is for the run's end: between two attempts nothing is kept."""
    command = f"if [ $SPOT_ATTEMPT = 1 ]; then exit 75; fi; {WORKS}"
    house.daemon.submit("kept-not", command=command, retry={"exit_codes": [75]}, on_failure="keep", keep_s=3600)
    assert house.wait("kept-not", "completed", "failed")["status"] == "completed"
    house.nothing_is_left("kept-not")

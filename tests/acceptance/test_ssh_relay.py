"""A host that reaches no store of the supervisor is cut off, comes back, and is lost for good in the end."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from tests.acceptance.cloud_story import training, twin
from tests.acceptance.test_ssh_digits import MACHINES, Lab
from tests.waiting import wait_for

CUT_OFF_S = 6.0  # six polls


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, store="relay", aliases=("gpu1", "gpu2"), SPOT_POLL_INTERVAL_S="1")
    yield lab
    lab.close()


def step_in(store: FolderStore) -> int:
    """Of the newest checkpoint that the baton names there."""
    pointer = batons.decode(store.get(runfiles.baton("digits"))[0]).checkpoint
    return 0 if pointer is None else pointer.step


def test_cut_off_then_back_then_lost_and_written_off(lab: Lab, tmp_path: Path) -> None:
    result = ("--result", "weights.npz", "--", *training(tmp_path / "gate"))
    lab.spot("submit", "--run-id", "digits", "--code", ".", *result)
    lab.until("digits", lambda run: (run["checkpoint_step"] or 0) >= 10, "a checkpoint of digits")
    here = FolderStore(lab.objects)
    there = FolderStore(next((lab.host.home / MACHINES / "stays").iterdir()) / "store")

    lab.host.stop()  # no connection any more; the training goes on
    before, copied = step_in(there), step_in(here)
    wait_for(lambda: step_in(there) > before, 60, "the training to go on")
    time.sleep(CUT_OFF_S)
    run = lab.daemon.run("digits")
    assert (run["status"], run["counters"]["attempts"]) == ("running", 1), lab.told("digits")
    assert step_in(here) <= max(before, copied), "nothing can have come"

    lab.host.start()
    wait_for(lambda: step_in(here) > before, 60, "the copy to follow")

    lab.host.end_all()  # lost for good, with everything that runs on it
    time.sleep(CUT_OFF_S)
    run = lab.daemon.run("digits")
    assert (run["status"], run["counters"]["attempts"]) == ("running", 1), lab.told("digits")
    kept = step_in(here)
    (tmp_path / "gate").touch()
    lab.spot("approve", "digits", "--write-off", "the box burned", "--yes")
    run = lab.until("digits", lambda run: run["status"] == "completed", "digits to complete elsewhere")
    attempts = lab.daemon.call("GET", "/v1/runs/digits/attempts")["attempts"]
    assert [attempt["cause"] for attempt in attempts] == ["host_error", "finished"]
    assert [attempt["placement"]["zone"] for attempt in attempts] == ["gpu1", "gpu2"]
    assert attempts[1]["step_from"] == kept
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()

"""Facts beside a real training: stored soon, at the lowest priority, and without delaying the training."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from supervisor.contract import heartbeat, runfiles
from tests.agent.machine_rig import RUN, Rig
from tests.waiting import wait_for


def stored_facts(rig: Rig) -> dict[str, object]:
    return json.loads(rig.text(runfiles.facts(RUN, 1)) or "{}")


def test_facts_are_stored_while_the_training_runs(rig: Rig) -> None:
    rig.start(*rig.toy("--steps", "20", "--wait-at", "5"), tracker_url="https://tracker.test/7")
    rig.at_step(5)
    facts = wait_for(lambda: stored_facts(rig))
    assert facts["python_executable"] == sys.executable
    assert facts["command"] == rig.toy("--steps", "20", "--wait-at", "5")
    assert facts["tracker_url"] == "https://tracker.test/7"
    assert facts["absent"] == {}
    rig.go()
    assert rig.ended().phase == heartbeat.FINISHED
    assert stored_facts(rig) == facts


def test_a_command_that_fails_at_once_leaves_its_facts(rig: Rig) -> None:
    rig.start(sys.executable, "-c", "import no_such_module_of_anybody")
    assert rig.ended().exit is not None
    assert stored_facts(rig)["python"] == "%d.%d.%d" % sys.version_info[:3]


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A `python3` that never responds, first on the PATH; it records its priority and its start."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nnice > {tmp_path}/asked\nexec sleep 600\n")
    python.chmod(0o755)
    return python


def test_a_python_that_hangs_does_not_delay_the_end(rig: Rig, tmp_path: Path, hanging: Path) -> None:
    path = os.pathsep.join([str(hanging.parent), os.environ["PATH"]])
    began = time.monotonic()
    rig.start("sh", "-c", f"while ! test -s {tmp_path}/asked; do sleep 0.05; done", env={"PATH": path})
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 0
    assert time.monotonic() - began < 15, "the probe's own limit was waited for"
    assert (tmp_path / "asked").read_text().strip() == "19"
    assert "python" not in stored_facts(rig)
    assert rig.survivors() == []

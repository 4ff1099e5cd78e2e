"""The agent as the first process of a container: signals arrive, ended processes are reaped, its exit code counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.contract import heartbeat
from tests.agent.machine_rig import Rig
from tests.components import require_component
from tests.waiting import wait_for

CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
# Each round leaves an orphan that dies at once; the steps go on meanwhile.
ORPHANS = """
import json, os, subprocess, sys, time
for step in range(1, 10_000):
    subprocess.run(["/bin/sh", "-c", "(true; true) & exec true"])
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as progress:
        progress.write(json.dumps({"step": step}) + chr(10))
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def container() -> tuple[str, ...]:
    try:
        possible = subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        possible = False
    require_component("unshare with user namespaces", possible, "util-linux; user namespaces allowed")
    return CONTAINER


def children_of(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def state_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def first_of(rig: Rig) -> int:
    """The container's first process, by its pid outside."""
    return wait_for(lambda: next(iter(children_of(rig.agent.pid)), 0), 30, "the first process")


def test_term_reaches_the_command_and_orphans_are_reaped(rig: Rig, container: tuple[str, ...]) -> None:
    rig.wrapper = container
    rig.start(sys.executable, "-S", "-c", ORPHANS)
    rig.beat_with("30 steps", lambda beat: (beat.step or 0) >= 30)
    first = first_of(rig)
    dead = [pid for pid in children_of(first) if state_of(pid) == "Z"]
    assert len(dead) < 10, "orphans stay as zombies"
    os.kill(first, signal.SIGTERM)
    assert rig.ended().left == heartbeat.STOPPED
    assert rig.agent.returncode == 0


def test_leftover_processes_end_with_the_agent(rig: Rig, container: tuple[str, ...]) -> None:
    rig.wrapper = container
    rig.start(*rig.toy("--steps", "4", "--stray"))
    end = rig.ended().exit
    assert end is not None
    assert end.code == 0
    assert rig.agent.returncode == 0
    assert wait_for(lambda: not rig.survivors(), 10, "an empty container")


def test_its_exit_code_is_that_of_the_agent(archive: Path, tmp_path: Path, container: tuple[str, ...]) -> None:
    command = [*container, sys.executable, str(archive), str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 3
    assert "job.json" in refused.stderr

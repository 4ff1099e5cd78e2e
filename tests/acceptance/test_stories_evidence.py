"""Ends that look alike, told apart by what was kept of them: memory, disks, strangers, locks, machines that vanish."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.cgroups import enter, memory_group
from tests.acceptance.daemon import Daemon
from tests.acceptance.disks import SmallDisk
from tests.acceptance.own_mounts import own_mounts
from tests.acceptance.stories import STORY, Stories, stories

pytestmark = pytest.mark.xdist_group("stories-evidence")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("evidence")) as told:
        yield told


def evidence(house: Stories, run_id: str, number: int = 1) -> Any:
    """As the API gives it, once the agent's last word is in it."""

    def kept() -> Any:
        answer = house.daemon.http.get(f"{house.daemon.url}/v1/runs/{run_id}/attempts/{number}/evidence")
        return answer.json() if answer.status_code == 200 else None

    return house.until(kept, 60, f"the evidence of {run_id}")


def spot(house: Stories, *words: str) -> str:
    """What the command line prints."""
    done = forked.spot(*words, environ={**os.environ, **house.daemon.for_cli()})
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(house: Stories, name: str, script: str) -> list[str]:
    path = house.folder / f"{name}.py"
    path.write_text(textwrap.dedent(script))
    return [sys.executable, "-S", str(path)]


# --- memory -----------------------------------------------------------------------------------------------------------

EATS = """
    import time
    from pathlib import Path
    Path("/proc/self/oom_score_adj").write_text("1000")
    print("loads its data", flush=True)
    group, held = Path("GROUP"), []
    version_1 = (group / "memory.usage_in_bytes").exists()
    used, limit = ("memory.usage_in_bytes", "memory.limit_in_bytes") if version_1 else ("memory.current", "memory.max")

    def share():
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cache = int(stat["total_inactive_file" if version_1 else "inactive_file"])
        return (int((group / used).read_text()) - cache) / int((group / limit).read_text())

    while not Path("GATE").exists():  # until a beat has shown it; what others give back in the meantime is filled too
        if share() < 0.97:
            held.append(bytearray(b"x" * (1 << 20)))
        else:
            time.sleep(0.02)
    while True:
        held.append(bytearray(b"x" * (8 << 20)))
"""


class Limited(Daemon):
    """In a control group with its machines: to an agent the supervisor is another user of the group."""

    def __init__(self, data_dir: Path, environ: dict[str, str], group: Path) -> None:
        super().__init__(data_dir, environ)
        self.first = partial(enter, group)


def _share(run: Any) -> float:
    """Of its memory in use, as the last beat says."""
    cgroup = (run["telemetry"] or {}).get("cgroup") or {}
    return float(cgroup.get("memory_bytes") or 0) / float(cgroup.get("memory_max_bytes") or 1)


def test_the_memory_limit_of_a_real_control_group(tmp_path: Path) -> None:
    with memory_group(f"spot-story-{os.getpid()}") as group:
        if group is None:
            pytest.skip("no control group can be made here; test_exits holds the recorded figures")
        daemon = Limited(tmp_path / "data", STORY, group)
        try:
            daemon.start()
            told = Stories(daemon, tmp_path)
            script = EATS.replace("GROUP", str(group)).replace("GATE", str(told.gate("eats")))
            daemon.submit("eats", command=command(told, "eats", script), limits={"max_attempts": 1})
            told.until(lambda: _share(told.daemon.run("eats")) >= 0.95, 60, "a beat that shows a full group")
            told.open_gate("eats")
            run = told.wait("eats", "failed")
            [attempt] = told.attempts("eats")
            assert attempt["cause"] == "host_oom", (attempt, told.told("eats"))
            assert "likely: the kernel counted 1 kill in a group that others use too" in attempt["evidence"]
            assert "num_workers" in run["status_text"] + attempt["evidence"]
            assert "batch can stay" in attempt["evidence"]
            kept = evidence(told, "eats")
            assert kept["cause"] == "host_oom"
            assert (kept["exit"]["signal"], kept["exit"]["sent_by_us"]) == (signal.SIGKILL, False)
            assert kept["exit"]["oom_kills"] == kept["agent"]["oom_kills"] == 1
            assert kept["log_tail"][-1] == "loads its data"
            told.nothing_is_left("eats")
        finally:
            daemon.close()


# --- disks ------------------------------------------------------------------------------------------------------------

# A failed write gives its last pages back, so a little room is left at the end, as it is in life.
BY_BYTES = """
    import os
    kept = open("kept", "wb")
    kept.write(b"x" * 262144)
    kept.close()
    try:
        with open("big", "wb", buffering=0) as target:
            while True:
                target.write(b"x" * 65536)
    finally:
        os.unlink("kept")
"""
BY_INODES = """
    import itertools, os
    try:
        for number in itertools.count():
            open(f"sample-{number}", "w").close()
    finally:
        for back in range(3):
            os.unlink(f"sample-{back}")
"""
MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$0"'


class SmallMachines(Daemon):
    """The folders of its machines lie on a tmpfs of its own, which nobody else sees."""

    def __init__(self, data_dir: Path, options: str) -> None:
        super().__init__(data_dir, STORY)
        machines = data_dir / "machines"
        machines.mkdir(parents=True)
        self.first = partial(own_mounts, MOUNT, str(machines), options)


@pytest.mark.parametrize(
    ("name", "options", "script", "figure"),
    [
        ("bytes", "size=8m", BY_BYTES, "0 of 8 MiB are free"),
        ("inodes", "size=64m,nr_inodes=500", BY_INODES, "of 500 inodes are free"),
    ],
)
def test_a_full_disk_says_whether_bytes_or_inodes_ran_out(
    tmp_path: Path, name: str, options: str, script: str, figure: str
) -> None:
    if not SmallDisk.allowed(tmp_path):
        pytest.skip("nothing can be mounted here; test_exits holds the recorded figures")
    daemon = SmallMachines(tmp_path / "data", options)
    try:
        daemon.start()
        told = Stories(daemon, tmp_path)
        daemon.submit(name, command=command(told, name, script), limits={"max_attempts": 1})
        run = told.wait(name, "waiting")
        assert f"`spot retry {name}` lets it go on" in run["needs_person"]
        [attempt] = told.attempts(name)
        assert attempt["cause"] == "disk_full", attempt
        assert "disk full (certain: " in attempt["evidence"]
        assert figure in attempt["evidence"]
        kept = evidence(told, name)
        assert figure in kept["exit"]["disk_full"]
        assert "No space left on device" in kept["exit"]["last_line"]
        assert kept["agent"]["disks"]["checkpoints"]["free_bytes"] is not None
        told.post(f"/v1/runs/{name}/stop")
        told.wait(name, "stopped")
        told.nothing_is_left(name)
    finally:
        daemon.close()


# --- strangers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_of_a_stranger_is_not_taken_for_anything_else(house: Stories, number: signal.Signals) -> None:
    run_id = f"by-{number.name.lower()}"
    house.train(run_id, limits={"max_attempts": 1})
    house.trains(run_id)
    for pid in house.training_pids(run_id):
        os.kill(pid, number)
    attempt = house.ended(run_id)
    assert attempt["cause"] == "killed"
    assert f"{number.name}" in attempt["evidence"]
    assert "the agent did not send it" in attempt["evidence"]
    assert ("not out of memory: the counter stood still" in attempt["evidence"]) == (number == signal.SIGKILL)
    kept = evidence(house, run_id)
    assert kept["cause"] == "killed"
    assert kept["agent"]["when"] == "end"
    assert kept["agent"]["signals_sent"] == []
    assert not kept["exit"]["sent_by_us"]
    assert kept["readings"]["end"]
    assert kept["beat"]["step"] >= 1


# --- locks ------------------------------------------------------------------------------------------------------------

DEADLOCK = """
    import threading, time
    import spot_progress
    lock_a, lock_b = threading.Lock(), threading.Lock()

    def backwards():
        with lock_b:
            time.sleep(0.2)
            with lock_a:
                pass

    for step in range(3):
        spot_progress.report(step)
        time.sleep(0.6)
    threading.Thread(target=backwards).start()
    with lock_a:
        time.sleep(0.4)
        with lock_b:
            pass
"""


def test_deadlocked_threads_are_stalled_with_a_dump_that_names_the_lock(house: Stories) -> None:
    house.daemon.submit(
        "dead", command=command(house, "dead", DEADLOCK), stall={"polls": 8}, limits={"max_attempts": 1}
    )
    house.wait("dead", "failed")
    [attempt] = house.attempts("dead")
    assert attempt["cause"] == "stalled"
    kept = evidence(house, "dead")
    [dump] = [one for one in kept["agent"]["stall"]["threads"] if "dead.py" in one["command"]]
    assert dump["how"] == "faulthandler"
    assert "with lock_b:" in dump["text"]
    assert "with lock_a:" in dump["text"]
    assert kept["agent"]["when"] == "stall"
    released = house.until(lambda: evidence(house, "dead")["readings"]["release"], 60, "those of the release")
    assert released[0].startswith("listing: up")
    shown = spot(house, "show", "dead", "--evidence")
    assert "with lock_b:" in shown
    brief = spot(house, "show", "dead")
    assert "Evidence of attempt 1: stalled" in brief
    assert "threads of process" in brief
    house.nothing_is_left("dead")


# --- machines that vanish ---------------------------------------------------------------------------------------------


def test_a_machine_that_is_taken_without_notice_leaves_the_supervisors_part(house: Stories) -> None:
    house.train("taken")
    house.trains("taken", beyond=2)
    house.saved("taken")
    house.until(lambda: house.log("taken"), 30, "some of the log")
    assert house.post("/v1/dev/preempt", {"run_id": "taken", "notice_s": 0}).status_code == 200
    house.ended("taken")
    kept = evidence(house, "taken")
    assert kept["cause"] == "preempted"
    assert kept["agent"] is None
    assert kept["agent_missing"] == "the agent left none"
    assert kept["log_tail"][0] == "begins at step 0"
    assert kept["beat"]["phase"] == "training"
    assert kept["beat"]["step"] >= 2
    assert any(reading.startswith("listing: ") for reading in kept["readings"]["end"])
    house.completes("taken")
    last = evidence(house, "taken", 2)
    assert (last["cause"], last["agent"]["when"], last["exit"]) == ("finished", "end", None)
    assert last["agent"]["exit"]["code"] == 0


def test_a_machine_that_is_told_of_its_end_leaves_the_agents_part_too(house: Stories) -> None:
    """The attempt is over with the notice; its agent goes on saving, and writes its part last."""
    house.train("told")
    house.trains("told", beyond=2)
    assert house.post("/v1/dev/preempt", {"run_id": "told", "notice_s": 8}).status_code == 200
    assert house.ended("told")["cause"] == "preempted"
    agent = house.until(lambda: evidence(house, "told")["agent"], 60, "the agent's part")
    assert (agent["when"], agent["left"], agent["signals_sent"]) == ("end", "noticed", [signal.SIGTERM])
    assert agent["exit"]["sent_by_us"]
    house.completes("told")


def test_a_supervisor_that_dies_at_the_end_of_an_attempt_makes_up_for_it(tmp_path: Path) -> None:
    with stories(tmp_path) as told:
        told.daemon.submit("late", command="echo the last words; exit 3", on_failure="keep", keep_s=3600)
        told.wait("late", "failed")
        path = told.objects / runfiles.evidence("late", 1)
        told.until(path.exists, 30, "the evidence")
        told.daemon.kill()
        path.unlink()  # as if it had died before it could write
        told.daemon.start()
        assert evidence(told, "late")["log_tail"] == ["the last words"]


def test_an_attempt_that_goes_on_says_that_its_evidence_will_come(house: Stories) -> None:
    house.train("goes-on")
    house.trains("goes-on")
    answer = house.daemon.http.get(f"{house.daemon.url}/v1/runs/goes-on/attempts/1/evidence")
    assert (answer.status_code, answer.json()["code"]) == (404, "EVIDENCE_NOT_FOUND")
    assert "is not over. Its evidence is kept when it ends" in answer.json()["detail"]
    answer = house.daemon.http.get(f"{house.daemon.url}/v1/runs/goes-on/attempts/x/evidence")
    assert (answer.status_code, answer.json()["code"]) == (404, "EVIDENCE_NOT_FOUND")
    house.completes("goes-on")

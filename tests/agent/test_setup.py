"""The setup on a real machine: once for each machine and content, alone, in time, and never half done."""

import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.life.setup import KEPT, OF_RUN, Step, _of_tree, forget_oldest, own_folder
from supervisor.contract import baton, heartbeat
from supervisor.domain.bases import SETUP
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for

HASH, OTHER = "a" * 64, "b" * 64
UNREACHED = "[Errno -3] Temporary failure in name resolution"
RAN = 'echo ran >> "$OUT/ran"'
UNTIL_HEARD = 'while [ ! -e "$OUT/heard" ]; do sleep 0.05; done'  # a quick setup is over before its beat is pushed


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    return tmp_path / "markers"


def start(rig: Rig, markers: Path, *setup: str, sha256: str = HASH, **job: Any) -> None:
    out = markers.parent / "out"
    out.mkdir(exist_ok=True)
    steps = [{"name": "setup", "sha256": sha256, "commands": list(setup)}]
    setup_of_job = {"steps": steps, "limit_s": job.pop("limit_s", 60.0), "folder": str(markers)}
    fields = {"setup": setup_of_job, "env": {"OUT": str(out)}, **job}
    rig.start("/bin/sh", "-c", 'echo trained >> "$OUT/trained"', **fields)


def lines(markers: Path, name: str) -> int:
    path = markers.parent / "out" / name
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_it_runs_once_for_each_machine_and_content(rig: Rig, markers: Path) -> None:
    rig.given = json.dumps({"API_KEY": "hush-qvzx-hush"}).encode()
    says = 'echo "key $API_KEY of $SPOT_RUN_ID"'
    start(rig, markers, f"{says}\n{RAN}", UNTIL_HEARD, secrets=["API_KEY"])
    rig.beat_with("the setup", lambda beat: beat.phase == heartbeat.SETUP)
    (markers.parent / "out" / "heard").touch()
    assert rig.ended().exit is not None
    assert (lines(markers, "ran"), lines(markers, "trained")) == (1, 1)
    log = rig.log()
    assert b"spot: setup, 1 of 2: " in log
    assert b" of digits-7\n" in log
    assert b"hush-qvzx" not in log
    assert sorted(path.name for path in markers.iterdir()) == [HASH, "lock"]


def test_a_second_attempt_there_does_not_repeat_it_and_other_content_does(rig: Rig, markers: Path) -> None:
    ends = RAN + "; kill -TERM 0"  # never marked as done
    start(rig, markers, RAN)
    rig.ended()
    rig.write(baton.create("sup-1", 1))
    start(rig, markers, RAN)
    rig.ended()
    assert (lines(markers, "ran"), lines(markers, "trained")) == (1, 2)
    assert b"setup: done on this machine before" in rig.log()
    rig.write(baton.create("sup-1", 1))
    start(rig, markers, ends, sha256=OTHER)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.in_setup, last.exit.signal) == (True, signal.SIGTERM)
    assert (lines(markers, "ran"), lines(markers, "trained")) == (2, 2)
    assert not (markers / OTHER).exists()


def test_changed_code_is_other_content_for_the_runs_own_commands() -> None:
    """Broken variant: `pip install -r requirements.txt` of changed code marked the bundle's own as installed."""
    own, base = Step(OF_RUN, HASH, ("true",)), Step("base vision-v1", HASH, ("true",))
    assert OF_RUN == SETUP
    assert _of_tree(own, "") == own
    assert len({HASH, _of_tree(own, "t1").sha256, _of_tree(own, "t2").sha256}) == 3
    assert _of_tree(base, "t1") == base


def test_a_failure_has_its_exit_its_last_line_and_its_words_and_no_marker(rig: Rig, markers: Path) -> None:
    text = f"echo '{UNREACHED}'\necho 'ERROR: no timm' >&2\nfalse\ntouch never"
    start(rig, markers, text)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.code, last.exit.in_setup, last.exit.last_line) == (1, True, UNREACHED)
    assert "no_network" in last.signs
    assert not last.exit.work_done
    assert (lines(markers, "trained"), (markers / HASH).exists()) == (0, False)
    assert b"ERROR: no timm\n" in rig.log()
    assert rig.baton.holder is None or rig.baton.done is None
    assert rig.exit_record()["exit"]["in_setup"] is True


def test_its_limit_ends_it_with_all_that_it_started(rig: Rig, markers: Path) -> None:
    start(rig, markers, "sleep 300 & sleep 300", limit_s=0.5)
    last = rig.ended()
    assert last.exit is not None
    assert (last.exit.code, last.exit.last_line) == (124, heartbeat.SETUP_LATE % 0.5)
    assert not (markers / HASH).exists()


def test_a_stop_ends_it_quickly_and_is_no_failure_of_it(rig: Rig, markers: Path) -> None:
    start(rig, markers, RAN + "; exec sleep 300")
    wait_for(lambda: lines(markers, "ran"), what="the setup to begin")
    began = time.monotonic()
    rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert (last.left, last.exit) == (heartbeat.STOPPED, None)
    assert time.monotonic() - began < 8
    assert not (markers / HASH).exists()


def test_a_killed_agent_leaves_no_marker_and_the_lock_of_another_is_waited_for(rig: Rig, markers: Path) -> None:
    start(rig, markers, RAN + "; exec sleep 300")
    wait_for(lambda: lines(markers, "ran"), what="the setup to begin")
    os.killpg(rig.agent.pid, signal.SIGKILL)
    rig.agent.wait()
    assert not (markers / HASH).exists()
    with (markers / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        start(rig, markers, RAN, attempt=2, holder_gone=True)
        waits = "waiting for the setup of another run on this machine"
        rig.beat_with("the wait", lambda b: waits in b.message)
        assert lines(markers, "ran") == 1
    rig.ended()
    assert (lines(markers, "ran"), lines(markers, "trained")) == (2, 1)


def test_markers_that_others_could_have_written_are_not_believed(rig: Rig, markers: Path) -> None:
    markers.mkdir()
    markers.chmod(0o777)
    (markers / HASH).touch()
    start(rig, markers, RAN)
    rig.ended()
    assert (lines(markers, "ran"), lines(markers, "trained")) == (1, 1)
    assert b"is not this user's own" in rig.log()


def test_a_folder_is_ours_alone_or_not_used(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert own_folder(str(made)) == str(made)
    assert made.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(made)
    assert own_folder(str(tmp_path / "link")) is None
    (tmp_path / "file").touch()
    assert own_folder(str(tmp_path / "file")) is None
    assert own_folder(str(tmp_path / "file" / "below")) is None


def test_markers_do_not_grow_for_ever(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        path = tmp_path / f"{number:064}"
        path.touch()
        os.utime(path, (number, number))
    (tmp_path / "lock").touch()
    forget_oldest(str(tmp_path))
    left = sorted(path.name for path in tmp_path.iterdir())
    assert (len(left), left[0], "lock" in left) == (KEPT + 1, f"{5:064}", True)

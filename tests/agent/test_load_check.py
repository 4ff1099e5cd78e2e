"""`verify` runs on the files from the store, and decides whether the work is done."""

import os
import shlex
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from supervisor.contract import heartbeat
from tests.agent.machine_rig import RUN, Rig
from tests.waiting import wait_for

PREFIX = f"runs/{RUN}/results/g1/"
WRITES = 'printf "good" > "$SPOT_RESULTS_DIR/model.npz"; echo x > "$SPOT_RESULTS_DIR/other.txt"'


def rule(verify: str, path: str = "*.npz", **more: Any) -> list[dict[str, Any]]:
    return [{"path": path, "min_count": 1, "verify": verify, **more}]


def start(rig: Rig, command: str, results: list[dict[str, Any]], **job: Any) -> None:
    rig.start("/bin/sh", "-c", command, results=results, **job)


def test_the_check_sees_the_files_from_the_store_and_nothing_else(rig: Rig) -> None:
    seen_files = rig.machine / "seen"
    look = f'(ls "$SPOT_RESULTS_DIR"; pwd; echo $MODE) > {seen_files}; echo "loaded well"'
    verify = look + '; grep -q good "$SPOT_RESULTS_DIR/model.npz"'
    start(rig, WRITES, rule(verify), env={"MODE": "strict"})
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 0
    assert seen_files.read_text().split() == ["model.npz", str(rig.machine / "work" / "scratch"), "strict"]
    assert rig.baton.done is not None
    assert [entry.name for entry in rig.baton.done.results] == ["model.npz", "other.txt"]
    assert not (rig.machine / "work" / "readback").exists()
    assert rig.log().endswith(b"loaded well\n")
    assert b"spot: verify *.npz: " in rig.log()


def test_a_file_that_cannot_be_loaded_needs_a_person_and_shows_the_last_line(rig: Rig) -> None:
    verify = "echo 'not a zip file' >&2; exit 3"
    start(rig, WRITES, rule(verify), env={"SPOT_X": "1"})
    beat = rig.beat_with("a person is asked", lambda b: b.phase == "finished", deadline_s=60)
    assert "verify of *.npz ended with exit code 3: not a zip file" in beat.message
    assert rig.baton.done is None
    assert rig.agent.poll() is None, "the machine is kept"
    assert rig.log().count(b"not a zip file\n") == 3, "three tries, all in the log"
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.ended().left == heartbeat.STOPPED
    assert rig.baton.done is None


def test_a_log_that_became_a_pipe_is_no_obstacle(rig: Rig) -> None:
    start(rig, f"{WRITES}; rm ../output.log; mkfifo ../output.log", rule('grep -q good "$SPOT_RESULTS_DIR/model.npz"'))
    last = rig.ended()
    assert last.exit is not None
    assert last.exit.code == 0
    assert rig.baton.done is not None


def test_an_object_that_changed_since_its_upload_is_not_loaded(rig: Rig) -> None:
    """The first check overwrites the object of the second rule, which must not be trusted any more."""
    key = rig.store.root + "/" + PREFIX + "other.txt"
    results = [*rule(f"echo tampered > {shlex.quote(key)}"), *rule("true", "other.txt")]
    start(rig, WRITES, results)
    beat = rig.beat_with("the difference", lambda b: "differs" in b.message, deadline_s=60)
    assert "could not be read back: other.txt differs from its checksum" in beat.message
    assert rig.baton.done is None


def test_too_few_files_are_judged_by_the_supervisor(rig: Rig) -> None:
    start(rig, WRITES, rule("exit 1", "missing-*.npz"))
    assert rig.ended().exit is not None
    assert rig.baton.done is not None


def test_a_stop_ends_a_check_when_its_grace_is_over(rig: Rig) -> None:
    flag = rig.machine / "checking"
    start(rig, WRITES, rule(f"touch {flag}; exec sleep 300"), stop_grace_s=0.5)
    wait_for(flag.exists, what="the check to begin")
    rig.agent.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert rig.ended().left == heartbeat.STOPPED
    assert time.monotonic() - began < 10
    assert rig.baton.done is None
    assert rig.survivors() == []
    assert not (rig.machine / "work" / "readback").exists()


def test_a_check_that_is_quick_wins_over_a_stop(rig: Rig) -> None:
    flag, go = rig.machine / "checking", rig.machine / "go"
    start(rig, WRITES, rule(f"touch {flag}; while [ ! -e {go} ]; do sleep 0.05; done"))
    wait_for(flag.exists, what="the check to begin")
    rig.agent.send_signal(signal.SIGTERM)
    go.touch()
    rig.ended()
    assert rig.baton.done is not None


def test_leftover_processes_of_a_check_are_killed(rig: Rig) -> None:
    start(rig, WRITES, rule("sleep 300 & true"))
    rig.ended()
    assert rig.baton.done is not None
    assert rig.survivors() == []


LIMITED = """
import sys
sys.path.insert(0, ARCHIVE)
from supervisor.agent.life import results
from supervisor.agent.__main__ import main
results.LIMIT_S = 0.5
sys.exit(main())
"""


def test_a_check_that_takes_too_long_is_killed(tmp_path: Path, archive: Path) -> None:
    """The agent with a limit of half a second instead of an hour."""
    agent = tmp_path / "agent.py"
    agent.write_text(LIMITED.replace("ARCHIVE", repr(os.fspath(archive))))
    with closing(Rig(tmp_path, agent)) as rig:
        start(rig, WRITES, rule("exec sleep 300"))
        beat = rig.beat_with("the limit", lambda b: "took longer" in b.message, deadline_s=60)
        assert "verify of *.npz took longer than 0.5 s" in beat.message
        assert rig.baton.done is None

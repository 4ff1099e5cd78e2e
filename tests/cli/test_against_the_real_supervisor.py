"""The command line and a real supervisor understand each other: one short training from submit to its log.

Everything about the supervisor itself is tested elsewhere; here only what both sides must agree on.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_for

TRAINING = "import time\nfor n in range(4):\n    print('line', n, flush=True)\n    time.sleep(0.1)\n"


@pytest.fixture
def supervisor(clean: Path):
    """`spot serve` with a quick loop; killed at the end if it has not ended before. (process, data folder)"""
    folder = clean / "data"
    env = {
        **os.environ, "SPOT_DATA_DIR": str(folder), "SPOT_POLL_INTERVAL_S": "0.2", "SPOT_BEAT_PUSH_S": "0.2",
        "SPOT_LOCAL_PRICES": "cpu=0.3/0.9",
    }  # fmt: skip
    with (
        (clean / "serve.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "supervisor", "serve", "--port", "0"], env=env, stderr=log
        ) as process,
    ):
        try:
            wait_for((folder / "server.json").exists, what="server.json")
            yield process, folder
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=30)


def test_from_submit_to_log(supervisor, run_cli, clean: Path) -> None:
    process, folder = supervisor
    assert json.loads((folder / "server.json").read_text())["pid"] == process.pid
    here = ("--data-dir", str(folder))
    wait_for(lambda: run_cli("health", *here).code == 0, what="readiness")
    file = clean / "train.yaml"
    file.write_text(
        f"run_id: short-1\ncommand: [{sys.executable}, -c, {json.dumps(TRAINING)}]\nlabels: {{team: a}}\n"
    )

    submitted = run_cli("submit", str(file), *here)
    assert (submitted.code, submitted.err) == (0, "")
    assert run_cli("ls", "-s", "pending", "-s", "running", "-l", "team=b", "-o", "name", *here).out == ""
    ended = run_cli("watch", "--timeout", "60s", *here)
    assert ended.code == 0, ended.out + ended.err
    assert ended.lines[-1].startswith("✔ completed  Completed after ")

    run = json.loads(run_cli("show", "-o", "json", *here).out)
    assert (run["run_id"], run["status"], run["labels"]) == ("short-1", "completed", {"team": "a"})
    assert [attempt["cause"] for attempt in run["attempts"]] == ["finished"]
    assert run_cli("logs", *here).out == "line 0\nline 1\nline 2\nline 3\n"
    assert run_cli("logs", "-f", *here).out == "line 0\nline 1\nline 2\nline 3\n"
    kinds = [
        event["kind"]
        for event in json.loads(run_cli("events", "--since", "1h", "-o", "json", *here).out)["events"]
    ]
    assert (kinds[0], "completed" in kinds) == ("submitted", True)
    assert (
        run_cli("ls", "-l", "team=a", "--since", "1h", "-q", "short", "-o", "name", *here).out == "short-1\n"
    )
    assert "on-demand" in run_cli("cost", *here).out
    assert run_cli("doctor", *here).code in (
        0,
        1,
    )  # a slow or full disk is a warning, and no matter of this test

    assert run_cli("submit", str(file), *here).code == 6  # completed: says rerun
    assert run_cli("resume", *here).code == 6
    assert run_cli("stop", "short-1", *here).code == 0  # terminal is terminal: as it is
    assert run_cli("show", "no-such-run", *here).code == 5
    assert run_cli("dev", "kill", "short-1", *here).code == 6
    refused = run_cli("submit", "--zone", "nowhere", *here, "--", "x")
    assert refused.code == 2
    assert "nowhere" not in refused.err

    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 0
    assert not (folder / "server.json").exists()
    assert run_cli("ls", *here).code == 7

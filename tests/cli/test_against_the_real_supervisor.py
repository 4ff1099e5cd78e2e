"""The command line and a real supervisor understand each other: one short training from submit to its log.

Everything about the supervisor itself is tested elsewhere; here only what both sides must agree on.
"""

import json
import signal
import sys
from pathlib import Path

from tests.acceptance.daemon import Daemon
from tests.waiting import wait_for

TRAINING = """
import spot_progress, time
for n in range(4):
    print('line', n, flush=True)
    spot_progress.report(n + 1, loss=float("nan") if n == 2 else 1 / (n + 1))
    time.sleep(0.1)
"""


def reported(run_cli, here: tuple[str, str]) -> None:
    """Each step's loss once, and what was not finite."""
    points = [line.split(",") for line in run_cli("metrics", "--csv", *here).lines[1:]]
    assert [(name, step, attempt, value) for name, step, attempt, _, value in points] == [
        ("loss", "1", "1", "1.0"), ("loss", "2", "1", "0.5"), ("loss", "3", "1", "nan"), ("loss", "4", "1", "0.25"),
    ]  # fmt: skip
    assert "loss is not finite at step 3 for the first time." in run_cli("metrics", *here).err
    assert "The lowest loss: short-1, 0.25 at step 4." in run_cli("compare", "short-1", *here).lines


def test_from_submit_to_log(daemon: Daemon, run_cli, clean: Path) -> None:
    here = ("--data-dir", str(daemon.data_dir))
    assert run_cli("health", *here).code == 0
    file = clean / "train.yaml"
    file.write_text(f"run_id: short-1\ncommand: [{sys.executable}, -c, {json.dumps(TRAINING)}]\nlabels: {{team: a}}\n")

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
        event["kind"] for event in json.loads(run_cli("events", "--since", "1h", "-o", "json", *here).out)["events"]
    ]
    assert (kinds[0], "completed" in kinds) == ("submitted", True)
    assert run_cli("ls", "-l", "team=a", "--since", "1h", "-q", "short", "-o", "name", *here).out == "short-1\n"
    assert "on-demand" in run_cli("cost", "short-1", *here).out
    assert run_cli("cost", "-o", "name", *here).out == "short-1\n"

    reported(run_cli, here)

    def purged() -> bool:
        return run_cli("purge", "short-1", "--confirm", "short-1", *here).code == 0

    wait_for(purged, 30, "the run to be settled, and purged")  # refused while its records are being written
    assert run_cli("logs", "short-1", *here).code == 5
    assert "The stored metrics of this attempt were purged." in run_cli("metrics", "short-1", *here).err
    assert "Its files were purged at" in run_cli("show", "short-1", *here).out
    assert run_cli("doctor", *here).code in (0, 1)  # a slow or full disk is a warning, and no matter of this test

    assert run_cli("submit", str(file), *here).code == 6  # completed: says rerun
    assert run_cli("resume", *here).code == 6
    assert run_cli("stop", "short-1", *here).code == 0  # terminal is terminal: as it is
    assert run_cli("show", "no-such-run", *here).code == 5
    assert run_cli("dev", "kill", "short-1", *here).code == 6
    refused = run_cli("submit", "--zone", "nowhere", *here, "--", "x")
    assert refused.code == 2
    assert "nowhere" not in refused.err

    assert daemon.kill(signal.SIGTERM) == 0
    assert not (daemon.data_dir / "server.json").exists()
    assert run_cli("ls", *here).code == 7

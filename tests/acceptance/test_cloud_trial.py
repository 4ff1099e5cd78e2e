"""`spot trial` on the tests' cloud, as a process of its own: the whole way, a failure, Ctrl-C and a kill.

Each time nothing is left: no machine, no object, no process. The recording of the whole way holds no secret, and the
fakes answer it as they did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cloud_story import DURATIONS, PACE, ROOT
from tests.acceptance.daemon import OF_WHO_TESTS
from tests.cloud.cloud import BUCKET, Cloud
from tests.forked import Forked
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")

WHOLE_S = 180.0
PHASES = [
    "doctor", "supervisor", "machine", "driver", "container", "beat", "card", "bucket", "notice", "resume", "finish",
    "delete", "clean",
]  # fmt: skip


class Trial:
    """`start` may be called again: the same data folder, another report."""

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        self.folder, self.cloud, self.out = folder, cloud, folder / "report"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_WHO_TESTS)}
        own = {"SPOT_DATA_DIR": str(folder / "data"), "SPOT_ALERT_URL": "https://nobody.example/hook", "NO_COLOR": "1"}
        self.environ = {**kept, **PACE, **cloud.environment(), **own}
        self.process: Forked | subprocess.Popen[str] | None = None

    def start(self, *words: str, said: int | None = None) -> Forked | subprocess.Popen[str]:
        """A fork. `said`: a descriptor for what it says, in place of the file that `said()` reads; then it is the
        command itself."""
        command = ["trial", "--out", str(self.out), *words]
        if said is None:
            log = self.folder / "trial.out"
            log.unlink(missing_ok=True)
            self.process = Forked("supervisor", command, self.environ, log, folder=self.folder)
        else:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).with_name("spot")), *command],
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                text=True,
            )
        return self.process

    def run(self, *words: str) -> int:
        return self.start(*words).wait(WHOLE_S)

    def said(self) -> str:
        return (self.folder / "trial.out").read_text()

    def report(self) -> Any:
        return json.loads((self.out / "report.json").read_text())

    def results(self) -> dict[str, str]:
        return {phase["name"]: phase["result"] for phase in self.report()["phases"]}

    def trains(self) -> None:
        """A machine is rented and the training counts."""
        assert self.process is not None

        def seen() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.said()
            return any("/trial/" in name for name in self.cloud.storage.names(BUCKET)) and "beat" in self.said()

        wait_for(seen, WHOLE_S, "the training of the trial")

    def nothing_is_left(self) -> None:
        assert self.cloud.compute.names() == []
        assert self.cloud.storage.names(BUCKET) == []
        assert not (self.folder / "data" / "trial").exists()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WHOLE_S)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    cloud = Cloud(tmp_path / "vms")
    for name, value in DURATIONS.items():
        setattr(cloud.compute, name, value)
    made = Trial(tmp_path, cloud)
    try:
        yield made
    finally:
        made.close()
        cloud.close()


def test_the_whole_way_is_reported_recorded_and_leaves_nothing(trial: Trial) -> None:
    assert trial.run("--yes", "--image", trial.cloud.image()) == 0, trial.said()
    said = trial.said()
    assert list(trial.results()) == PHASES
    assert set(trial.results().values()) == {"ok"}
    assert "costs up to $" in said
    assert "at most $" in said
    report = trial.report()
    assert report["ok"] is True
    assert report["cost_usd"] is not None
    seen = {phase["name"]: phase["seen"] for phase in report["phases"]}
    assert "GPUs respond" in seen["driver"]
    assert "Tesla T4" in seen["card"]
    assert "preempted" in seen["notice"]
    assert "attempt 2" in seen["resume"]
    assert "attempt_ended" in [event["kind"] for event in report["events"]]
    assert "spot: phase=driver" in (trial.out / "console.log").read_text()
    assert trial.cloud.compute.count("POST", "simulateMaintenanceEvent") == 1
    trial.nothing_is_left()
    _recorded(trial)
    replay = ["make", "replay", f"RECORDING={trial.out / 'recording.jsonl'}"]
    told = subprocess.run(replay, cwd=ROOT, capture_output=True, text=True, timeout=WHOLE_S, check=False)
    assert (told.returncode, told.stdout.splitlines()[-1].endswith(" exchanges, 0 differences")) == (0, True), told


def _recorded(trial: Trial) -> None:
    recording = trial.out / "recording.jsonl"
    assert recording.stat().st_mode & 0o077 == 0
    text = recording.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    asked = {(line["method"], line["path"].rpartition("/")[2]) for line in lines}
    assert {("POST", "instances"), ("POST", "simulateMaintenanceEvent"), ("GET", "serialPort")} <= asked
    assert any(line["method"] == "DELETE" and "/instances/" in line["path"] for line in lines)
    assert any("/storage/v1/" in line["path"] for line in lines)
    consoles = [line["answer"].get("contents", "") for line in lines if line["path"].endswith("/serialPort")]
    assert any("spot: phase=" in contents for contents in consoles)
    assert "uthorization" not in text
    assert "Bearer" not in text
    jobs = [item for line in lines if line["path"].endswith("/instances") and line["method"] == "POST"
            for item in line["request"]["metadata"]["items"]]  # fmt: skip
    assert jobs
    assert all(item["value"].startswith("•••") for item in jobs)


def test_what_fails_is_named_with_its_remedy_and_the_rest_was_not_reached(trial: Trial) -> None:
    trial.cloud.compute.refuse("simulateMaintenanceEvent", 403, "forbidden")
    assert trial.run("--yes", "--no-gpu", "--image", trial.cloud.image()) == 1
    results = trial.results()
    assert list(results) == [name for name in PHASES if name not in ("driver", "card")]
    assert (results["bucket"], results["notice"], results["resume"]) == ("ok", "failed", "not reached")
    assert results["clean"] == "ok"
    assert "compute.instances.simulateMaintenanceEvent" in trial.said()
    trial.nothing_is_left()


def test_ctrl_c_in_the_middle_leaves_nothing(trial: Trial) -> None:
    process = trial.start("--yes", "--no-gpu", "--image", trial.cloud.image())
    trial.trains()
    assert trial.cloud.compute.names() != []
    process.send_signal(signal.SIGINT)
    assert process.wait(WHOLE_S) == 130
    assert "interrupted" in [phase["seen"] for phase in trial.report()["phases"]]
    trial.nothing_is_left()


def test_a_terminal_that_is_closed_leaves_nothing(trial: Trial) -> None:
    """SIGHUP, and nobody reads any more: each word that is said fails."""
    reading, writing = os.pipe()
    with open(reading) as terminal:
        process = trial.start("--yes", "--no-gpu", "--image", trial.cloud.image(), said=writing)
        os.close(writing)
        for line in terminal:
            if " beat " in line:
                break
    assert trial.cloud.compute.names() != []
    process.send_signal(signal.SIGHUP)
    process.wait(WHOLE_S)
    assert trial.results()["clean"] == "ok"
    trial.nothing_is_left()


def test_what_a_kill_leaves_is_removed_by_the_next_call(trial: Trial) -> None:
    process = trial.start("--yes", "--no-gpu", "--image", trial.cloud.image())
    trial.trains()
    process.kill()
    process.wait(WHOLE_S)
    assert trial.cloud.compute.names() != []
    assert trial.run("--clean") == 0, trial.said()
    assert "1 machines" in trial.said()
    trial.nothing_is_left()


def test_nobody_spends_money_without_having_agreed(trial: Trial) -> None:
    assert trial.run("--image", trial.cloud.image()) == 2
    assert "costs up to $" in trial.said()
    assert "--yes" in trial.said()
    assert trial.cloud.compute.requests == []
    assert not trial.out.exists()
    trial.nothing_is_left()

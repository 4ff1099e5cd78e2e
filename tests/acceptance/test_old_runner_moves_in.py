"""The day a user of the older shell runner moves in: its environment file serves unchanged, the doctor reads it, a new
run trains, its alerts arrive, and an old run is imported from the same bucket and goes on from its last.pt."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.settings.env.file import OLD_KEYS
from tests import forked
from tests.acceptance.cloud_story import DURATIONS, PACE, CloudStory
from tests.acceptance.daemon import Daemon
from tests.cloud.cloud import BUCKET, PROJECT, Cloud
from tests.cloud.vm import Scene
from tests.cloud.web import Request, Response, WebServer
from tests.importing.oldrunner import OLD_ID, old_run
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")

NEW_ID = f"{OLD_ID}-imported"
FILE = """# gcp/rav_spot.env: sourced by scripts/gcp_*.sh
PROJECT="{project}"
REGION="us-east1"
SA="spot@${{PROJECT}}.iam.gserviceaccount.com"
BUCKET="{bucket}"            # no gs://
IMAGE="{image}"
RUNNER_DIR="../gcp-spot-runner"
ZONE="${{REGION}}-c"
FALLBACK_ZONES=("us-east1-b" "us-east1-c"   # c is tried first
                "us-east1-d")
MACHINE_TYPE='n1-standard-8'
GPU_TYPE="nvidia-tesla-t4"
BOOT_DISK_SIZE="100"
BOOT_DISK_TYPE="pd-ssd"
DATA_DISK_ENABLED="false"
DATA_DISK_NAME=""
DATA_DISK_SIZE_GB="500"
DATA_DISK_TYPE="pd-ssd"
DATA_DISK_DEVICE_NAME="spot-data"
DATA_DISK_MOUNT_PATH="/var/lib/spot-data"
DATA_DISK_FS_TYPE="ext4"
CONTAINER_NAME="rav-trainer"
CONDA_ENV=""
GPU_TIMEOUT_SEC="1200"
MAX_RUNTIME_SEC="172800"
export POLL_INTERVAL=120
HEARTBEAT_STALE_SEC=600
HEARTBEAT_STALE_MAX="3"
PROGRESS_STALL_POLLS="10"
MAX_RESTARTS="10"
RESTART_BACKOFF_SEC="60"
WALL_CLOCK_DEADLINE=""
DEADLINE_TZ="America/New_York"
OWNER_LOCK_STALE_SEC="300"
METADATA_PREFIX="spot"
RUNNER_LABEL="spot-runner"
SYNC_INTERVAL_SEC="180"
LOG_LEVEL="INFO"
DISCORD_WEBHOOK_URL="{alerts}/hook/hunter2"
NOTIFY_SECRET=""
JOB_COMMAND="set -euo pipefail; bash scripts/train.sh --sync ${{SYNC_INTERVAL_SEC}}"
"""
# What the environment would say instead of the file.
FROM_THE_FILE = ("PROVIDER", "STORE_URL", "GCE_PROJECT", "GCE_ZONES", "GCE_SHAPES")
OF_THIS_COMPUTER = {"disk", "inodes"}
TRAINING = """
import json, os, pathlib, time
folder = pathlib.Path(os.environ["SPOT_CHECKPOINT_DIR"])
began = step = json.loads((folder / "last.pt").read_text())["step"]
while step < began + 10:
    step += 1
    time.sleep(0.05)
temporary = folder / "last.pt.tmp"
temporary.write_text(json.dumps({"step": step}))
temporary.replace(folder / "last.pt")
told = {"began": began, "ended": step, "best": (folder / "best.pt").exists()}
(pathlib.Path(os.environ["SPOT_RESULTS_DIR"]) / "told.json").write_text(json.dumps(told))
"""


class Receiver:
    def __init__(self) -> None:
        self.told: list[Any] = []
        self.server = WebServer(self._take)

    def _take(self, request: Request) -> Response:
        self.told.append((request.path, request.json()))
        return Response(204)


@contextmanager
def moved_in(folder: Path) -> Iterator[tuple[CloudStory, Receiver]]:
    cloud, receiver = Cloud(folder / "vms"), Receiver()
    cloud.storage.describe(BUCKET, location="US-EAST1")
    for name, value in DURATIONS.items():
        setattr(cloud.compute, name, value)
    text = FILE.format(project=PROJECT, bucket=BUCKET, image=cloud.image("train:1"), alerts=receiver.server.url)
    assert {line.split("=")[0].removeprefix("export ") for line in text.splitlines() if "=" in line} >= set(OLD_KEYS)
    (folder / "rav_spot.env").write_text(text)
    environ = {**PACE, **cloud.environment(), "SPOT_ENV_FILE": str(folder / "rav_spot.env")}
    for name in FROM_THE_FILE:
        del environ[f"SPOT_{name}"]
    daemon = Daemon(folder / "data", environ)
    try:
        yield CloudStory(cloud, daemon, folder), receiver
    finally:
        daemon.close()
        cloud.close()
        receiver.server.close()


def lay_old_run(story: CloudStory) -> list[tuple[str, int]]:
    """As it was left two hours ago; (key, generation) of each file."""
    # Commands of old runs are relative to the WORKDIR of their image.
    files = {"scripts/train.sh": "echo trained", "train_old.py": TRAINING}
    story.cloud.machines.scene = Scene(workdir=files)
    last = json.dumps({"step": 40}).encode()
    storage = story.cloud.storage
    storage.clock = lambda: time.time() - 7200
    for key, data in old_run(
        command=f"{sys.executable} train_old.py", image=story.cloud.image("train:1"), last_pt=last
    ).items():
        storage.put(BUCKET, key, data)
    storage.clock = time.time
    return old_folder(story)


def old_folder(story: CloudStory) -> list[tuple[str, int]]:
    found = [(name, story.cloud.storage.find(BUCKET, name)) for name in story.cloud.storage.names(BUCKET)]
    return [(name, one.generation) for name, one in found if one is not None and name.startswith(f"runs/{OLD_ID}/")]


def test_an_old_environment_file_and_an_old_run_move_in(tmp_path: Path) -> None:
    with moved_in(tmp_path) as (story, receiver):
        before = lay_old_run(story)
        story.daemon.start()  # for the first time, on a bucket that has old runs
        doctor_reads_the_file(story)
        story.spot("submit", "--run-id", "fresh", "--", "sh", "scripts/train.sh")
        said = story.spot("import", f"gs://{BUCKET}/runs/{OLD_ID}")
        assert f"{NEW_ID}  imported from gs://{BUCKET}/runs/{OLD_ID}" in said
        assert f"note: It is called {NEW_ID} here." in said
        assert "Machine 0 of the older runner" in story.spot("events", NEW_ID)
        story.spot("resume", NEW_ID)
        story.completed("fresh")
        run = story.completed(NEW_ID)
        assert run["generation"] == 2
        assert story.json_of(runfiles.results(NEW_ID, 2) + "told.json") == {"began": 40, "ended": 50, "best": False}
        assert old_folder(story) == before
        alerts_have_arrived(story, receiver)


def doctor_reads_the_file(story: CloudStory) -> None:
    """Nothing is to be mended, and what the file says is what is looked at."""
    # It asks for a few seconds only, also where this computer needs them all to load its libraries.
    lines = wait_for(lambda: doctors_lines(story), 90, "a doctor that was answered")
    troubles = {name: line for name, line in lines.items() if line["result"] != "ok"}
    assert set(troubles) - OF_THIS_COMPUTER == set(), troubles
    for said in (
        f"project {PROJECT}", "us-east1-c, us-east1-b, us-east1-d", "n1-standard-8+1xnvidia-tesla-t4",
        f"spot@{PROJECT}.iam.gserviceaccount.com", f"gs://{BUCKET}", story.cloud.image("train:1"),
    ):  # fmt: skip
        assert said in lines["settings"]["fact"], said
    assert "10 polls" in lines["timeouts"]["fact"]
    assert "1200 s for its GPU" in lines["timeouts"]["fact"]
    assert {"project access", "bucket access", "quotas", "image", "alerts"} <= set(lines)


def doctors_lines(story: CloudStory) -> dict[str, Any] | None:
    """By name; None where a question was not answered in time."""
    environ = {name: value for name, value in story.daemon.environ.items() if name != "SPOT_ENV_FILE"}
    environ |= {"HOME": str(story.folder), "SPOT_PORT": "0"}
    words = ("doctor", "--json", "--env-file", str(story.folder / "rav_spot.env"))
    answer = forked.spot(*words, environ=environ, folder=story.folder)
    assert "hunter2" not in answer.stdout + answer.stderr
    lines = {line["name"]: line for line in json.loads(answer.stdout)["checks"]}
    late = [name for name, line in lines.items() if line["fact"].startswith("no response within")]
    return None if late else lines


def alerts_have_arrived(story: CloudStory, receiver: Receiver) -> None:
    story.until("fresh", lambda _: len(ended(receiver)) >= 2, "the alerts to arrive")
    assert {path for path, _ in receiver.told} == {"/hook/hunter2"}
    assert ended(receiver) == {"fresh", NEW_ID}
    assert "hunter2" not in (story.daemon.data_dir / "serve.log").read_text()
    assert "hunter2" not in json.dumps([story.daemon.call("GET", path) for path in ("/v1/meta", "/v1/doctor")])


def ended(receiver: Receiver) -> set[str]:
    return {told["data"]["run_id"] for _, told in receiver.told if told["type"] == "run.completed"}

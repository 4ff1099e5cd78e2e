"""A recording of the fakes is replayed without a difference; each way in which Google may differ is reported."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from supervisor.objectstores.gcs.store import GcsStore
from supervisor.ports.objectstore import ABSENT, PreconditionFailed
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig, parse_shape
from supervisor.telemetry import recording as exchanges
from tests.cloud import pace, replay
from tests.cloud.cloud import BUCKET, PROJECT, Cloud
from tests.waiting import wait_for

ZONE = "us-east1-c"
IMAGE = "projects/cos-cloud/global/images/family/cos-129-lts"
BODY = {
    "name": "one",
    "machineType": f"zones/{ZONE}/machineTypes/n1-standard-4",
    "disks": [{"boot": True, "initializeParams": {"sourceImage": IMAGE}}],
    "networkInterfaces": [{"network": f"projects/{PROJECT}/global/networks/default"}],
}
INSERT, DELETE = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """One machine from its insert to its end, and one object that is written, read, listed and deleted."""
    path = tmp_path_factory.mktemp("recording") / "recording.jsonl"
    cloud = Cloud(None, clock=time.time)
    for name in ("delete_s", "queue_s"):
        setattr(cloud.compute, name, 0.05)
    cloud.compute.create_s = 0.5  # time to read a console that does not exist yet
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchanges, "_recorder", None)
        for name, value in cloud.environment().items():
            patch.setenv(name, value)
        # google-auth reads GCE_METADATA_HOST once, when it is imported.
        host = cloud.environment()["GCE_METADATA_HOST"]
        patch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", host)
        exchanges.begin(path)
        _machine(cloud)
        _object(cloud)
    cloud.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def _machine(cloud: Cloud) -> None:
    config = GceConfig(PROJECT, (ZONE,), {"cpu": parse_shape("n1-standard-4")}, endpoint=cloud.compute.url)
    compute = Compute(config, Retry(), lambda: Credentials("a token"))
    made = compute.insert(ZONE, BODY, INSERT)
    with pytest.raises(ApiError, match="not ready"):
        compute.serial(ZONE, "one", 1000)
    wait_for(lambda: compute.operation(ZONE, made["name"])["status"] == "DONE", 30, "the machine")
    assert compute.serial(ZONE, "one", 1000) == ""
    assert compute.read("aggregated/instances")["items"]
    compute.delete(ZONE, "one", DELETE)
    wait_for(lambda: compute.get(ZONE, "one") is None, 30, "its end")


def _object(cloud: Cloud) -> None:
    store = GcsStore(f"gs://{BUCKET}/trial")
    written = store.put("beats/a", b"first", ABSENT, {"beat": "1"})
    with pytest.raises(PreconditionFailed):
        store.put("beats/a", b"other", ABSENT)
    written = store.put("beats/a", b"second", written.generation)
    assert b"".join(store.read("beats/a")) == b"second"
    assert store.stat("beats/a").generation == written.generation
    assert [one.key for page in store.pages("") for one in page.objects] == ["beats/a"]
    assert store.delete("beats/a")
    store.close()


def held(folder: Path, lines: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """(exit code, lines) of a replay."""
    path = folder / "recording.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code = replay.main([str(path)])
    return code, capsys.readouterr().out.splitlines()


def test_the_fakes_answer_their_own_recording(
    tmp_path: Path, recording: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert held(tmp_path, recording, capsys) == (0, [f"{len(recording)} exchanges, 0 differences"])


def test_names_that_google_makes_up_are_translated(
    tmp_path: Path, recording: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Another project, another bucket, other ids: as in a recording of the real Google."""
    text = json.dumps(recording).replace(f"/projects/{PROJECT}/", "/projects/my-project/").replace(BUCKET, "my-bucket")
    text = text.replace("operation-1", "operation-77")
    code, told = held(tmp_path, json.loads(text), capsys)
    assert (code, told) == (0, [f"{len(recording)} exchanges, 0 differences"])


def _of(lines: list[Any], method: str, part: str) -> list[Any]:
    found = [line for line in lines if line["method"] == method and part in line["path"]]
    assert found
    return found


def another_status(lines: list[Any]) -> None:
    _of(lines, "DELETE", "/instances/one")[0]["status"] = 202


def a_field_that_we_lack(lines: list[Any]) -> None:
    _of(lines, "POST", "/instances")[0]["answer"]["selfLinkWithId"] = "https://x"


def a_field_that_google_lacks(lines: list[Any]) -> None:
    for line in _of(lines, "GET", "aggregated"):
        for part in line["answer"]["items"].values():
            for item in part.get("instances", ()):
                del item["labelFingerprint"]


def another_type(lines: list[Any]) -> None:
    for line in _of(lines, "POST", "/upload/storage/"):
        if line["status"] == 200:
            line["answer"]["size"] = int(line["answer"]["size"])


def a_header_that_google_lacks(lines: list[Any]) -> None:
    for line in _of(lines, "GET", "/download/"):
        del line["headers"]["x-goog-generation"]


def a_method_that_nobody_has(lines: list[Any]) -> None:
    _of(lines, "GET", "aggregated")[0]["path"] = "/compute/v1/projects/p/nowhere"


def another_order(lines: list[Any]) -> None:
    polls = _of(lines, "GET", "/operations/")
    again = json.loads(json.dumps(polls[-1]))
    again["answer"]["status"], again["at"] = "PENDING", polls[-1]["at"] + polls[-1]["took_s"] + 0.1
    lines.append(again)


def a_status_that_we_lack(lines: list[Any]) -> None:
    for part in _of(lines, "GET", "aggregated")[0]["answer"]["items"].values():
        for item in part.get("instances", ()):
            item["status"] = "PENDING_STOP"


def a_slow_operation(lines: list[Any]) -> None:
    done = _of(lines, "GET", "/operations/")[-1]["answer"]
    done["insertTime"], done["endTime"] = "2026-11-22T10:00:00.000-08:00", "2026-11-22T10:00:31.500-08:00"


def slow_answers(lines: list[Any]) -> None:
    for line in _of(lines, "POST", "/upload/storage/"):
        line["took_s"] = 12.0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (another_order, "operation: PENDING came after DONE from Google"),
        (a_status_that_we_lack, "machine: Google has the status PENDING_STOP"),
        (a_slow_operation, "operation insert took 31.5 s from Google (less than a minute)"),
        (slow_answers, "a POST of Cloud Storage took 12.0 s from Google"),
        (another_status, "compute.instances.delete: Google answered 202, the fake 200"),
        (a_field_that_we_lack, "compute.instances.insert 200: selfLinkWithId is only in Google's answer"),
        (a_field_that_google_lacks, "instances[].labelFingerprint is only in the fake's"),
        (another_type, "storage.objects.insert 200: size is int in Google's answer and str in the fake's"),
        (a_header_that_google_lacks, "header x-goog-generation: present: only from the fake"),
        (a_method_that_nobody_has, "nowhere: no fake has such a method"),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path,
    recording: list[Any],
    capsys: pytest.CaptureFixture[str],
    change: Callable[[list[Any]], None],
    told: str,
) -> None:
    lines = json.loads(json.dumps(recording))
    change(lines)
    code, said = held(tmp_path, lines, capsys)
    assert code == 1
    assert any(told in line for line in said), said


def test_looks_that_overlapped_say_nothing_about_their_order(recording: list[Any]) -> None:
    lines = json.loads(json.dumps(recording))
    another_order(lines)
    done = _of(lines, "GET", "/operations/")[-2]
    lines[-1]["at"] = done["at"] + done["took_s"] / 2
    assert pace.differences(lines) == []


def test_what_is_no_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("no JSON\n")
    assert replay.main([str(tmp_path / "other")]) == 2
    assert replay.main([str(tmp_path / "absent")]) == 2
    assert "no recording" in capsys.readouterr().err

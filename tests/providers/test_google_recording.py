"""The recording of exchanges with Google: it is complete, has no secret, and disturbs no request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from supervisor.telemetry import recording
from tests.cloud.web import Request, Reset, Response, WebServer

SECRET = "hf_" + "a1B2" * 9
JOB = {"metadata": {"items": [{"key": "spot-job", "value": "H4sI" + "x1Y2" * 20}]}}


class Wire:
    """A session made like ours, with a scripted server."""

    def __init__(self, folder: Path) -> None:
        self.answer: Response | None = Response(200, {"name": "one", "labels": {"deep": [[[[["kept"]]]]]}})
        self.server, self.path = WebServer(self._answer), folder / "recording.jsonl"
        recording.begin(self.path)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", recording.adapter(pool_maxsize=2))

    def _answer(self, request: Request) -> Response:
        if self.answer is None:
            raise Reset
        return self.answer

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def close(self) -> None:
        self.session.close()
        self.server.close()


@pytest.fixture
def wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    monkeypatch.setattr(recording, "_recorder", None)
    made = Wire(tmp_path)
    yield made
    made.close()


def test_an_exchange_is_a_line_with_what_was_asked_and_answered(wire: Wire) -> None:
    url = f"{wire.server.url}/compute/v1/projects/p/zones/z/instances"
    answer = wire.session.post(url, params={"requestId": "r-1"}, json={"name": "one"}, headers={"Accept": "x"})
    assert answer.json()["name"] == "one"
    [line] = wire.lines()
    assert (line["method"], line["path"]) == ("POST", "/compute/v1/projects/p/zones/z/instances")
    assert (line["query"], line["request"], line["status"]) == ({"requestId": ["r-1"]}, {"name": "one"}, 200)
    assert line["answer"] == {"name": "one", "labels": {"deep": [[[[["kept"]]]]]}}
    assert set(line["request_headers"]) == {"content-type"}
    assert line["headers"]["content-type"].startswith("application/json")
    assert wire.path.stat().st_mode & 0o777 == 0o600


def test_no_secret_is_in_it(wire: Wire) -> None:
    wire.answer = Response(200, {"contents": f"spot: export TOKEN={SECRET}", "access_token": "0123456789"})
    headers = {"Authorization": f"Bearer {SECRET}", "Cookie": SECRET, b"content-type": b"application/json"}
    wire.session.post(wire.server.url + "/x", params={"key": SECRET}, data=json.dumps(JOB), headers=headers)
    text = wire.path.read_text()
    assert SECRET not in text
    assert "0123456789" not in text
    assert "H4sI" not in text
    [line] = wire.lines()
    assert line["answer"]["contents"].startswith("spot: export TOKEN=")
    assert line["request"]["metadata"]["items"] == [{"key": "spot-job", "value": "••• 84"}]


def test_nobody_can_go_on_with_an_upload_that_was_recorded(wire: Wire) -> None:
    """The address of a resumable upload is a credential: it needs no token."""
    upload = f"{wire.server.url}/upload/storage/v1/b/bucket/o?uploadType=resumable&upload_id=ABPt.cq-secret"
    wire.answer = Response(200, b"", {"Location": upload})
    wire.session.post(f"{wire.server.url}/upload/storage/v1/b/bucket/o", params={"uploadType": "resumable"})
    wire.session.put(upload, data=b"weights")
    wire.answer = None
    with pytest.raises(requests.ConnectionError):
        wire.session.put(upload, data=b"weights")
    begun, sent, lost = wire.lines()
    assert "secret" not in wire.path.read_text()
    assert begun["headers"]["location"].endswith("uploadType=resumable&upload_id=•••")
    assert sent["query"] == lost["query"] == {"uploadType": ["resumable"], "upload_id": ["•••"]}


def test_contents_are_told_by_their_size_and_a_stream_is_left_for_its_reader(wire: Wire) -> None:
    wire.answer = Response(200, b"w" * 100_000, {"Content-Type": "application/octet-stream"})
    with wire.session.get(wire.server.url + "/download", stream=True) as answer:
        assert answer.raw.read(10) == b"w" * 10
    wire.session.put(wire.server.url + "/upload", data=b"weights")
    streamed, sent = wire.lines()
    assert streamed["answer"] == {"bytes": "100000"}
    assert (sent["request"], sent["answer"]) == ({"bytes": 7}, {"bytes": 100_000})


def test_what_got_no_answer_is_told_too(wire: Wire) -> None:
    wire.answer = None
    with pytest.raises(requests.ConnectionError):
        wire.session.get(wire.server.url + "/gone")
    [line] = wire.lines()
    assert line["path"] == "/gone"
    assert "status" not in line
    assert line["error"].startswith("ConnectionError")


def test_a_recording_that_cannot_go_on_costs_no_exchange(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("supervisor.telemetry.recording.os.write", full)
    for _ in range(2):
        assert wire.session.get(wire.server.url + "/x").status_code == 200
    assert wire.path.read_text() == ""


def test_it_is_never_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_recorder", None)
    link = tmp_path / "recording.jsonl"
    link.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        recording.begin(link)
    assert not (tmp_path / "other").exists()


def test_without_the_setting_sessions_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_recorder", None)
    assert type(recording.adapter(pool_maxsize=2)) is requests.adapters.HTTPAdapter

"""The door for Kubeflow's trainer status protocol: what a status says, and what a stranger at the door costs."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from supervisor.agent.watch import trainerstatus
from supervisor.agent.watch.output import Progress
from supervisor.agent.watch.trainerstatus import BODY_BYTES, WAITING, StatusDoor, report_of
from tests.waiting import wait_for


def metrics(**values: object) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def test_steps_and_metrics_are_taken_from_the_metrics() -> None:
    status = {
        "progressPercentage": 40,
        "estimatedRemainingSeconds": 12,
        "metrics": metrics(loss=0.5, grad_norm="nan", epoch=1.2, current_step=200, total_steps=500, current_epoch=1.2),
    }
    expected = {"step": 200, "total": 500, "metrics": {"loss": 0.5, "epoch": 1.2}, "nonfinite": {"grad_norm": "nan"}}
    assert report_of(status, None, False) == (expected, 500)


def test_a_status_without_a_step_makes_no_report_but_its_total_is_kept() -> None:
    assert report_of({"progressPercentage": 0, "metrics": metrics(total_steps=500)}, None, False) == (None, 500)
    assert report_of({"progressPercentage": 45, "metrics": metrics(loss=1)}, 500, False) == (None, 500)
    assert report_of({"progressPercentage": 99}, None, False) == (None, None)
    assert report_of({"metrics": metrics(current_step=0, total_steps=500)}, None, False) == (None, 500)


def test_its_end_is_the_last_step_but_not_after_a_request_to_leave() -> None:
    end = {"progressPercentage": 100, "metrics": metrics(train_loss=0.25)}
    assert report_of(end, 500, False) == (
        {"step": 500, "total": 500, "metrics": {"train_loss": 0.25}, "nonfinite": {}},
        500,
    )
    assert report_of(end, 500, True) == (None, 500), "a save on TERM ends with 100 %, too"
    assert report_of(end, None, False) == (None, None)


def test_values_that_are_no_numbers_are_left_out() -> None:
    rows = [*metrics(loss="1e-3", text="abc", long="1" * 100), {"name": "n" * 500, "value": "1"}, {"name": "x"}]
    report, _ = report_of({"metrics": [*rows, *metrics(current_step="7.0", total_steps="1e40")]}, None, False)
    assert report == {"step": 7, "metrics": {"loss": 0.001}, "nonfinite": {}}


class Door:
    def __init__(self, folder: Path) -> None:
        self.stopping = False
        self.door = StatusDoor(str(folder / "token"), lambda: self.stopping)
        self.env = self.door.open({})
        self.token = (folder / "token").read_text()
        self.address = urlsplit(self.env["KUBEFLOW_TRAINER_SERVER_URL"])

    def post(self, body: bytes | None, token: str | None = None, **headers: str) -> int:
        """The status of one request, as Python's own client sends it."""
        connection = http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=5)
        done: list[int] = []
        token = self.token if token is None else token

        def ask() -> None:
            connection.request("POST", "/status", body, {"Authorization": f"Bearer {token}", **headers})
            done.append(connection.getresponse().status)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_for(lambda: self.door.poll() or done, 10, "a response")
        thread.join()
        connection.close()
        return done[0]

    def reports(self) -> list[dict[str, Any]]:
        return list(self.door.reports())


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.setattr(trainerstatus, "REFUSED_PAUSE_S", 0.0)
    monkeypatch.setattr(trainerstatus, "PAUSE_S", 0.0)
    monkeypatch.setattr(trainerstatus, "IDLE_S", 0.2)
    made = Door(tmp_path)
    yield made
    made.door.close()
    if made.door._thread is not None:
        made.door._thread.join(5)


def status(step: int) -> bytes:
    return json.dumps({"trainerStatus": {"metrics": metrics(current_step=step, total_steps=500)}}).encode()


def test_both_spellings_of_its_variables_are_set(door: Door, tmp_path: Path) -> None:
    assert door.env == {
        "KUBEFLOW_TRAINER_SERVER_URL": door.address.geturl(),
        "KUBEFLOW_TRAINER_STATUS_URL": door.address.geturl(),
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "token"),
        "KUBEFLOW_TRAINER_STATUS_TOKEN": str(tmp_path / "token"),
    }
    assert door.address.hostname == "127.0.0.1"
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


def test_a_training_with_a_server_of_its_own_keeps_it(tmp_path: Path) -> None:
    for name in ("KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_STATUS_URL"):
        assert StatusDoor(str(tmp_path / "token"), lambda: False).open({name: "https://controller"}) == {}
    assert StatusDoor(str(tmp_path / "missing" / "token"), lambda: False).open({}) == {}, "no place for the token"


def test_a_proxy_is_not_asked_for_loopback(tmp_path: Path) -> None:
    door = StatusDoor(str(tmp_path / "token"), lambda: False)
    env = door.open({"https_proxy": "http://proxy", "HTTP_PROXY": "http://proxy", "NO_PROXY": "a.example"})
    assert (env["no_proxy"], env["NO_PROXY"]) == ("a.example,127.0.0.1", "a.example,127.0.0.1")
    door.close()


def test_nothing_runs_until_somebody_connects_and_nothing_after(door: Door) -> None:
    door.door.poll()
    assert door.door._thread is None
    assert door.post(status(7)) == 200
    assert door.reports() == [{"step": 7, "total": 500}]
    assert door.reports() == []
    thread = door.door._thread
    wait_for(lambda: not thread.is_alive(), 10, "the end of its thread")
    assert door.post(status(8)) == 200


@pytest.mark.parametrize(
    ("body", "more", "expected"),
    [
        (status(7), {"token": "wrong"}, 401),
        (status(7), {"token": ""}, 401),
        (b"{", {}, 422),
        (b"[]", {}, 422),
        (b"[" * 60_000, {}, 422),
        (b'{"trainerStatus": 5}', {}, 422),
        (b'{"trainerStatus": {"metrics": [5]}}', {}, 422),
        (b'{"trainerStatus": {"metrics": {"name": "loss"}}}', {}, 200),
        (b'{"trainerStatus": {"progressPercentage": "many"}}', {}, 200),
        (b"x" * (BODY_BYTES + 1), {}, 413),
        (b"", {"Content-Length": "9" * 30}, 413),
        (b"", {"Content-Length": "-5"}, 411),
        (status(7), {"X-More": "x" * 9000}, 431),
    ],
)
def test_bad_requests_are_refused_and_the_next_good_one_counts(
    body: bytes, more: dict[str, str], expected: int, door: Door
) -> None:
    assert door.post(body, **more) == expected
    assert door.reports() == []
    assert door.post(status(9)) == 200
    assert door.reports() == [{"step": 9, "total": 500}]


def test_who_says_nothing_is_let_go(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainerstatus, "READ_S", 0.1)
    silent = [socket.create_connection((door.address.hostname, door.address.port)) for _ in range(5)]
    began = time.monotonic()
    assert door.post(status(9)) == 200
    assert time.monotonic() - began < 4
    for each in silent:
        each.close()


def test_a_flood_leaves_the_newest_reports_only(door: Door) -> None:
    for step in range(1, 2 * WAITING):
        assert door.post(status(step)) == 200
    assert [report["step"] for report in door.reports()] == list(range(WAITING, 2 * WAITING))


def test_a_training_that_reports_itself_is_not_reported_twice(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = []
    progress = Progress(str(tmp_path / "lines"), lambda **more: changes.append(more), lambda: 0.0)
    progress.add({"step": 5, "total": 9})
    assert (progress.step, progress.total) == (5, 9)
    (tmp_path / "lines").write_text('{"checkpoint": "a", "step": 5}\n')
    progress.poll()
    progress.add({"step": 6, "total": 9})
    assert progress.step == 6, "an announced checkpoint is no report of a step"
    (tmp_path / "lines").write_text('{"checkpoint": "a", "step": 5}\n{"step": 7}\n')
    progress.poll()
    progress.add({"step": 6, "total": 9})
    assert progress.step == 7

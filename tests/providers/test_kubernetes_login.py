"""Login programs of a kubeconfig, as real programs: they hang, fail, print too much, and are asked by many at once."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import yaml

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kubernetes import login
from supervisor.providers.kubernetes.api import Api, ApiError, Connection, connection
from tests.waiting import wait_for

PATH = "/api/v1/namespaces/training/pods"


class Cluster:
    """`token`: the one that it accepts. `program`: the text of a shell script; each run adds a line to `runs`."""

    def __init__(self, folder: Path, program: str, version: str = "v1") -> None:
        self.folder, self.token, self.runs = folder, "good", folder / "runs"
        path = folder / "login"
        path.write_text(f"#!/bin/sh\necho $$ >>{self.runs}\n{program}\n")
        path.chmod(0o755)
        user = {"exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(path)}}
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://cluster.example"}}],
            "users": [{"name": "c", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "training"}}],
        }
        (folder / "config").write_text(yaml.safe_dump(config))
        self.api = Api(self._connected)

    def _connected(self) -> Connection:
        opened = connection(str(self.folder / "config"), "", "")
        auth = opened.http.auth
        opened.http.close()
        http = httpx2.Client(
            base_url="https://cluster.example", auth=auth, transport=httpx2.MockTransport(self._respond)
        )
        return Connection(http, opened.namespace)

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        good = request.headers.get("Authorization") == f"Bearer {self.token}"
        return httpx2.Response(200 if good else 401, json={"items": []} if good else {})

    def pids(self) -> list[int]:
        return [int(line) for line in self.runs.read_text().split()]


def printing(token: str) -> str:
    return f"echo '{json.dumps({'status': {'token': token}})}'"


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_S", 0.5)
    cluster = Cluster(tmp_path, f"sleep 300 &\necho $! >>{tmp_path}/runs\nwait")
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match=r"login did not end within 0\.5 s"):
            cluster.api.items(PATH)
    assert len(cluster.pids()) == 4
    wait_for(lambda: not any(map(lives, cluster.pids())), what="the programs to end")


def test_many_requests_at_once_start_one_program(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, f"sleep 0.3\n{printing('good')}")
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(cluster.api.items, [PATH] * 16)) == [[]] * 16
    assert len(cluster.pids()) == 1


def test_a_token_that_was_refused_is_renewed_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, f"cat {tmp_path}/next")
    for token in ("good", "better"):
        (tmp_path / "next").write_text(json.dumps({"status": {"token": token}}))
        cluster.token = token
        assert cluster.api.items(PATH) == []
    assert len(cluster.pids()) == 2
    cluster.token = "best"
    with pytest.raises(ApiError, match="401"):
        cluster.api.items(PATH)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 7", r"login ended with 7: x+$"),
        ("exit 1", "it printed nothing"),
        ("echo a-secret-value", "has printed no token"),
        (printing("").replace('""', '{"a-secret-value": 1}'), "has printed no token"),
        ("kill -9 $$", "ended with -9"),
    ],
)
def test_what_it_says_is_short_and_shows_no_credential(tmp_path: Path, program: str, words: str) -> None:
    cluster = Cluster(tmp_path, program)
    with pytest.raises(ProviderUnavailable, match=words) as failed:
        cluster.api.items(PATH)
    assert len(str(failed.value)) < 1000
    assert "a-secret-value" not in str(failed.value)


def test_a_program_that_is_missing_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "")
    (tmp_path / "login").unlink()
    with pytest.raises(ProviderUnavailable, match="cannot be started: No such file"):
        cluster.api.items(PATH)


@pytest.mark.parametrize("field", ["token", "tokenFile"])
def test_a_token_in_the_kubeconfig_needs_no_program(tmp_path: Path, field: str) -> None:
    cluster = Cluster(tmp_path, "exit 1")
    (tmp_path / "token").write_text("good")
    config = yaml.safe_load((tmp_path / "config").read_text())
    config["users"][0]["user"][field] = "good" if field == "token" else str(tmp_path / "token")
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    assert cluster.api.items(PATH) == []
    assert not cluster.runs.exists()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_it_gets_its_version_and_no_setting_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("SPOT_ALERT_URL", "https://a.example/secret")
    cluster = Cluster(tmp_path, f"env >{tmp_path}/env\ncat >{tmp_path}/stdin\n{printing('good')}", version)
    assert cluster.api.items(PATH) == []
    values = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    info = json.loads(values["KUBERNETES_EXEC_INFO"])
    assert (info["apiVersion"], info["spec"]) == (f"client.authentication.k8s.io/{version}", {"interactive": False})
    assert values["PATH"] == os.environ["PATH"]
    assert not [name for name in values if name.startswith("SPOT_")]
    assert (tmp_path / "stdin").read_text() == ""

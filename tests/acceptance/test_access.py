"""A real supervisor asks who comes: from its first start on, after a restart, elsewhere; and where it does not."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from tests import forked
from tests.acceptance.daemon import QUICK, Daemon

STRANGER = {"Host": "rebound.example"}


def spot(daemon: Daemon, *words: str, **environ: str) -> tuple[int, str, str]:
    """What somebody gets who knows the data folder only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    done = forked.spot(*words, environ={**kept, "SPOT_DATA_DIR": str(daemon.data_dir), **environ})
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    found = Daemon(tmp_path / "data")
    try:
        found.start()
        yield found
    finally:
        found.close()


def refused(environ: Mapping[str, str], tmp_path: Path) -> str:
    """What a start says that must not succeed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    command = ("serve", "--data-dir", str(tmp_path / "refused"), "--port", "0")
    done = forked.spot(*command, environ={**kept, **environ})
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_from_the_first_start_to_a_revoked_token(daemon: Daemon) -> None:
    file = daemon.data_dir / "admin-token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = daemon.token
    assert spot(daemon, "ls")[0] == 0
    assert spot(daemon, "health")[0] == 0
    assert spot(daemon, "doctor", "--no-alert-test")[0] in (0, 1)

    with httpx.Client(base_url=daemon.url, trust_env=False, timeout=60) as nobody:
        told = nobody.get("/v1/runs")
        assert (told.status_code, told.headers["www-authenticate"]) == (401, "Bearer")
        assert nobody.post("/v1/runs", json={"spec": {"command": "true"}}).status_code == 401
        assert nobody.get("/livez").status_code == 200
        code, made, _ = spot(daemon, "token", "create", "bob", "--owner", "bob")
        assert code == 0
        bob = {"Authorization": f"Bearer {made.strip()}"}
        daemon.submit("mine-1", command="sleep 30")
        assert nobody.get("/v1/runs", headers=bob).json()["runs"] == []
        hers, none = (nobody.get(f"/v1/runs/{name}", headers=bob) for name in ("mine-1", "none-1"))
        assert (hers.status_code, none.status_code) == (404, 404)
        assert hers.json()["detail"].replace("mine-1", "none-1") == none.json()["detail"]
        assert spot(daemon, "show", "mine-1", SPOT_TOKEN=made.strip())[0] == 5
        assert spot(daemon, "token", "ls", SPOT_TOKEN=made.strip())[0] == 4

        [token_id] = [one["token_id"] for one in daemon.call("GET", "/v1/tokens")["tokens"] if one["name"] == "bob"]
        assert spot(daemon, "token", "revoke", token_id)[0] == 0
        assert nobody.get("/v1/runs", headers=bob).status_code == 401

        for host in ("rebound.example", "rebound.example:80", "10.0.0.1"):
            told = nobody.get("/v1/runs", headers={**bob, "Host": host})
            assert (told.status_code, told.json()["code"]) == (400, "HOST_REFUSED")

    assert daemon.kill(signal.SIGKILL) == -signal.SIGKILL
    daemon.start()
    assert daemon.token == first
    assert spot(daemon, "ls", "-o", "name")[1] == "mine-1\n"
    daemon.kill(signal.SIGTERM)
    file.unlink()
    daemon.start()
    assert daemon.token not in ("", first)
    assert (
        httpx.get(daemon.url + "/v1/runs", headers={"Authorization": f"Bearer {first}"}, timeout=60).status_code == 401
    )
    log = (daemon.data_dir / "serve.log").read_text()
    for secret in (first, daemon.token, made.strip()):
        assert secret[4:40] not in log
        assert secret.encode() not in (daemon.data_dir / "supervisor.db").read_bytes()


def test_another_address_under_its_names_only(tmp_path: Path) -> None:
    """Loopback's other numbers stand for another network here."""
    everywhere = {**QUICK, "SPOT_HOST": "0.0.0.0", "SPOT_ALLOWED_HOSTS": "spot.lab.example"}  # noqa: S104
    daemon = Daemon(tmp_path / "data", everywhere)
    try:
        daemon.start()
        assert daemon.url.startswith("http://127.0.0.1:")
        assert spot(daemon, "ls")[0] == 0
        for host, status in (("spot.lab.example", 200), ("SPOT.lab.example:8787", 200), ("other.lab.example", 400)):
            assert daemon.http.get(daemon.url + "/v1/runs", headers={"Host": host}).status_code == status
        assert httpx.get(daemon.url + "/v1/runs", headers={"Host": "spot.lab.example"}, timeout=60).status_code == 401
    finally:
        daemon.close()


def test_nobody_is_asked_only_where_that_was_said_and_nobody_else_can_come(tmp_path: Path) -> None:
    told = refused({"SPOT_HOST": "0.0.0.0", "SPOT_INSECURE_LOOPBACK": "1"}, tmp_path)  # noqa: S104
    assert "Remove insecure_loopback" in told
    assert not (tmp_path / "refused").exists()
    daemon = Daemon(tmp_path / "data", {**QUICK, "SPOT_INSECURE_LOOPBACK": "1"})
    try:
        daemon.start()
        assert daemon.token == ""
        assert httpx.get(daemon.url + "/v1/runs", timeout=60).status_code == 200
        assert httpx.get(daemon.url + "/v1/runs", headers=STRANGER, timeout=60).status_code == 400
        assert spot(daemon, "token", "ls")[0] == 0
        assert "no token is required" in daemon.log()
    finally:
        daemon.close()

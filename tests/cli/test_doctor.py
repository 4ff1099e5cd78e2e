"""spot doctor: with a supervisor that responds, with one that does not, and for files of settings without any."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest


def names(out: str) -> dict[str, str]:
    return {line["name"]: line["result"] for line in json.loads(out)["checks"]}


@pytest.fixture
def nobody(tmp_path, monkeypatch):
    """A computer on which no supervisor was ever started."""
    for name in ("SPOT_URL", "SPOT_CONFIG", "SPOT_ENV_FILE", "SPOT_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPOT_PORT", "9")
    return tmp_path / "data"


def test_without_a_supervisor_it_says_so_and_checks_here(run_cli, nobody) -> None:
    ended = run_cli("doctor", "--json", "--data-dir", str(nobody))
    assert ended.code == 2
    results = names(ended.out)
    assert (results["supervisor"], results["python"], results["database"]) == ("fail", "ok", "ok")
    assert not nobody.exists(), "nothing is made"


def test_a_file_of_settings_needs_no_supervisor(run_cli, nobody, tmp_path) -> None:
    file = tmp_path / "spot.toml"
    file.write_text("poll_interval_s = 20\n")
    ended = run_cli("doctor", "--json", "--config", str(file), "--data-dir", str(nobody))
    assert "supervisor" not in names(ended.out)
    timeouts = next(check for check in json.loads(ended.out)["checks"] if check["name"] == "timeouts")
    assert "10 polls x 20 s = 200 s" in timeouts["fact"]
    assert not nobody.exists()


def test_settings_that_are_refused_are_a_line_with_both_numbers(run_cli, nobody, tmp_path) -> None:
    file = tmp_path / "old.env"
    file.write_text("POLL_INTERVAL=60\nPROGRESS_STALL_POLLS=6\nGPU_TIMEOUT_SEC=1200\n")
    ended = run_cli("doctor", "--env-file", str(file), "--data-dir", str(nobody))
    assert ended.code == 2
    assert "✗ settings   refused" in ended.out
    assert "360 s is shorter than GPU_TIMEOUT_SEC = 1200 s" in ended.out
    assert "Raise PROGRESS_STALL_POLLS to 20" in ended.out


def test_groups_have_headings_and_the_last_line_counts(api, spot) -> None:
    line = {"name": "x", "result": "ok", "fact": "well", "cause": "", "fix": ""}
    checks = [
        {**line, "group": "local", "name": "python"},
        {**line, "group": "google", "name": "identity", "result": "fail", "cause": "none", "fix": "gcloud auth login"},
        {**line, "group": "orphans", "name": "orphans", "result": "warn", "fix": "spot gc"},
    ]
    api.respond("GET", "/v1/doctor", {"worst": "fail", "checks": checks, "groups": {"google": "Google Cloud"}})
    assert spot("doctor").lines == [
        "This computer", "✔ python     well", "",
        "Google Cloud", "✗ identity   well", "    cause: none", "    fix: gcloud auth login", "",
        "Machines without a run", "! orphans    well", "    fix: spot gc", "",
        "1 passed, 1 with a warning, 1 failed",
    ]  # fmt: skip


def test_the_test_message_can_be_left_out(api, spot) -> None:
    api.respond("GET", "/v1/doctor", {"worst": "ok", "checks": []})
    spot("doctor")
    spot("doctor", "--no-alert-test")
    queries = [request.query for request in api.requests if request.path == "/v1/doctor"]
    assert queries == [{"alert_test": ["true"]}, {}]


def test_a_supervisor_that_hangs_does_not_block(run_cli, nobody) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "http://127.0.0.1:%d" % silent.getsockname()[1]
        ended = run_cli("doctor", "--json", "--url", url)
    assert names(ended.out) == {"supervisor": "fail"}
    assert "no response within 1.5 s" in ended.out


def test_an_address_and_a_file_contradict_each_other(run_cli) -> None:
    assert run_cli("doctor", "--here", "--url", "http://127.0.0.1:1").code == 2


def test_a_port_that_another_program_has(run_cli, nobody, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("SPOT_PORT", str(port))
        ended = run_cli("doctor", "--here", "--data-dir", str(nobody))
    assert f"✗ port       127.0.0.1:{port} is taken" in ended.out
    assert Path("/proc/locks").exists()


def test_the_time_that_loading_takes_is_taken_from_that_of_the_questions(monkeypatch, tmp_path) -> None:
    """The user waits for all of it; the rest is still enough for a response."""
    from supervisor.cli.server import server
    from supervisor.wiring import examining
    from supervisor.wiring import settings as wired

    given: list[float] = []
    at = iter([100.0, 101.5])
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: next(at)))
    monkeypatch.setattr(examining, "examine", lambda settings, test, deadline_s: given.append(deadline_s) or {})
    server.examine_here({"data_dir": str(tmp_path)}, None, None, False, 4.0)
    assert given == [2.5]
    monkeypatch.undo()

    def examined(patient, around, alert_test, deadline_s):
        given.append(deadline_s)
        return {"worst": "ok", "checks": []}

    monkeypatch.setattr(examining, "examine_alone", examined)
    settings = wired.load({"data_dir": str(tmp_path)}, {})
    at = iter([100.0, 100.5, 200.0, 209.0])
    monkeypatch.setattr(examining, "time", SimpleNamespace(monotonic=lambda: next(at)))
    examining.examine(settings, False, 2.5)
    examining.examine(settings, False, 2.5)
    assert given == [2.5, 2.0, examining.LEAST_S]


@pytest.mark.parametrize("code", ["UNAUTHORIZED", "SCOPE_MISSING", ""])
def test_a_supervisor_that_refuses_the_token_does_not_hide_this_computer(
    run_cli, nobody, api, monkeypatch, code: str
) -> None:
    """Somebody else's supervisor has the default port, or another program."""
    if code:
        status = 401 if code == "UNAUTHORIZED" else 403
        api.refuse("GET", "/v1/doctor", status, code, "The token is not valid here.")
    else:
        api.respond("GET", "/v1/doctor", b"<html>hello</html>")
    monkeypatch.setenv("SPOT_PORT", api.url.rpartition(":")[2])
    ended = run_cli("doctor", "-o", "json", "--data-dir", str(nobody))
    assert ended.code == 2
    results = names(ended.out)
    assert (results["supervisor"], results["python"]) == ("fail", "ok")
    first = json.loads(ended.out)["checks"][0]
    assert "refuses our token" in first["cause"]
    assert first["fix"]

    refused = run_cli("doctor", "-o", "json", "--url", api.url)
    assert refused.code in (1, 4)
    assert refused.out == "", "of another computer nothing here would tell"

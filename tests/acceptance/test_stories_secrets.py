"""Secrets: the command gets them, whatever it tells of them is masked, and what cannot be read is said by name."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests.acceptance.canaries import assert_nowhere, canary, doors, files_with
from tests.acceptance.stories import STORY, Stories, stories
from tests.providers.stub_cards import StubCards
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-secrets")
TELLTALE = Path(__file__).with_name("telltale.py")
OPENAPI = Path(__file__).parents[2] / "openapi" / "openapi.json"
IN_ENVIRONMENT = canary()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    folder = tmp_path_factory.mktemp("secrets")
    environ = {**STORY, "PLANTED_TOKEN": IN_ENVIRONMENT, "PATH": StubCards(folder / "bin", 1).path}
    with stories(folder, environ) as told:
        yield told
        assert_nowhere(told.daemon, [IN_ENVIRONMENT])


def kept_in(path: Path, value: str, mode: int = 0o600) -> str:
    """A reference to this value."""
    path.write_text(value + "\n")
    path.chmod(mode)
    return f"file:{path}"


def tells_all(house: Stories, run_id: str, **spec: object) -> None:
    command = [sys.executable, "-S", str(TELLTALE), str(house.gate(run_id))]
    house.daemon.submit(run_id, command=command, **spec)


def came(house: Stories, run_id: str, value: str) -> None:
    """The command had this very value."""
    results = house.objects / runfiles.results(run_id, 1)
    [result] = list(results.rglob("*.txt"))
    assert result.read_text() == hashlib.sha256(value.encode()).hexdigest()
    assert result.name == "of [secret API_KEY].txt"


def test_a_training_that_tells_its_secret_everywhere_tells_it_nowhere(house: Stories, tmp_path: Path) -> None:
    value = canary()
    reference = kept_in(tmp_path / "key", value)
    tells_all(house, "telltale", secrets={"API_KEY": reference, "OTHER": "env:PLANTED_TOKEN"})
    ended = house.ended("telltale")
    assert ended["cause"] == "user_error"
    log = house.log("telltale")
    assert "the key is [secret API_KEY]\n" in log
    assert "RuntimeError: the server refused [secret API_KEY]" in log
    assert log.count("[secret API_KEY]") >= 5
    beating = house.until(
        lambda: (run := house.daemon.run("telltale"))["status"] == "running" and run["beat"] and run,
        60,
        "the second life",
    )
    assert_nowhere(house.daemon, [value, IN_ENVIRONMENT])
    environ = (Path("/proc") / str(house.agent_pid("telltale")) / "environ").read_bytes()
    assert value.encode() not in environ
    assert IN_ENVIRONMENT.encode() not in environ
    assert beating["status_text"]
    house.completes("telltale")
    assert "went on from 1 checkpoint" in house.log("telltale", 2)
    came(house, "telltale", value)
    assert_nowhere(house.daemon, [value, IN_ENVIRONMENT])


def test_a_file_that_others_can_read_is_refused_until_it_is_mended(house: Stories, tmp_path: Path) -> None:
    value = canary()
    reference = kept_in(tmp_path / "key", value, 0o644)
    refused = house.post(
        "/v1/runs", {"run_id": "open-key", "spec": {"command": "true", "secrets": {"API_KEY": reference}}}
    )
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/spec/secrets/API_KEY")
    assert "others can read it (mode 0644)" in refused.text
    (tmp_path / "key").chmod(0o600)
    house.train("open-key", secrets={"API_KEY": reference})
    house.trains("open-key")
    (tmp_path / "key").chmod(0o644)  # in mid-run: what counts is the next launch
    house.daemon.call("POST", "/v1/dev/kill", {"run_id": "open-key"})
    run = house.wait("open-key", "waiting")
    assert run["cause"] == "launch_rejected"
    assert "secret API_KEY: others can read it (mode 0644)" in run["status_text"]
    assert f"chmod 600 {tmp_path / 'key'}" in run["detail"] + run["status_text"]
    checks = house.get("/v1/doctor")["checks"]
    [check] = [one for one in checks if one["name"] == "secrets"]
    assert check["result"] == "warn"
    assert "API_KEY of open-key: others can read it" in check["cause"]
    assert len(house.attempts("open-key")) == 1
    house.train("beside")  # the place itself has refused nobody
    house.trains("beside")
    house.completes("beside")
    assert_nowhere(house.daemon, [value])
    (tmp_path / "key").chmod(0o600)
    house.trains("open-key")
    house.completes("open-key")
    assert_nowhere(house.daemon, [value])


def test_a_variable_that_is_not_set_is_named_at_the_submit_and_the_run_is_taken_when_it_is(tmp_path: Path) -> None:
    value = canary()
    with stories(tmp_path) as house:
        spec = {"command": "true", "secrets": {"API_KEY": "env:LATE_KEY"}}
        refused = house.post("/v1/runs", {"run_id": "late", "spec": spec})
        assert refused.status_code == 422
        assert "secret API_KEY: LATE_KEY is not set" in refused.json()["detail"]
        house.daemon.kill(signal.SIGTERM)
        house.daemon.environ["LATE_KEY"] = value
        house.daemon.start()
        house.train("late", secrets={"API_KEY": "env:LATE_KEY"})
        house.trains("late")
        house.completes("late")
        assert_nowhere(house.daemon, [value])


def test_a_supervisor_killed_while_agents_start_loses_no_secret(tmp_path: Path) -> None:
    value = canary()
    reference = kept_in(tmp_path / "key", value)
    with stories(tmp_path) as house:
        names = [f"torn-{number}" for number in range(3)]
        machines = house.daemon.data_dir / "machines"
        for name in names:
            before = len(list(machines.glob("*")))
            tells_all(house, name, secrets={"API_KEY": reference})
            wait_for(lambda: len(list(machines.glob("*"))) > before, 30, "a machine's folder")  # noqa: B023
            house.daemon.kill()
            house.daemon.start()
        for name in names:
            house.completes(name)
            came(house, name, value)
        assert_nowhere(house.daemon, [value])


def test_a_value_in_the_spec_is_refused_and_kept_nowhere(house: Stories) -> None:
    value = "hf_" + "aB3" * 12
    answer = house.post("/v1/runs", {"spec": {"command": "true", "env": {"HF_TOKEN": value}}})
    assert answer.status_code == 422
    assert answer.json()["code"] == "SECRET_IN_SPEC"
    assert answer.json()["errors"] == [{"pointer": "#/spec/env/HF_TOKEN", "detail": "looks like a Hugging Face token"}]
    assert value not in answer.text
    refused = house.post("/v1/runs", {"spec": {"command": "true", "secrets": {"HF_TOKEN": value}}})
    assert refused.status_code == 422
    assert "env:NAME or file:/PATH" in refused.json()["detail"]
    assert value not in refused.text
    assert_nowhere(house.daemon, [value])


def test_what_is_nowhere_is_searched_everywhere(house: Stories) -> None:
    """The search itself finds a value in each place where a missing mask would leave one."""
    value = canary()
    house.daemon.submit("shown", command=["echo", value], labels={"said": value})
    house.wait("shown", "completed")
    with pytest.raises(AssertionError, match="values of secrets lie in") as found:
        assert_nowhere(house.daemon, [value])
    for place in ("supervisor.db", "objects/runs/shown/logs", "/v1/runs/shown", "logs?attempt=1"):
        assert place in str(found.value)
    assert files_with(house.daemon.data_dir, [canary()]) == []


def test_every_door_is_looked_behind(house: Stories) -> None:
    """A new address must be searched too; what files, bundles and commands hold is searched in the store itself. So is
    what the door opens with a pass, of which tests/api/test_door_attacks.py tells."""
    house.daemon.submit("seen", command="true")
    house.wait("seen", "completed")
    document = json.loads(OPENAPI.read_text())
    there = {path for path, methods in document["paths"].items() if "get" in methods}
    of_a_command = "/v1/runs/{run_id}/commands/{command_id}"
    there -= {"/v1/runs/{run_id}/files/{path}", "/v1/code/{sha256}", of_a_command, f"{of_a_command}/files"}
    there -= {"/v1/door/{run_id}/objects", "/v1/door/{run_id}/objects/{key}"}
    asked = [path.partition("?")[0] for path in doors(house.daemon)]
    missed = {path for path in there if not any(re.fullmatch(_as_pattern(path), one) for one in asked)}
    assert missed == set()


def _as_pattern(path: str) -> str:
    return re.sub(r"\{\w+\}", "[^/]+", path)

"""A run on this computer starts in the Python environment that is active in the user's shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.cli.files.local_inputs import active_environment
from tests.cli.fake_api import a_run, submitted


@pytest.fixture(autouse=True)
def _local_machines(accepting) -> None:
    accepting.respond("GET", "/v1/meta", {"provider": "local"})


def sent(api) -> dict:
    return submitted(api)["spec"]


def made(prefix: Path, marker: str = "pyvenv.cfg") -> str:
    prefix.mkdir(parents=True)
    (prefix / marker).mkdir() if marker == "conda-meta" else (prefix / marker).touch()
    return str(prefix)


def test_the_active_environment_goes_with_the_run_and_one_line_says_so(
    accepting, spot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = made(tmp_path / "my env")
    monkeypatch.setenv("VIRTUAL_ENV", prefix)
    ended = spot("submit", "--", "python", "train.py")
    assert sent(accepting)["venv"] == prefix
    assert ended.err.splitlines() == [
        f"python: {prefix}/bin/python of the active environment (--venv none: the service's own)"
    ]
    ended = spot("submit", "--venv", "none", "--", "python", "train.py")
    assert (sent(accepting).get("venv"), ended.err) == (None, "")


def test_conda(accepting, spot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = made(tmp_path / "envs" / "torch", "conda-meta")
    monkeypatch.setenv("CONDA_PREFIX", prefix)
    spot("submit", "--", "x")
    assert sent(accepting)["conda_env"] == prefix
    assert "venv" not in sent(accepting)


def test_of_two_the_first_on_the_path_is_active(tmp_path: Path) -> None:
    venv, conda = made(tmp_path / "v"), made(tmp_path / "c", "conda-meta")
    both = {"VIRTUAL_ENV": venv, "CONDA_PREFIX": conda}
    assert active_environment({**both, "PATH": f"{venv}/bin:{conda}/bin:/bin"}) == ("venv", venv)
    assert active_environment({**both, "PATH": f"{conda}/bin:{venv}/bin:/bin"}) == ("conda_env", conda)
    assert active_environment({**both, "PATH": f"{conda}/bin:/bin"}) == ("conda_env", conda)
    assert active_environment({**both, "PATH": "/bin"}) == ("venv", venv), "as `uv run` says it"
    assert active_environment({"VIRTUAL_ENV": str(tmp_path / "gone"), "PATH": "/bin"}) is None
    assert active_environment({"VIRTUAL_ENV": "", "PATH": "/bin"}) is None


def test_what_the_spec_says_wins_and_the_flag_over_both(
    accepting, spot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", made(tmp_path / "active"))
    other = made(tmp_path / "other")
    file = tmp_path / "train.yaml"
    for said in ("venv: null", "venv: /elsewhere", "conda_env: torch", "env: {PATH: /my/bin}"):
        file.write_text(f"command: x\n{said}\n")
        assert spot("submit", str(file)).err == ""
        assert sent(accepting).get("venv") in (None, "/elsewhere")
    file.write_text("command: x\nconda_env: torch\n")
    assert spot("submit", str(file), "--venv", os.path.relpath(other)).code == 0
    assert (sent(accepting)["venv"], sent(accepting).get("conda_env")) == (other, None)


def test_a_folder_without_an_environment_is_refused(accepting, spot, tmp_path: Path) -> None:
    ended = spot("submit", "--venv", str(tmp_path), "--", "x")
    assert ended.code == 2
    assert "is neither a virtual environment (pyvenv.cfg) nor one of conda" in ended.err
    assert accepting.bodies("/v1/runs") == []


def test_machines_elsewhere_cannot_see_our_environments(
    accepting, spot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", made(tmp_path / "active"))
    assert spot("submit", "--provider", "gce", "--", "x").err == ""
    accepting.respond("GET", "/v1/meta", {"provider": "gce"})
    assert spot("submit", "--", "x").err == ""
    assert all("venv" not in body["spec"] for body in accepting.bodies("/v1/runs"))


def test_a_resume_with_another_spec_takes_it_too(
    accepting, spot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = made(tmp_path / "active")
    monkeypatch.setenv("VIRTUAL_ENV", prefix)
    accepting.respond("POST", "/v1/runs/digits-7/resume", a_run())
    file = tmp_path / "train.yaml"
    file.write_text("command: x\n")
    assert spot("resume", "digits-7", "--spec", str(file), "--replace-spec").code == 0
    assert accepting.bodies("/v1/runs/digits-7/resume")[-1]["spec"]["venv"] == prefix

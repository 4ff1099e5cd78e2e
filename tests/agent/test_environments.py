"""Conda environments are found where conda keeps them; for a missing one the existing ones are named."""

from pathlib import Path

import pytest

from supervisor.agent.machine.command import NOT_FOUND, NotStarted, conda_envs, with_conda_env, with_venv
from supervisor.contract.heartbeat import MAX_TEXT, NO_CONDA, NO_VENV


def made(prefix: Path) -> str:
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "bin").mkdir()
    return str(prefix)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "dict[str, str]":
    """A separate home, without conda of this computer."""
    monkeypatch.setattr("supervisor.agent.machine.command.SYSTEM", ())
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}


def test_every_folder_of_conda_is_searched(tmp_path: Path, env: "dict[str, str]") -> None:
    home = tmp_path / "home"
    base = made(home / "miniconda3")
    torch = made(home / "miniconda3" / "envs" / "torch")
    made(home / "miniconda3" / "envs" / "torch" / "pkgs")
    (home / "miniconda3" / "envs" / "no-env").mkdir()
    own = made(home / ".conda" / "envs" / "own")
    far = made(tmp_path / "elsewhere" / "far")
    (home / ".conda" / "environments.txt").write_text(f"{far}\n{tmp_path}/deleted\nnonsense\n")
    assert conda_envs(env) == {"base": base, "torch": torch, "own": own, "far": far}

    other = made(tmp_path / "opt")
    jax = made(tmp_path / "opt" / "envs" / "jax")
    assert conda_envs({**env, "CONDA_EXE": f"{other}/bin/conda"})["jax"] == jax
    program = tmp_path / "opt" / "bin" / "conda"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    on_path = {**env, "PATH": f"{other}/bin:/bin"}
    assert conda_envs(on_path)["jax"] == jax
    assert conda_envs(on_path)["base"] == other, "the conda that is called comes first"


def test_the_variables_of_an_activation(tmp_path: Path, env: "dict[str, str]") -> None:
    prefix = made(tmp_path / "home" / "miniforge3" / "envs" / "torch")
    given = {**env, "VIRTUAL_ENV": "/x", "PYTHONHOME": "/y", "OTHER": "kept"}
    for wanted in ("torch", prefix):
        after = with_conda_env(wanted, given)
        assert after["PATH"] == f"{prefix}/bin:/usr/bin:/bin"
        assert (after["CONDA_PREFIX"], after["CONDA_DEFAULT_ENV"]) == (prefix, wanted)
        assert after["OTHER"] == "kept"
        assert {"VIRTUAL_ENV", "PYTHONHOME"}.isdisjoint(after)


def test_a_missing_environment_names_the_existing_ones(tmp_path: Path, env: "dict[str, str]") -> None:
    for number in range(12):
        made(tmp_path / "home" / "anaconda3" / "envs" / f"e{number:02}")
    with pytest.raises(NotStarted, match=r"there are: e00, e01, e02, .*e07, \.\.\.") as refusal:
        with_conda_env("torch", env)
    assert refusal.value.code == NOT_FOUND
    assert str(refusal.value).startswith(NO_CONDA + "torch ")
    assert len(str(refusal.value)) < MAX_TEXT
    with pytest.raises(NotStarted, match="is not on this machine"):
        with_conda_env(str(tmp_path / "nowhere"), env)
    with pytest.raises(NotStarted, match="not on this machine"):
        with_conda_env("../anaconda3/envs/e00", env)


def test_a_machine_without_conda(env: "dict[str, str]") -> None:
    with pytest.raises(NotStarted, match="no conda environment was found there at all"):
        with_conda_env("torch", env)


def test_a_virtual_environment_comes_first(tmp_path: Path, env: "dict[str, str]") -> None:
    prefix = tmp_path / "with space" / ".venv"
    with pytest.raises(NotStarted, match="is not on this machine") as refusal:
        with_venv(str(prefix), env)
    assert str(refusal.value) == f"{NO_VENV}{prefix} is not on this machine"
    prefix.mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    after = with_venv(str(prefix), {**env, "PYTHONHOME": "/y", "CONDA_PREFIX": "/c"})
    assert after["PATH"] == f"{prefix}/bin:/usr/bin:/bin"
    assert after["VIRTUAL_ENV"] == str(prefix)
    assert after["CONDA_PREFIX"] == "/c", "as where a person activates one on top of conda's"
    assert "PYTHONHOME" not in after

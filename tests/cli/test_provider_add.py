"""`spot provider add`: one section more, everything else as it was, and nothing that a start would refuse."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

BEFORE = '# of the lab\nstore_url = "file:///mnt/spot"\n\n[providers.local]\nkind = "local"\nzones = ["bench"]\n'


@pytest.fixture
def file(clean: Path, tmp_path: Path) -> Path:
    return tmp_path / "spot.toml"


def test_a_new_file_keeps_the_machines_of_this_computer(run_cli, file: Path) -> None:
    ended = run_cli(
        "provider", "add", "lab", "--kind", "ssh", "--host", "gpu1", "--host", "gpu2", "--config", str(file)
    )
    assert ended.code == 0, ended.err
    assert tomllib.loads(file.read_text()) == {
        "providers": {"local": {"kind": "local"}, "lab": {"kind": "ssh", "hosts": ["gpu1", "gpu2"]}}
    }
    assert "It counts from the next start" in ended.err


def test_everything_else_stays(run_cli, file: Path) -> None:
    file.write_text(BEFORE)
    file.chmod(0o600)
    words = ("provider", "add", "lab", "--kind", "ssh", "--host", "gpu1", "--set", "machines=2", "--set", "gpus=l4=1")
    assert run_cli(*words, "--config", str(file)).code == 0
    text = file.read_text()
    assert text.startswith(BEFORE)
    assert tomllib.loads(text)["providers"]["lab"] == {
        "kind": "ssh", "hosts": ["gpu1"], "machines": "2", "gpus": "l4=1",
    }  # fmt: skip
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("lab", "--kind", "ssh"), "ssh_hosts"),
        (("lab", "--kind", "sssh", "--host", "gpu1"), "sssh"),
        (("lab", "--kind", "ssh", "--host", "gpu1", "--set", "mashines=2"), "mashines"),
        (("lab", "--kind", "ssh", "--host", "gpu1", "--set", "machines"), "expected KEY=VALUE"),
        (("Lab!", "--kind", "ssh", "--host", "gpu1"), "is not a name"),
        (("local", "--kind", "ssh", "--host", "gpu1"), "has [providers.local] already"),
    ],
)
def test_what_a_start_would_refuse_is_refused_and_nothing_is_written(
    run_cli, file: Path, words: tuple[str, ...], text: str
) -> None:
    file.write_text(BEFORE)
    ended = run_cli("provider", "add", *words, "--config", str(file))
    assert ended.code != 0
    assert text in ended.err, ended.err
    assert file.read_text() == BEFORE
    assert [path.name for path in file.parent.iterdir() if path.is_file()] == ["spot.toml"]


def test_a_file_with_one_provider_is_left_to_the_user(run_cli, file: Path) -> None:
    file.write_text('provider = "local"\n')
    ended = run_cli("provider", "add", "lab", "--kind", "ssh", "--host", "gpu1", "--config", str(file))
    assert "Make it a section first" in ended.err
    assert file.read_text() == 'provider = "local"\n'


def test_without_a_file_it_says_which_option_is_missing(run_cli, clean: Path) -> None:
    ended = run_cli("provider", "add", "lab", "--kind", "ssh", "--host", "gpu1")
    assert "--config" in ended.err

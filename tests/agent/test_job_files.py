"""The files of a rented machine: the command in a file of its own, the platform's id of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine.job import Job, JobRefused, read_job
from supervisor.agent.machine.processes import with_platform_id
from tests.agent.bench import IDENTITY

NAMELESS = ["", "{", "[]", "{}", '{"machine_id": ""}', '{"machine_id": 5}', '{"machine_id": "\\n"}']
PAPER = {"version": 1, "name": "vm", "run_id": "digits-7", "launch_id": "1.1.1", "store_url": "gs://b"}
SHELL = "set -e\r\n\tprintf '%s' \"it's $HOME é\" \\\n  > out"


def read(folder: Path, laid_down: str | None = None, **changes: Any) -> Job:
    if laid_down is not None:
        (folder / "command").write_bytes(laid_down.encode())
    (folder / "job.json").write_text(json.dumps({**PAPER, **changes}))
    return read_job(str(folder / "job.json"))


def test_a_shell_command_arrives_byte_for_byte(tmp_path: Path) -> None:
    assert read(tmp_path, SHELL, command_form="shell").command == SHELL


def test_words_arrive_as_words(tmp_path: Path) -> None:
    words = ["python", "-c", SHELL, ""]
    assert read(tmp_path, json.dumps(words), command_form="words").command == tuple(words)


@pytest.mark.parametrize(
    ("form", "text"), [("words", "{"), ("words", "[]"), ("words", '{"a": 1}'), ("tea", "x"), ("shell", None)]
)
def test_an_invalid_command_is_refused(tmp_path: Path, form: str, text: str | None) -> None:
    with pytest.raises(JobRefused):
        read(tmp_path, text, command_form=form)


def test_the_keys_of_a_rented_machine(tmp_path: Path) -> None:
    references = {"API_KEY": "gcp:projects/p/secrets/s/versions/1"}
    job = read(
        tmp_path, "true", command_form="shell", server_url="https://spot.example:8443/x", secret_refs=references,
        secrets=["API_KEY"], sequence_from=100, notice_from="gce", notice_s=120,
        storage_endpoint="http://127.0.0.1:1", secret_manager_endpoint="http://127.0.0.1:2",
    )  # fmt: skip
    assert (job.server_url, job.secret_refs, job.sequence_from) == ("https://spot.example:8443/x", references, 100)
    assert (job.notice_from, job.notice_s) == ("gce", 120.0)
    assert (job.storage_endpoint, job.secret_manager_endpoint) == ("http://127.0.0.1:1", "http://127.0.0.1:2")


def test_missing_keys_have_the_defaults_of_this_computer(tmp_path: Path) -> None:
    job = read(tmp_path, command=["true"], secret_refs=None, sequence_from=None, notice_s=None, server_url="")
    assert (job.server_url, job.secret_refs, job.sequence_from, job.notice_s) == (None, {}, 0, 0.0)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://[::1]:8000/x", "http://localhost:8000"])
def test_unencrypted_beats_stay_on_this_machine(tmp_path: Path, url: str) -> None:
    assert read(tmp_path, command=["true"], server_url=url).server_url == url


@pytest.mark.parametrize(
    "url", ["http://10.0.0.2:8000", "http://127.0.0.1.example.com", "http://localhost.evil", "ftp://x", "x"]
)
def test_unencrypted_beats_go_nowhere_else(tmp_path: Path, url: str) -> None:
    with pytest.raises(JobRefused, match="server_url"):
        read(tmp_path, command=["true"], server_url=url)


def test_a_machine_has_the_id_of_its_platform(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    assert with_platform_id(IDENTITY, str(path)) == IDENTITY
    assert IDENTITY.machine_id.startswith("local:")
    path.write_text('{"machine_id": "5123456789012345678"}')
    assert with_platform_id(IDENTITY, str(path)).machine_id == "5123456789012345678"
    assert with_platform_id(IDENTITY, str(path)).boot_id == IDENTITY.boot_id


@pytest.mark.parametrize("torn", NAMELESS)
def test_an_unreadable_id_is_refused(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "identity.json"
    path.write_text(torn)
    with pytest.raises(ValueError, match="names no machine"):
        with_platform_id(IDENTITY, str(path))

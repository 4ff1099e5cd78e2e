"""Secrets on this computer: the value of a reference, refusals with their fix, and who can see a value."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.machinefolder.secrets import FILE_BYTES, SecretUnreadable, problem, read, variables, without_secrets
from supervisor.ports.provider import LaunchRejected
from tests.contracts.provider_subject import ref
from tests.providers.local_machines import LocalSubject
from tests.waiting import wait_for

VALUE = "hush-hush-4711"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(VALUE + "\n")
    path.chmod(0o600)
    return path


def test_a_file_gives_its_text_without_the_newline_at_its_end(kept: Path) -> None:
    assert read(f"file:{kept}") == VALUE
    kept.write_text("two\nlines\n\n")
    assert read(f"file:{kept}") == "two\nlines\n"
    link = kept.with_name("link")
    link.symlink_to(kept)
    assert read(f"file:{link}") == "two\nlines\n"


def test_the_environment_gives_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", VALUE)
    assert read("env:WANDB_API_KEY") == VALUE


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_may_touch_is_refused_with_the_cure(kept: Path, mode: int) -> None:
    kept.chmod(mode)
    assert problem(f"file:{kept}") == f"others can read it (mode {mode:04o}); run chmod 600 {kept}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"abc\n", "holds fewer than 4 characters"),
        (b"ab\0cdef", "is not UTF-8 text"),
        (b"\xff\xfe-----", "is not UTF-8 text"),
        (b"x" * (FILE_BYTES + 1), f"is larger than {FILE_BYTES} bytes"),
    ],
)
def test_a_file_without_a_usable_value_is_refused(kept: Path, content: bytes, why: str) -> None:
    kept.write_bytes(content)
    told = problem(f"file:{kept}")
    assert why in told
    assert str(kept) in told


def test_what_is_no_plain_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert "is not a regular file" in problem(f"file:{pipe}")
    assert "is not a regular file" in problem(f"file:{tmp_path}")
    assert "No such file" in problem(f"file:{tmp_path}/absent")


def test_the_services_own_settings_are_no_secrets_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_DATABASE_URL", VALUE)
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    assert "is not set" in problem("env:SPOT_DATABASE_URL")
    assert "ABSENT_KEY is not set in the service's environment" in problem("env:ABSENT_KEY")
    monkeypatch.setenv("ABSENT_KEY", "")
    assert problem("env:ABSENT_KEY") == "env:ABSENT_KEY is empty"
    with pytest.raises(SecretUnreadable, match="is not a reference"):
        read("vault:ABSENT_KEY")


def test_a_training_inherits_nothing_that_looks_like_a_secret() -> None:
    around = {"PATH": "/bin", "HOME": "/h", "SPOT_PORT": "1", "HF_TOKEN": "1", "MY_PLAIN": "2", "LANG": "C"}
    around |= {"AWS_SECRET_ACCESS_KEY": "3", "PGPASSWORD": "4", "OMP_NUM_THREADS": "5"}
    left = without_secrets(around, variables(["env:MY_PLAIN", "file:/LANG"]))
    assert left == {"PATH": "/bin", "HOME": "/h", "LANG": "C", "OMP_NUM_THREADS": "5"}


def test_values_come_by_standard_input_and_lie_nowhere(local: LocalSubject, kept: Path) -> None:
    request = replace(local.request(), secrets={"API_KEY": f"file:{kept}", "OTHER": f"file:{kept}"})
    local.up(request)
    pid = local.pids(request)["agent"]
    assert json.loads((local.folder(request) / "given").read_text()) == {"API_KEY": VALUE, "OTHER": VALUE}
    (local.folder(request) / "given").unlink()
    for place in ("environ", "cmdline"):
        assert VALUE.encode() not in Path(f"/proc/{pid}/{place}").read_bytes()
    for path in local.folder(request).rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path


def test_what_one_run_has_named_no_later_one_inherits(local: LocalSubject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_NAME", VALUE)
    local.up(replace(local.request(run="first"), secrets={"API_KEY": "env:PLAIN_NAME"}))
    second = local.request(run="second")
    local.up(second)
    for process in local.pids(second).values():
        assert VALUE.encode() not in Path(f"/proc/{process}/environ").read_bytes()


def test_a_megabyte_of_secrets_arrives_whole(local: LocalSubject, tmp_path: Path) -> None:
    """More than any pipe holds: the launch does not wait for a slow agent."""
    references = {}
    for number in range(16):
        path = tmp_path / f"large-{number}"
        path.write_text(f"{number:04d}" * (FILE_BYTES // 4))
        path.chmod(0o600)
        references[f"KEY_{number}"] = f"file:{path}"
    request = replace(local.request(), secrets=references)
    local.up(request)
    given = json.loads((local.folder(request) / "given").read_text())
    assert {name: len(value) for name, value in given.items()} == dict.fromkeys(references, FILE_BYTES)


def test_a_refused_launch_leaves_no_folder(local: LocalSubject, kept: Path) -> None:
    kept.chmod(0o644)
    request = replace(local.request(), secrets={"API_KEY": f"file:{kept}"})
    with pytest.raises(LaunchRejected, match="secret API_KEY: others can read it"):
        local.provider.launch(request)
    assert list((local.data_dir / "machines").iterdir()) == []
    assert list((local.data_dir / "local" / "released").iterdir()) == []


def test_what_is_kept_of_a_released_machine_holds_only_known_papers(local: LocalSubject) -> None:
    request = local.request()
    machine = local.up(request)
    folder = local.folder(request)
    closed = folder / "work" / "closed" / "deeper"
    closed.mkdir(parents=True)
    (closed / "output.log").write_text(VALUE)
    (folder / "stray.txt").write_text(VALUE)
    (folder / "link").symlink_to(local.data_dir)
    closed.parent.chmod(0)
    local.provider.release(ref(request, machine.machine_id))
    kept = local.data_dir / "local" / "released" / request.name
    assert {path.name for path in kept.iterdir()} == {"job.json", "agent.json", "console.log"}
    assert local.data_dir.exists()


def test_a_crash_in_the_middle_of_putting_away_is_made_good_at_the_next_start(local: LocalSubject) -> None:
    torn = local.data_dir / "local" / "released" / "torn"
    (torn / "work").mkdir(parents=True)
    (torn / "work" / "output.log").write_text(VALUE)
    (torn / "console.log").write_text("kept")
    local.fresh()
    assert [path.name for path in torn.iterdir()] == ["console.log"]
    wait_for((torn / "console.log").exists)

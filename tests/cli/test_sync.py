"""`spot sync`: the folder by the rules of a bundle, only what differs, and nothing of another folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.exits import FAILED, CliError
from supervisor.cli.files import syncing
from supervisor.cli.files.syncing import Local, Syncing
from supervisor.contract.bundle import Opened, read_delta
from tests.bundles import bundle_of
from tests.cli.conftest import Ended
from tests.cli.fake_api import FakeApi
from tests.cli.test_pack import write
from tests.deltas import content_of
from tests.waiting import wait_for

TREE = {"train.py": "print(1)\n", "lib/model.py": "x = 1\n", "run.sh": "ls\n"}


class Server:
    """The client of a supervisor that accepts everything. `files`: path -> content of the newest revision."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = {path: {"path": path, "content": content_of(text.encode()), "size": 0, "executable": False}
                      for path, text in files.items()}  # fmt: skip
        self.revision, self.conflicts = 3, 0
        self.sent: list[tuple[dict[str, bytes | str], list[str]]] = []

    def get(self, path: str) -> Any:
        if path.endswith("/files"):
            return {"revision": self.revision, "files": list(self.files.values())}
        return {"attempts": [{"attempt": 1, "revision": self.revision, "kept": ["train.py.orig"]}]}

    def send(self, method: str, path: str, params: Any, *, headers: Any, content: Any) -> None:
        from supervisor.cli.exits import Problem

        if self.conflicts:
            self.conflicts -= 1
            self.revision += 1
            raise Problem(409, "SYNC_CONFLICT", "again")
        assert path.endswith(f"/code/{self.revision + 1}")
        delta, files = read_delta(Opened(iter([content.read()])))
        arrived = {
            member.path: member.link if member.link is not None else b"".join(pieces) for member, pieces in files
        }
        self.sent.append((arrived, sorted(delta.removed)))
        self.revision += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "mine", dict(TREE))


def syncing_of(folder: Path, files: dict[str, str] = TREE) -> tuple[Syncing, Server]:
    server = Server(files)
    made = Syncing(server, "digits-7", Local(folder))  # type: ignore[arg-type]
    made.begin(yes=False)
    return made, server


def test_equal_folders_send_nothing(folder: Path) -> None:
    made, server = syncing_of(folder)
    assert not made.send()
    assert server.sent == []


def test_only_what_differs_is_sent(folder: Path) -> None:
    made, server = syncing_of(folder)
    write(folder, {"train.py": "print(2)\n", "lib/new.py": "y = 2\n"})
    (folder / "run.sh").unlink()
    (folder / "link").symlink_to("train.py")
    made.local.scan()
    assert made.send()
    arrived = {"train.py": b"print(2)\n", "lib/new.py": b"y = 2\n", "link": "train.py"}
    assert server.sent == [(arrived, ["run.sh"])]
    assert made.revision == 4
    assert not made.send(), "it is known now"


def test_the_executable_bit_travels(folder: Path) -> None:
    made, server = syncing_of(folder)
    (folder / "run.sh").chmod(0o755)
    made.local.scan()
    assert made.send()
    assert [set(files) for files, _ in server.sent] == [{"run.sh"}]


def test_secrets_and_what_is_left_out_are_not_sent(folder: Path) -> None:
    secret = {".env": "KEY=1", "lib/.env": "KEY=1", "id_rsa": "x", ".git/config": "x", "__pycache__/a.pyc": "x"}
    write(folder, {**secret, ".gitignore": "*.bin\n", "big.bin": "x", "data/a.bin": "x"})
    made, server = syncing_of(folder)
    made.local.scan()
    made.send()
    assert [set(files) for files, _ in server.sent] == [{".gitignore"}]
    for path in (*secret, "big.bin", "data/a.bin"):
        made.local.look({path})
    assert not made.send(), "by name, too"


def test_a_file_that_is_left_out_by_now_is_not_removed(folder: Path) -> None:
    made, server = syncing_of(folder)
    write(folder, {".gitignore": "lib/\n"})
    made.local.look({".gitignore"})
    made.send()
    assert server.sent == [({".gitignore": b"lib/\n"}, [])]


def test_links_that_lead_out_are_refused(folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    with pytest.raises(CliError, match="absolute path"):
        syncing_of(folder)


def test_another_folder_is_refused(folder: Path) -> None:
    with pytest.raises(CliError, match="another folder"):
        syncing_of(folder, {f"m{number}.py": "1" for number in range(8)} | TREE)


def test_others_who_sync_the_same_run(folder: Path) -> None:
    made, server = syncing_of(folder)
    write(folder, {"train.py": "print(2)\n"})
    made.local.scan()
    server.conflicts = 2
    assert made.send()
    assert len(server.sent) == 1
    server.conflicts = 99
    write(folder, {"train.py": "print(3)\n"})
    made.local.scan()
    with pytest.raises(CliError, match="kept changing"):
        made.send()


def test_a_look_by_name_is_a_scan_of_that_part(folder: Path) -> None:
    """The same after any change: each is looked at by name, and the whole folder is scanned beside it."""
    local = Local(folder)
    local.scan()
    steps: list[tuple[set[str], Any]] = [
        ({"train.py"}, lambda: write(folder, {"train.py": "print(2)\n"})),
        ({"new/deep/a.py"}, lambda: write(folder, {"new/deep/a.py": "1"})),
        ({"run.sh"}, (folder / "run.sh").unlink),
        ({"moved", "new"}, lambda: (folder / "new").rename(folder / "moved")),
        ({"lib/.spotignore"}, lambda: write(folder, {"lib/.spotignore": "model.py\n"})),
        ({"lib/.spotignore"}, (folder / "lib/.spotignore").unlink),
        ({"moved"}, lambda: subprocess.run(["rm", "-r", str(folder / "moved")], check=True)),
        ({"env/pyvenv.cfg", "env/x.py"}, lambda: write(folder, {"env/pyvenv.cfg": "", "env/x.py": "1"})),
        ({"l"}, lambda: (folder / "l").symlink_to("lib")),
        ({"l/model.py"}, lambda: write(folder, {"lib/model.py": "x = 3\n"})),
    ]
    for paths, step in steps:
        step()
        local.look(paths)
        whole = Local(folder)
        whole.scan()
        if "l/model.py" in paths:
            assert "l/model.py" not in local.seen, "nothing is looked at through a link"
            local.look({"lib/model.py"})
        assert local.seen == whole.seen, paths


def test_changes_are_reported(folder: Path) -> None:
    changes = syncing.watched(folder)
    next(changes)
    write(folder, {"lib/model.py": "x = 2\n", ".git/HEAD": "x"})
    seen: set[str] = set()
    wait_for(lambda: seen.update(next(changes)) or "lib/model.py" in seen, 20, "the change")
    assert not [path for path in seen if path.startswith(".git")]
    changes.close()


def test_the_commit_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Local(folder).commit() == ""
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "x")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    commit = Local(folder).commit()
    assert len(commit) == 40
    write(folder, {"train.py": "print(2)\n"})
    assert Local(folder).commit() == commit + "+changes"


def test_the_machine_is_waited_for_and_what_it_kept_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = syncing_of(folder)
    write(folder, {"train.py": "print(2)\n"})
    made.local.scan()
    made.send()
    made.wait()
    shown = capsys.readouterr().err.splitlines()
    assert shown[0].startswith("revision 4: 1 file changed, 0 removed")
    assert shown[1].startswith("revision 4 is on the machine of attempt 1 (")
    assert shown[2] == "  its machine had changed that file too: train.py.orig there is its own"


def test_unwatched_folders_are_read_now_and_then(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError("no space left on device")

    monkeypatch.setattr("watchfiles.watch", full)
    assert next(syncing.watched(folder)) == {"."}
    local = Local(folder)
    local.look({"."})
    assert set(local.seen) == set(TREE)


@pytest.mark.parametrize(
    ("state", "archive", "text"),
    [
        ("refused", b"", "did not send its files: the run has no code bundle"),
        ("lost", b"", "did not send its files"),
        ("done", b"no gzip", "What the machine sent is refused"),
        ("done", bundle_of({"../x": b"1"})[1], "What the machine sent is refused"),
    ],
)
def test_what_does_not_come_back_changes_nothing(
    api: FakeApi, run_cli: Callable[..., Ended], folder: Path, state: str, archive: bytes, text: str
) -> None:
    path = "/v1/runs/digits-7/commands/" + "ab" * 8
    result = {"command_id": "ab" * 8, "state": state, "text": "the run has no code bundle", "files": 1}
    api.respond("POST", "/v1/runs/digits-7/code/collected", result, 201)
    api.respond("GET", path, result)
    api.respond("GET", "/v1/runs/digits-7/code/files", {"revision": 0, "files": []})
    api.respond("GET", f"{path}/files", archive)
    before = sorted(folder.rglob("*"))
    ended = run_cli("sync", "--url", api.url, "digits-7", str(folder), "--back")
    assert (ended.code, "SYNC_REFUSED" in ended.err, text in ended.err) == (FAILED, True, True), ended.err
    assert sorted(folder.rglob("*")) == before

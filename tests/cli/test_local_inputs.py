"""`--code DIR` and `code: DIR`: the folder is sent once, the spec keeps its hash, and gets no workdir."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from supervisor.cli.client import Client, Json
from supervisor.cli.exits import CliError, Problem, Unreachable
from supervisor.cli.files.local_inputs import settle_code
from supervisor.cli.runs.specfile import read_spec
from supervisor.cli.runs.submit import body_from
from supervisor.cli.views.show import code_lines
from supervisor.contract.bundle import Opened

HASH = "ab" * 32


class Shelf(Client):
    """A supervisor with bundles. `lose`: so many responses to a PUT are lost after it was carried out."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.lose = 0
        self.sent = 0

    def get(self, path: str, **params: object) -> Any:
        if path not in self.stored:
            raise Problem(404, "CODE_NOT_FOUND", "not stored")
        return {}

    def send(self, method: str, path: str, *_: object, content: IO[bytes] | None = None, **more: Any) -> Any:
        assert method == "PUT"
        assert content is not None
        raw = content.read()
        assert more["headers"] == {"Content-Type": "application/gzip", "Content-Length": str(len(raw))}
        self.stored[path] = raw
        self.sent += 1
        if self.lose:
            self.lose -= 1
            raise Unreachable("lost", sent=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    return folder


def test_a_folder_becomes_its_hash(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shelf, spec = Shelf(), {"code": str(project), "workdir": "./sub/"}
    settle_code(shelf, spec)
    [(path, raw)] = shelf.stored.items()
    opened = Opened([raw])
    assert [member.path for member, _ in opened.files()] == ["train.py"]
    assert path == f"/v1/code/{opened.sha256}"
    assert spec == {"code": opened.sha256, "workdir": "sub"}
    assert f"code {opened.sha256[:12]}: 1 file, 9 B of {project} (stored, {len(raw)} B sent)" in capsys.readouterr().err

    (project / ".venv").mkdir()
    (project / ".venv" / "pyvenv.cfg").touch()
    settle_code(shelf, again := {"code": str(project)})
    assert again["code"] == opened.sha256
    said = capsys.readouterr().err
    assert "(stored already)" in said
    assert said.endswith("left out: .venv/ (a virtual environment)\n")
    assert shelf.sent == 1


def test_a_request_with_a_lost_response_is_repeated(project: Path) -> None:
    shelf = Shelf()
    shelf.lose = 1
    settle_code(shelf, {"code": str(project)})
    assert shelf.sent == 2
    [raw] = shelf.stored.values()
    assert list(Opened([raw]).files()), "the second time is whole, too"
    shelf.lose = 9
    (project / "b.py").write_text("2")
    with pytest.raises(Unreachable):
        settle_code(shelf, {"code": str(project)})


@pytest.mark.parametrize("code", [None, HASH, 7, ["x"], ""])
def test_what_is_no_folder_is_left_to_the_api(code: object) -> None:
    spec: Json = {"code": code, "workdir": "./x"}
    settle_code(Shelf(), spec)
    assert spec == {"code": code, "workdir": "./x"}


def test_a_folder_that_is_not_there(project: Path) -> None:
    for wrong, word in ((project / "none", "not a folder."), (project / "train.py", "it is a file")):
        with pytest.raises(CliError, match=word):
            settle_code(Shelf(), {"code": str(wrong)})


@pytest.mark.parametrize(
    ("command", "workdir", "word"),
    [
        (["python", "trian.py"], None, "did you mean train.py?"),
        ("./train.py", None, "chmod [+]x train.py"),
        (["python", "train.py"], "src", "workdir src is not a folder of the bundle"),
    ],
)
def test_what_would_be_refused_is_not_sent(project: Path, command: object, workdir: object, word: str) -> None:
    shelf = Shelf()
    with pytest.raises(CliError, match=word) as error:
        settle_code(shelf, {"code": str(project), "command": command, "workdir": workdir})
    assert error.value.code == "CODE_REFUSED"
    assert not shelf.stored


def test_a_spec_that_makes_no_sense_is_left_to_the_api(project: Path) -> None:
    for spec in ({"command": 7}, {"command": ["python", 3]}, {"command": "x", "workdir": ["a"]}, {}):
        wish: Json = {"code": str(project), **spec}
        settle_code(Shelf(), wish)
        assert len(wish["code"]) == 64


def test_a_refusal_of_the_api_ends_it(project: Path) -> None:
    class Down(Shelf):
        def get(self, path: str, **params: object) -> Any:
            raise Problem(503, "UNAVAILABLE", "away")

    with pytest.raises(Problem, match="away"):
        settle_code(Down(), {"code": str(project)})


FLAGS = {"replace_spec": False, "rerun": False}


def test_flags(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    spec = body_from(None, ["x"], {**FLAGS, "code": "."})["spec"]
    assert os.path.samefile(spec["code"], project)
    assert "workdir" not in spec
    assert body_from(None, ["x"], {**FLAGS, "code": ".", "workdir": "src"})["spec"]["workdir"] == "src"
    assert body_from(None, ["x"], {**FLAGS, "code": HASH})["spec"]["code"] == HASH
    assert body_from(None, ["x"], {**FLAGS, "workdir": "src"})["spec"]["workdir"] == str(project / "src")


def test_files(project: Path, tmp_path: Path) -> None:
    def spec_of(text: str, read: Callable[[str], tuple[str | None, Json]] = read_spec) -> Json:
        path = tmp_path / "train.yaml"
        path.write_text(text)
        return read(str(path))[1]

    assert spec_of("command: x\ncode: project\n") == {"command": "x", "code": str(project)}
    assert spec_of(f"command: x\ncode: {HASH}\nworkdir: src\n") == {"command": "x", "code": HASH, "workdir": "src"}
    assert spec_of("command: x\ncode: .\nworkdir: null\n") == {"command": "x", "code": str(tmp_path)}
    assert spec_of("command: x\n")["workdir"] == str(tmp_path)
    assert spec_of("command: x\ncode: null\n")["workdir"] == str(tmp_path)
    spec = body_from(str(tmp_path / "train.yaml"), None, {**FLAGS, "code": str(project)})["spec"]
    assert spec == {"command": "x", "code": str(project)}, "the flag takes the default workdir away"


def test_which_attempt_ran_which_code() -> None:
    attempts = [{"number": number, "code": code} for number, code in ((1, HASH), (2, HASH), (3, "c" * 64), (4, None))]
    assert code_lines(attempts) == ["code abababababab (attempts 1, 2), cccccccccccc (attempt 3)"]
    assert code_lines(attempts[3:]) == []
    assert code_lines([{"number": 1}]) == [], "an older supervisor does not tell"


def test_the_file_of_a_secret_does_not_travel_with_the_code(project: Path, tmp_path: Path) -> None:
    """It would be stored for good, and shown to everyone who may read the code."""
    (project / "keys").mkdir()
    (project / "keys" / "token").write_text("canary")
    (tmp_path / "outside").symlink_to(project / "keys" / "token")
    for path in (project / "keys" / "token", tmp_path / "outside"):
        shelf, spec = Shelf(), {"code": str(project), "secrets": {"TOKEN": f"file:{path}", "KEY": "env:KEY"}}
        with pytest.raises(CliError, match=r"keys/token holds the secret TOKEN .* Nothing was sent") as refused:
            settle_code(shelf, spec)
        assert ".spotignore" in refused.value.hints[0]
        assert not shelf.stored
    (project / ".spotignore").write_text("keys/\n")
    settle_code(shelf, spec)
    assert shelf.sent == 1

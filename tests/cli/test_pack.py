"""From a folder to its bundle: what travels, the same bytes for the same tree, and refusals that name the file."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from pathspec import GitIgnoreSpec

from supervisor.cli.exits import USAGE, CliError
from supervisor.cli.files import pack
from supervisor.cli.files.pack import walk
from supervisor.contract.bundle import Opened


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def names(folder: Path) -> set[str]:
    return {source.member.path for source in walk(folder)}


def sha256(folder: Path) -> str:
    with pack.packed(folder) as bundle:
        return bundle.index.sha256


def refused(folder: Path) -> CliError:
    with pytest.raises(CliError) as error:
        sha256(folder)
    assert (error.value.code, error.value.exit_code) == ("CODE_REFUSED", USAGE)
    return error.value


TREE: dict[str, str | bytes] = {
    "train.py": "print(1)\n",
    "lib/model.py": "x = 1\n" * 5000,
    "lib/data.bin": os.urandom(3_000_000),
    "ä/" + "n" * 200: "long names\n",
    "nothing": "",
}


def test_equal_trees_have_equal_names(tmp_path: Path) -> None:
    first, second = write(tmp_path / "first", TREE), write(tmp_path / "second", dict(reversed(TREE.items())))
    (first / "link").symlink_to("lib/model.py")
    (second / "link").symlink_to("lib/model.py")
    for path in second.rglob("*"):
        os.utime(path, (5, 5), follow_symlinks=False)
    (second / "train.py").chmod(0o600)
    (second / "empty" / "folder").mkdir(parents=True)
    write(second, {"lib/__pycache__/model.pyc": "x", ".git/HEAD": "x", "lib/.git": "a submodule"})
    assert sha256(first) == sha256(second)

    (second / "train.py").chmod(0o700)
    assert sha256(first) != sha256(second), "what may be executed belongs to the tree"
    (second / "train.py").chmod(0o644)
    write(second, {"train.py": "print(2)\n"})
    assert sha256(first) != sha256(second)


def test_an_ordinary_tar_would_not_do(tmp_path: Path) -> None:
    """Broken on purpose: the library's own way notes times and owners."""

    def ordinary(folder: Path) -> str:
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w") as archive:
            for name in sorted(TREE):
                archive.add(folder / name, name)
        return hashlib.sha256(target.getvalue()).hexdigest()

    first, second = write(tmp_path / "first", TREE), write(tmp_path / "second", TREE)
    os.utime(second / "train.py", (5, 5))
    assert ordinary(first) != ordinary(second)
    assert sha256(first) == sha256(second)


def test_the_archive_is_what_every_program_reads(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", TREE)
    (folder / "train.py").chmod(0o755)
    (folder / "link").symlink_to("lib/model.py")
    with pack.packed(folder) as bundle:
        raw = bundle.file.read()
    assert len(raw) == bundle.index.stored_bytes
    assert raw[4:8] == bytes(4), "no time in the gzip"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(raw))) as archive:
        infos = archive.getmembers()
        assert [info.name for info in infos] == sorted((*TREE, "link"), key=str.encode)
        assert {(info.mtime, info.uid, info.gid, info.uname, info.gname) for info in infos} == {(0, 0, 0, "", "")}
        assert {info.name: oct(info.mode) for info in infos if info.isreg()}["train.py"] == "0o755"
        for name, content in TREE.items():
            file = archive.extractfile(name)
            assert file is not None
            assert file.read() == (content if isinstance(content, bytes) else content.encode())
    again = Opened([raw])
    assert [member.path for member, _ in again.files()] == [info.name for info in infos]
    assert again.sha256 == bundle.index.sha256
    assert (len(bundle.index.members), bundle.index.size) == (len(infos), again.tree.size)


def test_what_shrinks_is_shrunk_and_what_does_not_is_stored(tmp_path: Path) -> None:
    for content, most in ((b"word " * 1_000_000, 0.1), (os.urandom(5_000_000), 1.002)):
        with pack.packed(write(tmp_path / "code", {"file": content})) as bundle:
            assert bundle.index.stored_bytes < most * len(content) + 2000


PATTERNS = "# comment\n*.pt\n!keep.pt\n/top.txt\nbuild/\nlogs/**/*.log\n\\#odd\ndocs/*.html\n a b \nmodules/\n!web/\n"
IGNORED = {
    ".gitignore": PATTERNS,
    "all/.gitignore": "**\n",
    "odd/.gitignore": "[[]x]\n**/in/**\n",
    "src/.gitignore": "*.tmp\n!/special.pt\n/generated\n",
    "src/deep/.gitignore": "!again.tmp\r\n*.md\r\n",
    **dict.fromkeys(
        (
            "a.pt", "keep.pt", "src/b.pt", "src/special.pt", "src/deep/special.pt", "top.txt", "src/top.txt", "build/x",
            "src/build/y", "src/buildx", "logs/a.log", "logs/a/b/c.log", "logs/a/readme", "#odd", "docs/a.html",
            "docs/sub/b.html", "src/c.tmp", "src/deep/again.tmp", "src/deep/other.tmp", "src/generated/z",
            "src/deep/generated/z", "src/deep/note.md", "note.md", "build2/x", "a b",
            "web/modules/x", "web/app", "all/x", "all/y/z", "odd/[x]", "odd/a/in/b", "odd/in/b/c", "odd/inn",
        ),
        "x",
    ),
}  # fmt: skip


def test_the_patterns_are_gits(tmp_path: Path) -> None:
    """Git itself lists the files."""
    git = shutil.which("git")
    assert git is not None
    folder = write(tmp_path / "code", IGNORED)
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(tmp_path)}
    ask = [git, "-C", str(folder)]
    subprocess.run([*ask, "init", "-q"], check=True, env=environ)
    listed = subprocess.run(
        [*ask, "ls-files", "-co", "--exclude-standard", "-z"], check=True, env=environ, stdout=subprocess.PIPE
    ).stdout
    assert names(folder) == set(listed.decode().split("\0")) - {""}


def test_the_librarys_own_verdict_would_not_do() -> None:
    """Broken on purpose: to it, what takes a folder back takes back everything below."""
    assert GitIgnoreSpec.from_lines(["modules/", "!web/"]).check_file("web/modules/").include is False


def test_spotignore_has_the_last_word(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "code",
        {
            ".gitignore": "*.csv\ndata/\n",
            ".spotignore": "!small.csv\n!data/\nnotes/\n.*ignore\n",
            "small.csv": "1",
            "big.csv": "2",
            "data/table": "3",
            "data/.spotignore": "huge\n",
            "data/huge": "4",
            "notes/x": "5",
            "__pycache__/a.pyc": "6",
        },
    )
    assert names(folder) == {"small.csv", "data/table"}
    write(folder, {".spotignore": "!__pycache__/\n"})
    assert "__pycache__/a.pyc" in names(folder)
    write(folder, {".spotignore": "*\n"})
    assert "nothing in" in refused(folder).text


def test_a_folder_that_is_left_out_is_not_looked_into(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {".gitignore": "data\n", "a.py": "1", "data/b": "2"})
    (folder / "data" / "gone").symlink_to("/nowhere")
    write(folder, {"data/.gitignore": "!b\n"})
    assert names(folder) == {".gitignore", "a.py"}


def test_links(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"a/b.py": "1", "c.py": "2"})
    (folder / "a" / "up").symlink_to("../c.py")
    (folder / "dir").symlink_to("a")
    (folder / "dangling").symlink_to("not/there")
    assert {"a/up", "dir", "dangling"} < names(folder)
    assert "dir/b.py" not in names(folder), "a link is a link"
    assert sha256(folder)
    for target in (str(tmp_path), "../outside", "a/../../x"):
        (folder / "out").symlink_to(target)
        error = refused(folder)
        assert "'out'" in error.text
        assert target in error.text
        (folder / "out").unlink()


def test_what_is_no_file(tmp_path: Path) -> None:
    # A socket's path is short by law.
    with tempfile.TemporaryDirectory() as short:
        folder = write(Path(short), {"a.py": "1"})
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "sock"))
            assert "is a socket" in refused(folder).text
        (folder / "sock").unlink()
        os.mkfifo(folder / "pipe")
        assert "is a pipe" in refused(folder).text
        write(folder, {".spotignore": "pipe\n"})
        assert names(folder) == {"a.py", ".spotignore"}


def test_names_that_cannot_travel(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"line\nbreak": "1"})
    assert "control characters" in refused(folder).text
    (folder / "line\nbreak").unlink()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe")).write_text("1")
    assert "UTF-8" in refused(folder).text


def test_windows_line_ends(tmp_path: Path) -> None:
    long = "x\n" * 600_000 + "y\r\n"
    folder = write(tmp_path / "code", {"a.sh": "echo\r\n", "b/c.sh": long, "d.py": "x\r\n", "e.sh": "x\n"})
    text = refused(folder).text
    assert r"sed -i 's/\r$//' a.sh b/c.sh, and add" in text


def test_a_file_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "code", {"a.py": "1" * 100, "b.log": "2" * 100})

    def grow(path: Path) -> None:
        with path.open("a") as file:
            file.write("more")

    changes: Iterable[Callable[[Path], object]] = (grow, lambda path: path.write_text("2"), Path.unlink)
    for change in changes:
        write(folder, {"b.log": "2" * 100})

        def after(place: Path, left_out: list[str], change: Callable[[Path], object] = change) -> list[pack.Source]:
            sources = list(walk(place))
            change(place / "b.log")
            return sources

        with monkeypatch.context() as patch:
            patch.setattr(pack, "walk", after)
            assert "b.log" in refused(folder).text
    assert sha256(folder)


def test_a_link_that_takes_a_files_place_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "code", {"a.py": "1"})

    def after(place: Path, left_out: list[str]) -> list[pack.Source]:
        sources = list(walk(place))
        (place / "a.py").unlink()
        (place / "a.py").symlink_to("/etc/hostname")
        return sources

    monkeypatch.setattr(pack, "walk", after)
    assert "a.py cannot be read" in refused(folder).text


def test_a_folder_without_end_is_left_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "MAX_NAMES", 10)
    folder = write(tmp_path / "code", {str(number): "1" for number in range(11)})
    assert "more than 10 files" in refused(folder).text


def test_a_pattern_that_is_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"a.py": "1", "sub/.spotignore": "!\n", "sub/b": "1"})
    try:
        packed_names = names(folder)
    except CliError as error:
        assert "sub" in error.text  # noqa: PT017 - either is fine: what is not is another error
    else:
        assert "a.py" in packed_names
    write(folder, {"sub/.spotignore": "[z-a]\n"})
    assert "no pattern of git" in refused(folder).text
    (folder / "sub/.spotignore").unlink()
    os.mkfifo(folder / "sub/.spotignore")  # nobody writes to it
    assert ".spotignore is not a file" in refused(folder).text


def test_environments_and_pulled_results_are_no_code(tmp_path: Path) -> None:
    """They need no line in an ignore file; a pattern takes one back, and the folder that is sent is always code."""
    project = write(
        tmp_path / "p",
        {
            "train.py": "", ".venv/pyvenv.cfg": "", ".venv/lib/torch.py": "", "deep/env/conda-meta/history": "",
            "my-run/.spot-pulled": "", "my-run/weights.npz": "", "src/pyvenv.py": "",
        },
    )  # fmt: skip
    assert names(project) == {"train.py", "src/pyvenv.py"}
    with pack.packed(project) as bundle:
        assert bundle.left_out == (
            ".venv/ (a virtual environment)", "deep/env/ (a conda environment)", "my-run/ (pulled results)",
        )  # fmt: skip
    write(project, {".spotignore": "!my-run/\n"})
    assert names(project) == {"train.py", "src/pyvenv.py", ".spotignore", "my-run/.spot-pulled", "my-run/weights.npz"}
    assert names(project / "my-run") == {".spot-pulled", "weights.npz"}

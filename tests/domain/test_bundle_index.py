"""From the list of a bundle's files: can this command start? Only certain failures are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from supervisor.contract.bundle import Member
from supervisor.domain.bundle_index import BundleIndex, command_problem, crlf_problem, holds_crlf, workdir_problem

INDEX = BundleIndex.of(
    "ab" * 32,
    [
        Member("train.py", 10),
        Member("src/eval.py", 20),
        Member("run.sh", 5, executable=True),
        Member("plain.sh", 5),
        Member("tools/launch.sh", 5, executable=True),
        Member("go", link="run.sh"),
        Member("scripts", link="tools"),
        Member("loop", link="loop"),
        Member("lost", link="nowhere"),
    ],
    77,
)


def test_the_list_is_read_as_it_was_written() -> None:
    again = BundleIndex.decode(INDEX.encode())
    assert again == INDEX
    assert (again.size, again.stored_bytes, again.sha256) == (45, 77, "ab" * 32)
    strange = INDEX.encode().replace(b'"run.sh"}', b"7}")
    deep = b"[" * 100_000
    assert strange != INDEX.encode()
    for torn in (b"", b"[]", b"{}", b'{"files": 3}', INDEX.encode()[:-1], b'{"files": [[]]}', deep, strange):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever the parser says
            BundleIndex.decode(torn)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--epochs", "3"],
        ["python3.11", "-u", "-W", "ignore", "train.py"],
        ["/usr/bin/python", "./train.py"],
        ["python", "-m", "package.train", "missing.py"],
        ["python", "-mpackage.train", "missing.py"],
        ["python", "-c", "print(1)", "missing.py"],
        ["python", "-Xdev", "train.py"],
        ["python", "/abs/missing.py"],
        ["python", "package_dir", "missing.py"],
        ["python", "-"],
        ["python"],
        ["bash", "-lc", "anything missing.sh"],
        ["bash", "-e", "run.sh"],
        ["bash", "-o", "pipefail", "plain.sh"],
        ["torchrun", "--nproc_per_node", "4", "train.py", "--config", "missing.py"],
        ["accelerate", "launch", "--config_file", "c.yaml", "src/eval.py"],
        ["torchrun", "-m", "package", "missing.py"],
        ["./run.sh"],
        ["./go"],
        ["scripts/launch.sh"],
        ["/abs/run.sh"],
        ["nvidia-smi"],
        ["poetry", "run", "missing.py"],
        "python train.py",
        "CUDA_VISIBLE_DEVICES=0 python train.py",
        "exec python train.py",
        "python missing.py || true",
        "cd src && python eval2.py",
        "python $SCRIPT.py",
        "python {a,b}.py",
        "python 'unclosed.py",
        "",
    ],
)
def test_commands_that_can_start_or_are_unknown(command: str | Sequence[str]) -> None:
    assert command_problem(command, "", INDEX) is None


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["python", "trian.py"], "trian.py is not in the bundle; did you mean train.py?"),
        (["python", "-u", "eval.py"], "eval.py is not in the bundle; did you mean src/eval.py?"),
        (["python", "../train.py"], "../train.py is not in the bundle; did you mean train.py?"),
        (["bash", "lost"], None),
        (["bash", "missing.sh"], "missing.sh is not in the bundle"),
        (["torchrun", "--nproc_per_node", "4", "tain.py"], "did you mean train.py?"),
        (["./run.py"], "./run.py is not in the bundle"),
        (["./plain.sh"], "./plain.sh is in the bundle, but not executable: run chmod +x plain.sh"),
        (["./loop"], "./loop is not in the bundle"),
        (["./lost"], "./lost is not in the bundle"),
        (["run.sh"], "write ./run.sh"),
        ("python trian.py --lr 0.1", "did you mean train.py?"),
        ("A=1 B=2 ./runn.sh", "did you mean run.sh?"),
        ("exec ./plain.sh", "chmod +x"),
    ],
)
def test_commands_that_are_missing(command: str | Sequence[str], told: str | None) -> None:
    found = command_problem(command, "", INDEX)
    assert found is None if told is None else told in (found or "")


def test_the_command_is_searched_in_its_working_directory() -> None:
    assert command_problem(["python", "eval.py"], "src", INDEX) is None
    assert command_problem(["python", "../train.py"], "src", INDEX) is None
    assert "did you mean train.py?" in (command_problem(["python", "train.py"], "src", INDEX) or "")
    assert command_problem(["./launch.sh"], "scripts", INDEX) is None, "through a link to a folder"


def test_absurd_words_are_refused_quickly_and_briefly() -> None:
    many = BundleIndex.of("ab" * 32, [Member(f"package/module_{number}.py") for number in range(20_000)])
    for word in ("./" + "a/" * 90_000 + "x.py", "./" + "x" * 180_000):
        told = command_problem([word], "", many)
        assert told is not None
        assert len(told) < 400


def test_working_directories() -> None:
    for fine in ("", ".", "src", "src/", "./tools", "scripts"):
        assert workdir_problem(fine, INDEX) is None
    assert "absolute" in (workdir_problem("/data", INDEX) or "")
    assert "did you mean src?" in (workdir_problem("scr", INDEX) or "")
    for wrong in ("..", "src/..//..", "train.py", "loop", "missing"):
        assert "is not a folder" in (workdir_problem(wrong, INDEX) or "")


def test_windows_line_ends() -> None:
    assert holds_crlf([b"a\r\n"])
    assert holds_crlf([b"a\r", b"\nb"]), "across two pieces"
    assert not holds_crlf([b"a\n", b"\rb", b""])
    left = iter([b"\r\n", b"rest"])
    assert holds_crlf(left)
    assert list(left) == [], "all of it was taken"
    text = crlf_problem(["run it.sh", "b.sh"])
    assert r"sed -i 's/\r$//' 'run it.sh' b.sh" in text
    assert "*.sh text eol=lf" in text

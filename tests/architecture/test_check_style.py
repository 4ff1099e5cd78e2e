"""What checks the style in this repository, with its settings: each is fed something wrong, and says so."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tools.project_files import project_files

ROOT = Path(__file__).parents[2]
TOO_MANY_BRANCHES = "def f(x: int) -> int:\n" + "".join(
    f"    if x == {number}:\n        x += {number}\n" for number in range(11)
)


def run(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(command[0])
    return subprocess.run([program, *command[1:]], input=text, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (TOO_MANY_BRANCHES, "C901"),
        ('print("hello")\n', "T201"),
        ("import datetime\n\nNOW = datetime.datetime.now()\n", "DTZ005"),
        ("import json\n", "F401"),
        ("# TODO: later\n", "FIX002"),
        ("def f(x: list[int] = []) -> None: ...\n", "B006"),
        ("from . import run\n", "TID252"),
        ("x = 1  # type: ignore\n", "PGH003"),
        ("x = 1  # noqa\n", "PGH004"),
        (f'X = "{"x" * 120}"\n', "E501"),
    ],
)
def test_ruff_refuses(text: str, rule: str) -> None:
    result = run("ruff", "check", "--no-cache", "--stdin-filename", "supervisor/domain/sample.py", "-", text=text)
    assert result.returncode == 1
    assert rule in result.stdout


def test_the_formatter_refuses() -> None:
    assert (
        run("ruff", "format", "--check", "--stdin-filename", "supervisor/x.py", "-", text="x  =  1\n").returncode == 1
    )


def test_mypy_is_strict(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text("def f(x): return x\n")
    result = run("mypy", "--cache-dir", str(tmp_path / "cache"), str(sample))
    assert "no-untyped-def" in result.stdout


def test_vermin_refuses_what_came_after_3_8(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    options = ["--quiet", "--no-tips", "--violations", "--target=3.8-"]
    sample.write_text("if (n := 1) > 0:\n    pass\n")
    assert run("vermin", *options, str(sample)).returncode == 0
    sample.write_text('"prefixed".removeprefix("pre")\n')
    assert run("vermin", *options, str(sample)).returncode == 1


def test_shellcheck_refuses() -> None:
    result = run("shellcheck", "-", text="#!/bin/bash\nrm -r $1\n")
    assert result.returncode == 1
    assert "SC2086" in result.stdout


def test_every_shell_script_is_checked() -> None:
    (step,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "shellcheck" in line]
    search = step.strip().removeprefix("@").partition("-print0")[0]
    listing = subprocess.run([*shlex.split(search), "-print"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {ROOT / name for name in listing.stdout.split()} == set(project_files(ROOT, ".sh"))


def test_hadolint_refuses() -> None:
    result = run("hadolint", "-", text="FROM python:latest\nRUN cd /tmp && pip install numpy\n")
    assert result.returncode == 1
    assert {"DL3007", "DL3042", "DL3013"} <= set(re.findall(r"DL\d+", result.stdout))


def test_every_dockerfile_is_checked() -> None:
    (step,) = [line for line in (ROOT / "Makefile").read_text().splitlines() if "hadolint" in line]
    search = step.strip().removeprefix("@").partition("-print0")[0]
    listing = subprocess.run([*shlex.split(search), "-print"], cwd=ROOT, capture_output=True, text=True, check=True)
    dockerfiles = {path for path in project_files(ROOT) if path.name.startswith("Dockerfile")}
    assert {ROOT / name for name in listing.stdout.split()} == dockerfiles
    assert ROOT / "deploy" / "training-image" / "Dockerfile" in dockerfiles


def test_every_ignored_rule_has_its_reason_beside_it() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    ignored = [line for line in lines if re.match(r'\s+"[A-Z]+[0-9]+",', line)]
    assert len(ignored) >= 10
    assert [line for line in ignored if "  #" not in line] == []

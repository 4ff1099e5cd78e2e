"""The long installation of `make env` says how far it is, and what pip said when it fails."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "install_locked.sh"


def install(folder: Path, packages: int, code: int) -> "subprocess.CompletedProcess[str]":
    lock = folder / "lock.txt"
    lock.write_text("".join(f"package{n}==1.0 \\\n    --hash=sha256:00\n" for n in range(packages)))
    lines = "".join(f"echo Collecting package{n}==1.0\n" for n in range(packages))
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{lines}echo Installing collected packages: many\necho a reason >&2\nexit {code}\n")
    python.chmod(0o755)
    return subprocess.run([SCRIPT, python, lock], capture_output=True, text=True, timeout=60, check=False)


def test_a_line_for_every_25_packages(tmp_path: Path) -> None:
    done = install(tmp_path, 60, 0)
    assert done.returncode == 0
    assert "installing 60 packages" in done.stdout
    assert done.stdout.splitlines()[1:] == [
        "  fetched 25 of 60", "  fetched 50 of 60", "  fetched 60 of 60, unpacking them",
    ]  # fmt: skip
    assert done.stderr == ""


def test_a_failure_shows_what_pip_said(tmp_path: Path) -> None:
    done = install(tmp_path, 3, 1)
    assert done.returncode == 1
    assert "a reason" in done.stderr

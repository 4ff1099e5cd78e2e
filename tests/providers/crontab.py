"""A program `crontab` for hosts of tests: the table is the file `crontab` in the home of the user."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAM = """\
#!/bin/sh
case "$1" in
    -l) cat "$HOME/crontab" 2>/dev/null || { echo "no crontab for you" >&2; exit 1; } ;;
    -) cat >"$HOME/crontab" ;;
    *) exit 2 ;;
esac
"""


def make_crontab(folder: Path) -> str:
    """Put the program into this folder; the PATH of a host that has it."""
    folder.mkdir()
    program = folder / "crontab"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def lines(home: Path) -> list[str]:
    path = home / "crontab"
    return path.read_text().splitlines() if path.exists() else []


def after_a_reboot(home: Path, wrapper: Sequence[str]) -> list[str]:
    """Run the lines for that as cron does, and return their output. `wrapper`: starts a program in the new boot."""
    outputs = []
    for line in lines(home):
        when, _, command = line.partition(" ")
        assert when == "@reboot"
        environ = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "someone"}
        done = subprocess.run(
            [*wrapper, "/bin/sh", "-c", command],
            env=environ,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (shlex.split(command), done.stderr)
        outputs.append(done.stdout)
    return outputs

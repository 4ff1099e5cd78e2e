"""tools/install_system.sh: installs what is missing, as root and where apt is; else nothing happens."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "install_system.sh"
REAL = ("bash", "timeout", "env")


@pytest.mark.parametrize(
    ("there", "user", "wanted", "installed"),
    [
        ((), "0", (), "npm openssh-server slurmctld slurmd slurm-client chromium-headless-shell"),
        (("npm", "sshd", "slurmd", "sbatch"), "0", (), "chromium-headless-shell"),
        (("slurmd",), "0", ("slurm",), "slurmctld slurmd slurm-client"),
        ((), "0", ("npm",), "npm"),
        ((), "0", ("chromium", "sshd"), "openssh-server chromium-headless-shell"),
        (("chromium", "npm", "sshd", "slurmd", "sbatch"), "0", (), ""),
        ((), "1000", (), ""),
    ],
)
def test_only_what_is_missing_is_installed(
    tmp_path: Path, there: tuple[str, ...], user: str, wanted: tuple[str, ...], installed: str
) -> None:
    log = tmp_path / "log"
    programs = {"id": f"echo {user}", "apt-get": f'echo "$@" >> {log}', **dict.fromkeys(there, "true")}
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, what in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{what}\n")
        (folder / name).chmod(0o755)
    for name in REAL:
        (folder / name).symlink_to(next(p for d in os.get_exec_path() if (p := Path(d, name)).exists()))
    subprocess.run(
        [SCRIPT, *wanted],
        env={"PATH": str(folder), "SSHD": str(folder / "sshd"), "SLURMD": str(folder / "slurmd")},
        check=True,
        timeout=30,
    )
    calls = log.read_text().splitlines() if log.exists() else []
    assert [call.rpartition("recommends ")[2] for call in calls] == ([installed] if installed else [])

"""The start of docs/providers/slurm.md on a computer of a real cluster: the page's own commands, from `squeue` to a run
that is completed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.acceptance.test_up_and_down import Desk
from tests.providers.slurm_cluster import running

PAGE = Path(__file__).parents[2] / "docs/providers/slurm.md"
START = re.compile(r"^## Start\n\n```bash\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
TRAIN = "print('trained on', __import__('os').environ['SLURM_JOB_PARTITION'])\n"


def test_its_first_commands_lead_to_a_completed_run(tmp_path: Path) -> None:
    found = START.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    # The cluster of the tests has other names, and no GPU that a job could use.
    script = found[1]
    for shown, ours in {
        "/scratch/me/spot": str(tmp_path / "shared"),
        '["scavenger", "gpu"]': '["spot", "prod"]',
        'gres = {a100 = "gpu:a100:1"}': "",
        "a100 = 8": "a100 = 1",
    }.items():
        assert shown in script
        script = script.replace(shown, ours)
    code = tmp_path / "code"  # apart from the supervisor's own data, which change
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    desk = Desk(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with running() as cluster:
        try:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=code,
                env={**desk.environ, "PATH": path, "SLURM_CONF": str(cluster.conf)},
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            log = subprocess.run(
                ["spot", "logs", "my-run"], env={**desk.environ, "PATH": path}, capture_output=True, check=True
            )
            assert b"trained on spot" in log.stdout
        finally:
            desk.close()

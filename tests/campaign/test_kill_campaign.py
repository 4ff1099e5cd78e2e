"""The long form of tests/acceptance/test_kill_supervisor.py: 50 kills over 20 runs (`make campaign`)."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

from tests.acceptance.chaos import Campaign, judge
from tests.acceptance.daemon import running


def test_fifty_kills_over_twenty_runs(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    with running(tmp_path / "data") as daemon:
        figures = Campaign(tmp_path, runs=20, kills=50, seed=seed, pause_s=1.0).carry_out(daemon)
        sys.stdout.write(json.dumps(figures) + "\n")
        judge(figures)

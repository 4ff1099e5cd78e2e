"""The long form of the kills in tests/agent/test_changed_code.py (`make campaign`)."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.agent.test_changed_code import Site, kill_often


def test_three_hundred_kills_leave_whole_files_only(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    states = kill_often(Site(tmp_path), tmp_path, rounds=300, seed=seed)
    assert len(states) > 1, f"no kill came in the middle of a delta (seed {seed})"

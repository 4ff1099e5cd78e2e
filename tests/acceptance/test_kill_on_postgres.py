"""kill -9 at random moments once more, where rows and leadership live in PostgreSQL."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.acceptance.chaos import Campaign, judge
from tests.acceptance.daemon import Daemon
from tests.acceptance.replicas import environment, leading


class LeadingDaemon(Daemon):
    """Ready to be killed when it leads: before that, for the length of the dead one's lease, it does nothing."""

    def start(self) -> None:
        super().start()
        leading(self)


def test_three_kills_over_three_runs(tmp_path: Path, postgres_database: str) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    (tmp_path / "objects").mkdir()
    daemon = LeadingDaemon(tmp_path / "data", environment(postgres_database, tmp_path / "objects"))
    try:
        daemon.start()
        judge(Campaign(tmp_path, runs=3, kills=3, seed=seed).carry_out(daemon))
    finally:
        daemon.close()

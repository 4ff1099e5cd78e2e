"""The long form of tests/acceptance/test_idempotency_kills.py: 1,000 keys, eight requests each, ten kills."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.acceptance.daemon import Daemon
from tests.acceptance.many_keys import FULL_UP, carry_out

KEYS, KILLS = 1000, 10


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_thousand_keys_make_a_thousand_runs(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    postgres = kind == "postgres"
    more = {"SPOT_DATABASE_URL": request.getfixturevalue("postgres_database")} if postgres else {}
    daemon = Daemon(tmp_path / "data", {**FULL_UP, **more})
    try:
        answers = carry_out(daemon, KEYS, KILLS)
    finally:
        daemon.close()
    figures = {"database": kind, "keys": KEYS, "kills": KILLS, "cut_off": answers.cut_off}
    sys.stdout.write(json.dumps(figures) + "\n")

"""A thousand sessions of twenty requests at once against a token's cap, with kill -9 in between: nothing above it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.services.caps_kills import carry_out, judge_all

SESSIONS, KILLS = 1000, 20


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_thousand_sessions_never_go_above(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """On Postgres three processes work for each token at the same time."""
    own = f"sqlite:///{tmp_path}/supervisor.db"
    url = str(request.getfixturevalue("postgres_database")) if kind == "postgres" else own
    processes = 3 if kind == "postgres" else 1
    totals = carry_out(url, tmp_path, sessions=SESSIONS, kills=KILLS, processes=processes)
    judge_all(totals)
    figures = {"database": kind, "sessions": SESSIONS, "kills": KILLS * processes, "most_usd": round(max(totals), 6)}
    sys.stdout.write(json.dumps(figures) + "\n")

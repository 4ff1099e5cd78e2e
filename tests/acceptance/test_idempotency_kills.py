"""Keys times eight requests at once, with kill -9 in mid-request: exactly one run for each key, on both databases.

`make campaign` does it with a thousand keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.daemon import Daemon
from tests.acceptance.many_keys import FULL_UP, Crowd, carry_out, judge, stored

KEYS, KILLS = 100, 3


class CheckThenInsert(Daemon):
    module = "tests.acceptance.check_then_insert"


def test_one_run_for_each_key_on_sqlite(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "data", FULL_UP)
    try:
        carry_out(daemon, KEYS, KILLS)
    finally:
        daemon.close()


def test_one_run_for_each_key_on_postgres(tmp_path: Path, postgres_database: str) -> None:
    daemon = Daemon(tmp_path / "data", {**FULL_UP, "SPOT_DATABASE_URL": postgres_database})
    try:
        carry_out(daemon, KEYS, KILLS)
    finally:
        daemon.close()


def test_keys_that_are_looked_up_first_make_more_runs(tmp_path: Path) -> None:
    daemon = CheckThenInsert(tmp_path / "data", FULL_UP)
    try:
        daemon.start()
        answers = Crowd(daemon, 25).submit_all(0, daemon.start)
        with pytest.raises(AssertionError, match="keys have several runs"):
            judge(answers, stored(daemon))
        assert stored(daemon) > 25
    finally:
        daemon.close()

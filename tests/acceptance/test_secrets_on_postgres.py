"""Secrets once more where the rows live in PostgreSQL: no value in any row, and the search would find one."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests.acceptance.canaries import assert_nowhere, canary, rows_with
from tests.acceptance.daemon import Daemon
from tests.acceptance.replicas import environment, leading
from tests.acceptance.stories import STORY, Stories
from tests.acceptance.test_stories_secrets import kept_in, tells_all

pytestmark = pytest.mark.xdist_group("replicas")


def test_no_value_lies_in_a_row(tmp_path: Path, postgres_database: str) -> None:
    value, other, shown = canary(), canary(), canary()
    objects = tmp_path / "objects"
    objects.mkdir()
    environ = {**STORY, **environment(postgres_database, objects), "PLANTED_TOKEN": other}
    daemon = Daemon(tmp_path / "data", environ)
    try:
        daemon.start()
        leading(daemon)
        house = Stories(daemon, tmp_path, objects)
        reference = kept_in(tmp_path / "key", value)
        tells_all(house, "telltale", secrets={"API_KEY": reference, "OTHER": "env:PLANTED_TOKEN"})
        assert house.ended("telltale")["cause"] == "user_error"
        house.completes("telltale")
        house.until((objects / runfiles.manifest("telltale")).exists, 60, "its records")
        assert_nowhere(daemon, [value, other], objects, postgres_database)

        daemon.submit("shown", command=["echo", "hello"], labels={"said": shown})
        house.wait("shown", "completed")
        assert rows_with(postgres_database, [shown]) == ["labels", "specs"], "the search finds a value"
    finally:
        daemon.close()

"""`spot show` of a run over many sessions: its forecast in one line, the newest attempts, and no alarm about a cap."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.cli.views import runs as views
from supervisor.cli.views import show as sections
from supervisor.wording.attempt import SESSION_CAP, last_failure
from tests.cli.fake_api import FIRST_ATTEMPT, a_run, serve_run

FORECAST = "Needs 4 more sessions of up to 9 h on kaggle; its GPU hours allow 3 before Sat 00:00 UTC; done on Tuesday"


def session(number: int, **fields: Any) -> dict[str, Any]:
    ended = {"cause": "time_limit", "evidence": f"{SESSION_CAP} of 9 h", "step_from": number, "step_kept": number + 1}
    return {**FIRST_ATTEMPT, "number": number, "code": "c" * 64, **ended, **fields}


MANY = [session(number) for number in range(1, 201)]


def test_two_hundred_sessions_are_a_page_of_twenty_lines() -> None:
    lines = views.attempt_lines(MANY)
    assert lines[0] == "180 older attempts not shown: spot show RUN --attempts"
    assert len(lines) < 25
    assert "session cap" in lines[-2]
    assert len(views.attempt_lines(MANY, every=True)) > 200
    assert sections.code_lines(MANY) == ["code cccccccccccc (attempts 1 to 200)"]
    some = [session(number) for number in (1, 2, 5, 6, 7, 9)]
    assert sections.code_lines(some) == ["code cccccccccccc (attempts 1, 2, 5 to 7, 9)"]


def test_the_forecast_is_one_line(api: Any, spot: Any) -> None:
    serve_run(api, {**a_run(), "sessions": {"text": FORECAST}})
    assert f"sessions: {FORECAST}" in spot("show", "digits-7").out.replace("\n", " ").replace("  ", " ")
    assert sections.session_lines({**a_run(), "sessions": None}) == []


@pytest.mark.parametrize(("kept", "shown"), [(2, False), (1, True), (None, True)])
def test_only_a_session_that_kept_nothing_is_one_to_investigate(kept: int | None, shown: bool) -> None:
    """The platform's own limit is the normal end, where the attempt brought a newer checkpoint."""
    assert (last_failure([session(1, step_kept=kept)]) is not None) == shown

"""The page of drills has the figures, words and moments of the code."""

from __future__ import annotations

from pathlib import Path

from supervisor.agent.life.drilling import Timing
from supervisor.agent.watch.metrics import POSITION
from supervisor.contract import drill
from supervisor.domain.attempt import SPANS_KEPT
from supervisor.lifecycle.living.drilling import NOTICES_S, SPARE_S, UNTAKEN_S
from supervisor.wording.figures import age_text
from supervisor.wording.forecast import FAILS, NOT_DRILLED, SURVIVES, drill_line
from tests.lifecycle.test_drills_simulated import verdict_of_times

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "drill.md").read_text(encoding="utf-8")


def test_the_times_on_the_page_are_those_of_the_code() -> None:
    timing = Timing()
    for words in (
        f"notice of {timing.notice_s:.0f} s. KILL follows {drill.RESERVE_S:.0f} s before its end",
        f"is younger than {age_text(timing.loss_s)}",
        f"waits up to {age_text(timing.moment_s)}",
        f"takes longer than {age_text(timing.upload_s)}",
        f"takes longer than {timing.warm_up_s:.0f} s",
        f"of the last {SPANS_KEPT} notices",
        f"less {SPARE_S:.0f} s",
        f"After {age_text(UNTAKEN_S)} the order",
        *(f"{notice_s:.0f} s" for notice_s in NOTICES_S),
    ):
        assert words in PAGE, words


def test_the_page_names_each_verdict_and_moment() -> None:
    for word in (SURVIVES, FAILS, NOT_DRILLED):
        assert f"| `{word}` |" in PAGE
    for word in ("training", "the second time in a row", "warm-up", "evaluation, checkpoint"):
        assert f"| {word} |" in PAGE
    assert len(drill.MOMENTS) == 5
    assert f"{POSITION}=samples" in PAGE


def test_the_line_on_the_page_is_the_one_that_is_shown() -> None:
    assert f"drill: {drill_line(verdict_of_times(21.0, 10.0))}\n" in PAGE

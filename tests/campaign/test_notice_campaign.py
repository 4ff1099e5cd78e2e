"""Two hundred real notices of the local provider end as the verdict of a drill has said (`make campaign`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.acceptance.noticed import LONG_S, SELDOM, SETTINGS, SHORT_S, Case, noticed
from tests.acceptance.stories import stories

YES, NO, LONG_ONLY = (True, True), (False, False), (False, True)
SHORT = (SHORT_S,)
# A save of 41 s fits into no notice of 30 s, and into one of 120 s.
SLOW = ("--save-s", "41", *SELDOM)
CASES = (
    *[Case("good", YES, SHORT * 12)] * 5,
    *[Case("good_phases", YES, SHORT * 10, ("--warm-up-s", "1.5"))] * 2,
    *[Case("good_slow", YES, SHORT * 8, ("--save-s", "5"))] * 4,
    *[Case("good_slow", LONG_ONLY, SHORT * 4, SLOW)] * 6,
    *[Case("good_slow", LONG_ONLY, (LONG_S, LONG_S), SLOW)] * 2,
    *[Case("dies", NO, SHORT * 10, SELDOM)] * 3,
    *[Case("handler", NO, SHORT * 7, SELDOM)] * 2,
    *[Case("swallow", NO, SHORT * 4, SELDOM)] * 4,
)


def test_two_hundred_real_notices_end_as_the_verdict_said(tmp_path: Path) -> None:
    assert sum(len(case.notices) for case in CASES) >= 200
    with stories(tmp_path, SETTINGS) as house:
        outcomes = noticed(house, CASES)
    assert len(outcomes) >= 200
    assert [each for each in outcomes if each.predicted != each.survived] == []
    counts = Counter((each.notice_s, each.survived) for each in outcomes)
    assert set(counts) == {(SHORT_S, True), (SHORT_S, False), (LONG_S, True)}, counts

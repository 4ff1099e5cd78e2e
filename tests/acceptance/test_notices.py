"""A few real notices, as `make test` has time for; two hundred are in tests/campaign/test_notice_campaign.py."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.noticed import LONG_S, SELDOM, SETTINGS, SHORT_S, Case, noticed
from tests.acceptance.stories import stories

CASES = (
    Case("good", (True, True), (SHORT_S, LONG_S), delay_s=0.02),
    Case("dies", (False, False), (SHORT_S, SHORT_S), SELDOM, delay_s=0.02),
    Case("handler", (False, False), (SHORT_S,), SELDOM, delay_s=0.02),
)


def test_the_verdict_of_a_drill_is_right_for_real_notices(tmp_path: Path) -> None:
    with stories(tmp_path, SETTINGS) as house:
        outcomes = noticed(house, CASES)
    assert len(outcomes) == 5
    assert [each for each in outcomes if each.predicted != each.survived] == []
    assert {each.survived for each in outcomes} == {True, False}

"""Sentences of the API on a page: quoted parts are code, and markup is text."""

from __future__ import annotations

import pytest

from supervisor.dashboard.words import what_next, with_code
from supervisor.domain.status import Status
from supervisor.wording.figures import STATUS_LOOKS


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("Resume with `spot resume a-1`.", "Resume with <code>spot resume a-1</code>."),
        ("It said: `<b>`; `--x` & <i>", "It said: <code>&lt;b&gt;</code>; <code>--x</code> &amp; &lt;i&gt;"),
        ("A tick ` alone", "A tick ` alone"),
        (None, ""),
    ],
)
def test_what_stands_between_backticks_is_code_and_everything_is_escaped(told: str | None, shown: str) -> None:
    assert with_code(told) == shown


def test_every_status_has_a_look_of_its_own() -> None:
    assert set(STATUS_LOOKS) == set(Status)
    assert len({(look.sign, look.tone) for look in STATUS_LOOKS.values()}) == len(STATUS_LOOKS)


def test_a_guessed_end_stays_marked_beside_its_ticking_time() -> None:
    at = "2026-11-27T00:10:00.000Z"
    assert str(what_next({"what": "ETA ≈ 10 min", "at": at}, 0.0)).startswith("≈ ETA <time")
    assert str(what_next({"what": "ETA 10 min", "at": at}, 0.0)).startswith("ETA <time")

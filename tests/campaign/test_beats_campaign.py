"""The typed pass over beats against the contract's parser, on 100,000 hostile ones."""

from __future__ import annotations

from tests.domain.test_beat_decoding import check


def test_both_give_the_same_response() -> None:
    check(100_000, seed=100)

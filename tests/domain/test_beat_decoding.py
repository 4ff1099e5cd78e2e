"""The typed pass and the contract's parser give the same response to every sequence of bytes."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable

import pytest

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import BeatRejected
from supervisor.domain import beat_decoding
from supervisor.domain.beat_decoding import parse_beat
from tests.domain.hostile_beats import VALID, bytes_by_chance


def response(parse: Callable[[bytes], heartbeat.Beat], raw: bytes) -> str:
    """As text: it distinguishes 1 from 1.0 and from True."""
    try:
        return repr(parse(raw))
    except BeatRejected as error:
        return f"refused: {error}"


def check(count: int, seed: int) -> None:
    for raw in bytes_by_chance(random.Random(seed), count):
        assert response(parse_beat, raw) == response(heartbeat.parse, raw), raw


def test_both_give_the_same_response() -> None:
    check(4000, seed=16)


def test_ordinary_beats_do_not_reach_the_contracts_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(raw: bytes) -> heartbeat.Beat:
        raise AssertionError(raw)

    pruned = heartbeat.Pruned(9, tuple((step, "x" * 40) for step in range(heartbeat.MAX_PRUNED)))
    beat = heartbeat.Beat(**VALID, pruned=pruned, checkpoint_step=200, resumed_from=100)
    monkeypatch.setattr(heartbeat, "parse", refuse)
    assert parse_beat(heartbeat.encode(beat)) == beat


def test_beats_share_the_few_texts_that_all_of_them_have() -> None:
    one, two = (parse_beat(heartbeat.encode(heartbeat.Beat(**{**VALID, "sequence": number}))) for number in (1, 2))
    assert one.launch_id is two.launch_id
    assert one.phase is two.phase


BROKEN: dict[str, dict[str, object]] = {
    "texts": {"_has_plain_texts": lambda beat: True},
    "numbers": {"_has_plain_numbers": lambda beat: True},
    "long, special texts": {"_is_plain": lambda text, longest=0: True},
    "removed checkpoints": {"_is_plain_pruned": lambda pruned: True},
    "ids of runs": {"is_run_id": lambda text: True},
    "the attempt of the launch": {"_launch_of": lambda launch_id: (1, launch_id)},
    "the largest count": {"MAX_COUNT": 10**17},
    "an explicit null": {"_check_nulls": lambda raw: None},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_pass_that_leaves_out_a_rule_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in BROKEN[broken].items():
        monkeypatch.setattr(beat_decoding, name, value)
    with pytest.raises((AssertionError, AttributeError, ValueError)):
        check(20_000, seed=17)


def from_one_call_deeper(raw: bytes) -> heartbeat.Beat:
    return heartbeat.parse(raw)


def check_depths() -> None:
    most = sys.getrecursionlimit()
    for depth in range(most - 300, most + 20):
        deep = b',"deep":' + b"[" * depth + b"]" * depth + b"}"
        raw = json.dumps(VALID).encode()[:-1] + deep
        assert response(parse_beat, raw) == response(from_one_call_deeper, raw), depth


def test_nesting_is_refused_from_the_same_depth_on(monkeypatch: pytest.MonkeyPatch) -> None:
    check_depths()
    monkeypatch.setattr(beat_decoding, "_MAX_REST_BYTES", heartbeat.MAX_BYTES)
    with pytest.raises(AssertionError):
        check_depths()

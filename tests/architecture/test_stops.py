"""tests/architecture/stops.py: what is a stop and what is none, on made-up ways of a few functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from supervisor.contract.heartbeat import Beat
from tests.architecture.stops import BeatsWay, Calls, profiled

RAW = b'{"launch_id": "1.1.1", "sequence": 3}'
BEAT = Beat("digits-7", 1, "1.1.1", "m", "b", 3, "training")
SUBMIT = """
def outer(): route()
def route():
    shape()
    (lambda: keep())()
    elsewhere()
    commit()
def shape(): leaf()
def keep(): [leaf() for _ in range(2)]
def leaf(): pass
"""
TICK = """
def tick():
    listing = look()
    count(listing)
    idle(listing)
def look(): return {"digits-7": parse(RAW)}
def parse(raw): return (beat_of(raw),)
def beat_of(raw): return BEAT
def idle(listing): return len(listing)
def count(listing):
    idle(listing)
    return follow(listing, 1)
def follow(listing, polls): return Pulse(polls)
"""


@dataclass(frozen=True)
class Pulse:
    stall_polls: int


def functions_of(root: Path, text: str, **given: Any) -> dict[str, Any]:
    names = dict(given)
    exec(compile(text, f"{root}/room.py", "exec"), names)  # noqa: S102 - the text stands above
    return names


def test_the_stops_of_a_submit_are_what_calls_on_between_route_and_commit(tmp_path: Path) -> None:
    calls = Calls(f"{tmp_path}/")
    other = functions_of(Path("/elsewhere"), "def elsewhere(): leaf()", leaf=lambda: None)["elsewhere"]

    def commit() -> None:
        calls.ended = True

    room = functions_of(tmp_path, SUBMIT + "def late(): shape()\n", elsewhere=other, commit=commit)

    def watch(frame: FrameType, kind: str, value: Any) -> None:
        if kind == "call" and not calls.ended:
            if calls.begun:
                calls.called(frame)
            elif frame.f_code is room["route"].__code__:
                calls.begin(frame)

    with profiled(watch):
        room["outer"]()
        room["late"]()
    assert [code.co_name for code in calls.stops()] == ["route", "shape", "keep"]


def test_the_stops_of_a_beat_hand_it_on_or_are_on_its_way_to_the_count(tmp_path: Path) -> None:
    way = BeatsWay(0, f"{tmp_path}/")
    with profiled(way.watch):
        functions_of(tmp_path, TICK, RAW=RAW, BEAT=BEAT, Pulse=Pulse)["tick"]()
    assert way.ended
    assert [code.co_name for code in way.stops()] == ["beat_of", "parse", "look", "tick", "count", "follow"]


@pytest.mark.parametrize(("raw", "before"), [(b"{}", 0), (RAW, 1)])
def test_without_a_beat_or_a_raised_count_no_way_ends(tmp_path: Path, raw: bytes, before: int) -> None:
    way = BeatsWay(before, f"{tmp_path}/")
    with profiled(way.watch):
        functions_of(tmp_path, TICK, RAW=raw, BEAT=BEAT, Pulse=Pulse)["tick"]()
    assert not way.ended

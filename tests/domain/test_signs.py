"""The signs in a beat: small for any end, harmless for any input, and never without what happened."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract import signs as module
from supervisor.contract.signs import (
    CAUSE,
    MAX_BYTES,
    MAX_HITS,
    NOTES,
    ROLES,
    Hang,
    Hit,
    Signs,
    as_received,
    decode,
    encode,
    shorter,
)
from tests.properties import examples, with_defaults

seconds = st.floats(0, 1e9).map(lambda at: round(at, 1))
MOVES = ("gpu", "cpu", "io", "net", "files", "output")
counts = st.integers(0, 10**15)
texts = st.text(max_size=400) | st.sampled_from(["🦊" * 300, "x" * 300, '"' * 300, ""])
words = st.from_regex(r"[a-z][a-z_]{2,20}", fullmatch=True)
hits = st.builds(
    with_defaults(Hit), words, st.sampled_from(ROLES), counts, texts, seconds, seconds, st.none() | counts, counts,
    st.just(("before", "after")), st.none() | counts,
)  # fmt: skip
every_signs = st.builds(
    with_defaults(Signs), st.lists(hits, max_size=9).map(tuple), texts, st.none() | seconds, st.none() | st.booleans(),
    st.lists(st.tuples(counts, counts, seconds), max_size=10).map(tuple),
    st.lists(st.tuples(counts, seconds), max_size=20).map(tuple),
    st.none() | st.builds(with_defaults(Hang), words, seconds, st.none() | counts),
    st.lists(words, max_size=10).map(tuple), st.none() | seconds, words | st.just(""),
    st.none() | st.lists(st.sampled_from(MOVES), max_size=9).map(tuple), st.none() | st.tuples(counts, counts),
    st.just(()), st.lists(st.tuples(st.sampled_from(NOTES), seconds), max_size=9).map(tuple),
)  # fmt: skip
OOM = Hit("gpu_oom", CAUSE, 2, "RuntimeError: CUDA out of memory", 10.0, 12.5, 0, 4711, (), 3)
FULL = Signs(
    (OOM,), "RuntimeError: CUDA out of memory", 3.5, False, ((2, 79, 9.5),), ((0, 5e9),), Hang("lock", 61.0, 7),
    ("loss",), 20.5, "gpu_oom", ("cpu", "io"), (12, 34_000_000_000),
    notes=(("checkpoint.shrinks", 0.31), ("metric.reported", 0)),
)  # fmt: skip


def test_signs_are_read_as_they_were_written() -> None:
    assert decode(encode(FULL)) == FULL
    assert as_received(encode(FULL)) == encode(FULL)
    for moves in (None, (), ("gpu",)):
        assert decode(encode(Signs(moves=moves))).moves == moves
    assert decode(encode(Signs((OOM,), oom_rose_up_s=0.0))).oom_rose_up_s == 0.0


def test_nothing_notable_is_nothing() -> None:
    assert encode(Signs(up_s=12.0)) == ""
    assert decode("") == Signs()
    assert list(shorter("")) == []


@settings(max_examples=examples(40, 1000), deadline=None)
@given(signs=every_signs)
def test_any_signs_fit_and_what_happened_stays(signs: Signs) -> None:
    text = encode(signs)
    assert len(text) <= MAX_BYTES
    assert text.isascii()
    read = decode(text)
    assert (read.oom_rose_up_s, read.oom_shared, read.hang, read.began) == (
        signs.oom_rose_up_s, signs.oom_shared, signs.hang, signs.began if text else "",
    )  # fmt: skip
    assert read.xids == signs.xids[-module.MAX_XIDS :]
    assert {hit.pattern for hit in read.hits} <= {hit.pattern for hit in signs.hits}
    assert all(not hit.context for hit in read.hits)
    assert encode(read) == text
    for less in shorter(text):
        assert len(less) <= MAX_BYTES
        assert decode(less).xids == read.xids


def test_the_hit_that_began_the_end_stays_and_then_the_newest() -> None:
    many = tuple(Hit(f"p_{n}", CAUSE, 1, "é" * 300, 1.0, 1.0, 0, n) for n in range(20))
    read = decode(encode(Signs(many, "é" * 300, began="p_3")))
    assert [hit.offset for hit in read.hits] == [3, 15, 16, 17, 18, 19][-MAX_HITS:]
    least = decode(list(shorter(encode(Signs(many, began="p_3"))))[-1])
    assert [hit.pattern for hit in least.hits] == ["p_3"]


def test_a_text_that_cannot_be_read_is_left_out() -> None:
    assert list(shorter("x" * 1500)) == [""]


def by_chance(chance: random.Random) -> Any:
    """JSON near the real thing."""
    data = json.loads(encode(FULL))
    odd = (
        None,
        True,
        -1,
        1e18,
        10**30,
        "",
        "\ud800",
        "a\x00\x1b[31mb",
        "x" * 5000,
        [],
        [[]],
        {},
        {"a": [1]},
        "NaN",
        1.5,
    )
    for _ in range(chance.choice((1, 2, 5))):
        name = chance.choice([*data, "unknown"])
        value = data.get(name)
        if isinstance(value, list) and value and chance.random() < 0.7:
            row = value[0] if isinstance(value[0], list) else value
            row = row or [None]
            row[chance.randrange(len(row))] = chance.choice(odd)
            data[name] = value * chance.choice((1, 1, 500 if len(value) < 20 else 1))
        else:
            data[name] = chance.choice(odd)
    return data


def test_hostile_signs_are_harmless() -> None:
    chance = random.Random(19)
    for _ in range(800):
        read = decode(json.dumps(by_chance(chance)))
        assert len(read.hits) <= MAX_HITS
        assert len(encode(read)) <= MAX_BYTES
        for text in (read.error, read.began, *(hit.line for hit in read.hits)):
            assert len(text) <= 300
            assert text.isprintable()
            text.encode()


@pytest.mark.parametrize(
    "text", ["[", "[" * 1400, "7", "null", '"x"', '{"hits": 3, "hang": {}, "oom": [], "xids": [[]]}']
)
def test_other_texts_are_no_signs(text: str) -> None:
    assert decode(text) == Signs()


@pytest.mark.parametrize("data", [None, 7, {}, [], "\x00", "ü", "x" * 1501])
def test_what_is_no_text_of_signs_is_not_received(data: object) -> None:
    assert as_received(data) == ""


def test_a_bound_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant."""
    monkeypatch.setattr(module, "_text", lambda value: value)
    with pytest.raises((AssertionError, TypeError, UnicodeEncodeError)):
        test_hostile_signs_are_harmless()

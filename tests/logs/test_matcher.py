"""The matcher: the same result however the log is cut, lines as a terminal shows them, bounded memory."""

from __future__ import annotations

import random
from typing import Any

import pytest

from supervisor.contract.logs import matcher as module
from supervisor.contract.logs.matcher import AROUND, LINE_BYTES, Matcher, scan
from tests.logs.test_patterns import LINES
from tests.properties import examples

OOM = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
LINE_ENDS = (b"\n", b"\r\n", b"\r", b"\n\n", b"\r\r\n")
PIECES = (
    *(lines[0].encode() for lines in LINES.values()), b"step 12 loss 0.3", b"", b"x" * 5000, OOM, OOM, b"   indented",
    b"\x1b[31mRuntime\x1b[1mError: CUDA out\x1b[0m of memory\x1b[0m", b"\x1b" * 40, b"\x1b[" + b"1;" * 200,
    b"\xff\xfe\x00", b"Traceback (most recent call last):", b'  File "a.py", line 3, in f', b"    raise KeyError(name)",
    b"KeyError: 'a'",
    b"[rank1]: Traceback (most recent call last):", b'[rank1]:   File "a.py", line 3', b"[rank1]: ValueError: no",
    b"During handling of the above exception, another exception occurred:", b"z" * 9000 + OOM, b"y" * 4090 + OOM,
)  # fmt: skip


def log_by_chance(chance: random.Random) -> bytes:
    log = b"".join(chance.choice(PIECES) + chance.choice(LINE_ENDS) for _ in range(chance.randrange(60)))
    return log + chance.choice((b"", b"\r", OOM, b"step"))


def state(matcher: Matcher) -> Any:
    seen = [(hits.pattern.id, hits.count, vars(hits.first), vars(hits.last)) for hits in matcher.seen()]
    return seen, matcher.hits(), matcher.tracebacks()


def in_pieces(log: bytes, chance: random.Random) -> Matcher:
    matcher, at = Matcher(), 0
    while at < len(log):
        size = chance.choice((1, 2, 3, 17, 300, 5000, 10_000))
        matcher.feed(log[at : at + size])
        at += size
    matcher.end()
    return matcher


def check_cuts(count: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        log = log_by_chance(chance)
        assert state(in_pieces(log, chance)) == state(scan(log)), log


def test_how_the_log_is_cut_changes_nothing() -> None:
    check_cuts(examples(250, 20_000), seed=19)


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "the lines before a block are forgotten": (module, "_last_lines", lambda text: []),
    "a line is cut where a piece ends": (module._Lines, "raw", lambda self, number: self._block[:100]),
    "a line end of two bytes is two": (Matcher, "_complete", lambda self, data, up_s: data),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_cut_that_matters_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[name])
    with pytest.raises(AssertionError):
        check_cuts(400, seed=20)


def test_the_first_and_the_last_hit_with_the_lines_around_them() -> None:
    lines = [b"line %d" % number for number in range(100)]
    lines[20] = lines[50] = lines[97] = OOM
    (seen,) = scan(b"\n".join(lines) + b"\n").seen()
    assert (seen.count, seen.pattern.id) == (3, "gpu_oom")
    assert seen.first.before == ("line 15", "line 16", "line 17", "line 18", "line 19")
    assert seen.first.after == ["line 21", "line 22", "line 23", "line 24", "line 25"]
    assert seen.last.after == ["line 98", "line 99"]
    assert seen.last.offset == b"\n".join(lines).rfind(OOM)
    assert scan(b"\n".join(lines)).hits()[0].lines_after == 2


def test_a_line_is_what_a_terminal_shows() -> None:
    log = b"10%|\r20%|\r\x1b[2K\x1b[31mRuntime\x1b[0mError: CUDA out of memory\r\nnext\r\n"
    (seen,) = scan(log).seen()
    assert seen.last.line == "RuntimeError: CUDA out of memory"
    assert seen.last.before == ("10%|", "20%|")
    assert seen.last.after == ["next"]
    assert seen.last.offset == log.index(b"\x1b[2K")


def test_only_the_beginning_of_a_long_line_counts() -> None:
    assert scan(b"y" * (LINE_BYTES - len(OOM)) + OOM + b"\n").seen()
    assert not scan(b"y" * LINE_BYTES + OOM + b"\n").seen()
    assert len(scan(OOM + b"y" * 10 * LINE_BYTES).seen()[0].last.line) == LINE_BYTES


def test_a_line_without_an_end_is_a_line_at_the_end() -> None:
    matcher = Matcher()
    matcher.feed(b"step 1\n" + OOM)
    assert matcher.seen() == []
    matcher.end()
    assert matcher.seen()[0].count == 1
    matcher.feed(b"\nstep 2\n")
    assert matcher.seen()[0].count == 1


def test_after_a_gap_the_rest_of_a_line_is_left_out() -> None:
    matcher = Matcher()
    matcher.feed(b"step 1\nRuntimeError: CUDA ou")
    matcher.gap()
    matcher.feed(b"CUDA out of memory, as the manual says\n" + OOM + b"\n", at=5000)
    (seen,) = matcher.seen()
    assert (seen.count, seen.last.before, seen.last.offset) == (1, (), 5039)


def test_memory_is_bounded_by_the_table() -> None:
    """A flood of every error in long lines, in pieces."""
    every = [line.encode() for lines in LINES.values() for line in lines]
    matcher = Matcher()
    for number in range(12):
        matcher.feed(b"\n".join(line + b" %d " % number + b"w" * 3000 for line in every))
    seen = matcher.seen()
    places = [place for hits in seen for place in (hits.first, hits.last)]
    assert max(hits.count for hits in seen) > 12
    assert all(len(place.before) <= AROUND and len(place.after) <= AROUND for place in places)
    kept = sum(len(text) for place in places for text in (place.line, *place.before, *place.after))
    assert kept < 1_000_000
    assert len(matcher._waiting) < 500
    assert len(matcher.tracebacks()) <= 24

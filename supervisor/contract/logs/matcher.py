"""Finds the patterns in a log as it streams by, in linear time and with bounded memory.

Colors are removed, a carriage return ends a line as a progress bar writes it, and a line is cut at LINE_BYTES. Whole
blocks are searched for the anchors of the table at once; only a line with an anchor, or of a traceback, is looked at
by itself. How the log is cut into pieces never changes the result. The first and the last hit of a pattern are kept,
each with the lines around it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple
from typing import Pattern as Regex

from supervisor.contract.logs.patterns import PATTERNS
from supervisor.contract.logs.phrases import TRIGGERS, Pattern
from supervisor.contract.logs.tracebacks import CHAINED, HEADER, Traceback, Tracebacks
from supervisor.contract.signs import Hit

LINE_BYTES = 4096
RAW_BYTES = 2 * LINE_BYTES  # of a line with its colors
AROUND, AROUND_CHARS = 5, 256  # lines before and after a hit
RECENT, RECENT_BYTES = 512, 512  # lines whose candidates are remembered
_ANSI = re.compile(
    rb"\x1b(?:\[[0-9;:?<=>!]{0,64}[@-~]|\][^\x07\x1b\r\n]{0,1024}(?:\x07|\x1b\\)?|[@-Z\\^_()#%][0-9A-Za-z]?)"
)
_DIGITS = b"0123456789"
_WORDS = (*TRIGGERS, HEADER, *CHAINED)
_LINE = re.compile(rb"([^\r\n]*)(?:\r\n|\r|\n)")


class Place:
    """One hit. `number`: lines of the log before it, without the frames of tracebacks."""

    def __init__(self, line: str, offset: int, up_s: float, number: int, before: Tuple[str, ...] = ()) -> None:
        self.line, self.offset, self.up_s, self.number, self.before = line, offset, up_s, number, before
        self.after: List[str] = []
        self.missing = AROUND  # lines after it that have not come yet


class Seen:
    """The hits of one pattern."""

    def __init__(self, pattern: Pattern, count: int, first: Place, last: Place) -> None:
        self.pattern, self.count, self.first, self.last = pattern, count, first, last


class Matcher:
    """`feed` takes the log piece by piece, `end` its end; `seen`, `hits` and `tracebacks` may be read at any time.
    `mask`: applied to a line whose colors were removed, which may join the two halves of a secret."""

    def __init__(self, patterns: Sequence[Pattern] = PATTERNS, mask: Callable[[bytes], bytes] = bytes) -> None:
        self._table, self._mask = _Table.of(tuple(patterns)), mask
        self._tracebacks = Tracebacks()
        self._seen: Dict[str, Seen] = {}
        self._waiting: List[Place] = []  # whose following lines have not all come
        self._before: List[bytes] = []  # the last lines of the earlier blocks, with their colors
        self._part, self._part_offset = b"", 0  # of a line without an end
        self._offset = 0
        self._lines = self._frames = 0
        self._after_return = self._skips = False

    def feed(self, data: bytes, up_s: float = 0.0, at: Optional[int] = None) -> None:
        """`at`: where `data` begins in the log; None = behind the last piece."""
        if at is not None:
            self._offset = at
        if self._after_return and data[:1] == b"\n":
            data, self._offset = data[1:], self._offset + 1
        if not data:
            return
        self._after_return = data.endswith(b"\r")
        if self._skips or self._part:
            rest = self._complete(data, up_s)
            if rest is None:
                return
            data = rest
        behind = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if behind:
            self._take(data[:behind], self._offset, up_s)
        self._offset += behind
        self._part, self._part_offset = data[behind:][:RAW_BYTES], self._offset
        self._offset += len(data) - behind

    def gap(self) -> None:
        """The next piece begins somewhere later, perhaps within a line."""
        self._part, self._skips, self._after_return = b"", True, False
        self._waiting, self._before = [], []
        self._tracebacks.forget_open()

    def end(self, up_s: float = 0.0) -> None:
        """The log has ended, for now: its last line may have no end."""
        part, self._part = self._part, b""
        if part:
            self._take(part + b"\n", self._part_offset, up_s)

    def seen(self) -> List[Seen]:
        """In the order of the last hits."""
        return sorted(self._seen.values(), key=lambda seen: (seen.last.offset, seen.pattern.id))

    def hits(self) -> List[Hit]:
        """The same as the contract's records; nothing is known about steps."""
        return [self.hit(seen) for seen in self.seen()]

    def hit(self, seen: Seen, steps_after: Optional[int] = None) -> Hit:
        last = seen.last
        return Hit(
            seen.pattern.id,
            seen.pattern.role,
            seen.count,
            last.line,
            seen.first.up_s,
            last.up_s,
            steps_after,
            last.offset,
            (*last.before, last.line[:AROUND_CHARS], *last.after),
            self.lines_after(last.number),
        )

    def tracebacks(self) -> Tuple[Traceback, ...]:
        return self._tracebacks.all()

    def lines_after(self, number: int) -> int:
        """How many lines came after the line with this number, without the frames of tracebacks."""
        return max(0, self._lines - self._frames - number - 1)

    def _complete(self, data: bytes, up_s: float) -> Optional[bytes]:
        """The rest of `data` behind the line that an earlier piece began; None while that line has no end."""
        ends = [place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0]
        if not ends:
            self._offset += len(data)
            self._part = (self._part + data)[:RAW_BYTES] if not self._skips else b""
            return None
        part, first = self._part + data[: min(ends)], min(ends)
        behind = first + (2 if data[first : first + 2] == b"\r\n" else 1)
        self._offset += behind
        if not self._skips:
            self._take(part[:RAW_BYTES] + b"\n", self._part_offset, up_s)
        self._skips, self._part = False, b""
        return data[behind:]

    def _take(self, block: bytes, base: int, up_s: float) -> None:
        """A block of whole lines."""
        is_plain = b"\x1b" not in block and b"\r" not in block
        text = block if is_plain else _without_colors(block.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        triggers = _Triggers(text)
        if not triggers and is_plain and not self._tracebacks.is_active and not self._waiting:
            self._lines += text.count(b"\n")
            self._before = [*self._before, *_last_lines(text)][-AROUND:]
            return
        lines = _Lines(block, text, is_plain, self._mask)
        for place in self._waiting:
            lines.follow(place, 0)
        self._search(lines, triggers, base, up_s)
        self._waiting = [place for place in self._waiting if place.missing]
        self._lines += len(lines)
        self._before = [*self._before, *(lines.raw(number) for number in range(len(lines))[-AROUND:])][-AROUND:]

    def _search(self, lines: _Lines, triggers: _Triggers, base: int, up_s: float) -> None:
        last_hits: Dict[str, Tuple[int, int]] = {}
        at = 0
        while at < len(lines):
            if not self._tracebacks.is_active:
                trigger_at = triggers.after(lines.begin(at))
                if trigger_at is None:
                    break
                at = lines.number_at(trigger_at)
            line, offset, number = lines.line(at), base + lines.offset(at), self._lines + at - self._frames
            if self._is_frame(lines, at, offset, up_s):
                self._frames += 1
            else:
                for pattern in self._table.matching(line):
                    seen = self._seen.get(pattern.id)
                    if seen is None:
                        place = self._place(lines, at, base, up_s, number)
                        self._seen[pattern.id] = Seen(pattern, 1, place, place)
                    else:
                        seen.count += 1
                        last_hits[pattern.id] = at, number
            at += 1
        for name, (at, number) in last_hits.items():
            self._seen[name].last = self._place(lines, at, base, up_s, number)

    def _is_frame(self, lines: _Lines, at: int, offset: int, up_s: float) -> bool:
        line = lines.line(at)
        if not self._tracebacks.is_active and HEADER not in line and not any(words in line for words in CHAINED):
            return False
        number = self._lines + at - self._frames
        return self._tracebacks.feed(
            line, offset, up_s=up_s, number=number, before=lambda: self._last_before(lines, at)
        )

    def _last_before(self, lines: _Lines, at: int) -> bytes:
        for number in range(at - 1, max(-1, at - 1 - AROUND), -1):
            if lines.line(number).strip():
                return lines.line(number)
        return next((line for line in reversed(self._before_block(at)) if line.strip()), b"")

    def _before_block(self, at: int) -> List[bytes]:
        """Of the AROUND lines before the one with this number in its block: those of earlier blocks."""
        before = self._before[max(0, len(self._before) - AROUND + at) :] if at < AROUND else []
        return [_canonical(raw, self._mask) for raw in before]

    def _place(self, lines: _Lines, at: int, base: int, up_s: float, number: int) -> Place:
        before = [*self._before_block(at), *(lines.line(other) for other in range(max(0, at - AROUND), at))]
        place = Place(_text(lines.line(at)), base + lines.offset(at), up_s, number, _around(before))
        lines.follow(place, at + 1)
        if place.missing:
            self._waiting.append(place)
            if len(self._waiting) > 4 * len(self._table.patterns):
                kept = {id(end) for seen in self._seen.values() for end in (seen.first, seen.last)}
                self._waiting = [waiting for waiting in self._waiting if id(waiting) in kept or waiting is place]
        return place


class _Table:
    """Patterns by their anchors, and anchors by their trigger. All without digits: lines that differ in numbers only,
    as those of a training do, are compared once."""

    def __init__(self, patterns: Tuple[Pattern, ...]) -> None:
        self.patterns = patterns
        self._regexes: Dict[int, Regex[bytes]] = {}  # compiled when they are first needed: a healthy log needs none
        by_anchor: Dict[bytes, List[int]] = {}
        for number, pattern in enumerate(patterns):
            for anchor in pattern.anchors:
                by_anchor.setdefault(anchor.translate(None, _DIGITS), []).append(number)
        # Anchors that contain a trigger are compared only where it is in the line; b"" is in each line.
        self._anchors: Dict[bytes, List[Tuple[bytes, List[int]]]] = {}
        for anchor, numbers in by_anchor.items():
            trigger = next((trigger for trigger in TRIGGERS if trigger in anchor), b"")
            self._anchors.setdefault(trigger, []).append((anchor, numbers))
        self._recent = lru_cache(maxsize=RECENT)(self._candidates)

    @staticmethod
    @lru_cache(maxsize=4)
    def of(patterns: Tuple[Pattern, ...]) -> _Table:
        return _Table(patterns)

    def matching(self, line: bytes) -> List[Pattern]:
        """In the order of the table."""
        words = line.translate(None, _DIGITS)
        numbers = (self._recent if len(words) <= RECENT_BYTES else self._candidates)(words)
        return [self.patterns[number] for number in numbers if self._fits(number, line)] if numbers else []

    def _candidates(self, words: bytes) -> Tuple[int, ...]:
        numbers: Set[int] = set()
        for trigger, anchors in self._anchors.items():
            if trigger in words:
                for anchor, of_anchor in anchors:
                    if anchor in words:
                        numbers.update(of_anchor)
        return tuple(sorted(numbers))

    def _fits(self, number: int, line: bytes) -> bool:
        pattern = self.patterns[number]
        if not pattern.regex:
            return any(anchor in line for anchor in pattern.anchors)
        regex = self._regexes.get(number)
        if regex is None:
            regex = self._regexes[number] = re.compile(pattern.regex)
        return regex.search(line) is not None


class _Triggers:
    """The places of triggers in a text, in order. To search for each one by itself is faster than any expression."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        places = ((word, text.find(word)) for word in _WORDS)
        self._next = {word: place for word, place in places if place >= 0}

    def __bool__(self) -> bool:
        return bool(self._next)

    def after(self, begin: int) -> Optional[int]:
        """The first place from `begin` on, which never goes back."""
        for word in [word for word, place in self._next.items() if place < begin]:
            self._next[word] = self._text.find(word, begin)
            if self._next[word] < 0:
                del self._next[word]
        return min(self._next.values(), default=None)


class _Lines:
    """The lines of a block. `text`: the block without colors, each line with one line end."""

    def __init__(self, block: bytes, text: bytes, is_plain: bool, mask: Callable[[bytes], bytes]) -> None:
        self._block, self._mask = block, mask
        self._begins = [0, *accumulate(map(len, text.splitlines(True)))]
        self._spans = None if is_plain else [match.span(1) for match in _LINE.finditer(block)]

    def __len__(self) -> int:
        return len(self._begins) - 1

    def begin(self, number: int) -> int:
        return self._begins[number]

    def number_at(self, place: int) -> int:
        """Of the line around this place of `text`."""
        return bisect_right(self._begins, place) - 1

    def offset(self, number: int) -> int:
        """In the block."""
        return self._begins[number] if self._spans is None else self._spans[number][0]

    def raw(self, number: int) -> bytes:
        begin, end = (
            (self._begins[number], self._begins[number + 1] - 1) if self._spans is None else self._spans[number]
        )
        return self._block[begin : min(end, begin + RAW_BYTES)]

    def line(self, number: int) -> bytes:
        return _canonical(self.raw(number), self._mask)

    def follow(self, place: Place, number: int) -> None:
        """Give `place` the lines from this one on that it still lacks."""
        lines = [self.line(other) for other in range(number, min(len(self), number + place.missing))]
        place.missing -= len(lines)
        place.after.extend(_around(lines))


def scan(log: bytes) -> Matcher:
    """A matcher that has read a whole log."""
    matcher = Matcher()
    for begin in range(0, len(log), 1 << 18):
        matcher.feed(log[begin : begin + (1 << 18)])
    matcher.end()
    return matcher


def patterns_of(line: str) -> List[Pattern]:
    """The patterns of one line."""
    return _Table.of(PATTERNS).matching(line.encode("utf-8", "replace")[:LINE_BYTES])


def _canonical(raw: bytes, mask: Callable[[bytes], bytes]) -> bytes:
    return (mask(_without_colors(raw)) if b"\x1b" in raw else raw)[:LINE_BYTES]


def _without_colors(data: bytes) -> bytes:
    return _ANSI.sub(b"", data) if b"\x1b" in data else data


def _last_lines(text: bytes) -> List[bytes]:
    return [line[:RAW_BYTES] for line in text[:-1].rsplit(b"\n", AROUND)[-AROUND:]]


def _around(lines: Iterable[bytes]) -> Tuple[str, ...]:
    return tuple(_text(line)[:AROUND_CHARS] for line in lines if line.strip())


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip()

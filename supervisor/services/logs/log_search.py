"""Looking for a text in a log: a stream of blocks that end with a line, so that no match is cut by a block's end.

The text is plain, looked for in the bytes as they were written; a line has one match. Where the letters' case is
ignored, both are compared in lower case: quickly for plain letters, by alternatives for others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from supervisor.services.logs.log_lines import BREAK, Allowance, Readable
from supervisor.services.views.run_view import Json

MATCHES = 100  # of one answer
LINE_BYTES = 1 << 20  # a longer line is searched in parts
SHOWN_BEFORE, SHOWN_BYTES = 160, 640  # of a line, around its match

# (block, from, to) -> where the text is, negative: nowhere
Find = Callable[[bytes, int, int], int]


@dataclass(slots=True)
class Search:
    """`at`: searched up to here, `line`: the number of the line that begins there (None: not known)."""

    text: str
    ignore_case: bool
    at: int
    line: int | None
    matches: list[Json] = field(default_factory=list)

    def run(self, log: Readable, allowance: Allowance) -> None:
        """Goes on to the end of the log, MATCHES, or the end of the allowance."""
        find_in, rest = _finder(self.text, self.ignore_case), b""
        for piece in log.stream(self.at, log.size):
            block = rest + piece
            whole = block.rfind(BREAK) + 1 or (len(block) if len(block) > LINE_BYTES else 0)
            if whole and not self._scan(block, whole, find_in(block)):
                return
            rest = block[whole:]
            if not allowance.spend(len(piece)):
                return
        if self.at + len(rest) >= log.size:  # the last line has no end yet
            self._scan(rest, len(rest), find_in(rest))

    def _scan(self, block: bytes, end: int, find: Find) -> bool:
        """False: that were as many matches as an answer may have."""
        begin = 0
        while len(self.matches) < MATCHES and (found := find(block, begin, end)) >= 0:
            start = block.rfind(BREAK, begin, found) + 1 or begin
            stop = block.find(BREAK, found, end)
            stop = end if stop < 0 else stop
            self._pass(block, begin, start)
            self.matches.append(self._match(block[start:stop], found - start))
            begin = min(stop + 1, end)
            self._pass(block, start, begin)
        if len(self.matches) < MATCHES:
            self._pass(block, begin, end)
            return True
        return False

    def _pass(self, block: bytes, begin: int, end: int) -> None:
        self.at += end - begin
        if self.line is not None:
            self.line += block.count(BREAK, begin, end)

    def _match(self, line: bytes, found: int) -> Json:
        begin = max(0, found - SHOWN_BEFORE)
        while 0 < begin < found and line[begin] & 0xC0 == 0x80:  # not in the middle of a character
            begin += 1
        shown = line[begin : begin + SHOWN_BYTES]
        return {
            "line": self.line,
            "offset": self.at,
            "text": shown.decode("utf-8", "replace").rstrip("\r"),
            "skipped_bytes": begin,
            "cut_bytes": len(line) - begin - len(shown),
        }


def _finder(text: str, ignore_case: bool) -> Callable[[bytes], Find]:
    """Of a block: how to find the text in it."""
    wanted = text.encode()
    if not ignore_case:
        return lambda block: lambda _, begin, end: block.find(wanted, begin, end)
    if text.isascii():
        return lambda block: _in(block.lower(), wanted.lower())
    letters = (sorted({one.encode() for one in (letter, letter.lower(), letter.upper())}) for letter in text)
    pattern = re.compile(b"".join(b"(?:" + b"|".join(map(re.escape, some)) + b")" for some in letters))

    def search(block: bytes, begin: int, end: int) -> int:
        found = pattern.search(block, begin, end)
        return -1 if found is None else found.start()

    return lambda _: search


def _in(block: bytes, wanted: bytes) -> Find:
    return lambda _, begin, end: block.find(wanted, begin, end)

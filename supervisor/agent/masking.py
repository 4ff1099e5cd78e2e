"""Secret values never leave this machine: whatever goes to the store, into a beat or to the console is masked first.

A value is looked for in every form that a log usually shows: as it is, line by line (lines of LINE_CHARS or more),
escaped as JSON or repr do it, quoted for a URL, and as base64 at each of its three alignments, so that the header of
a Basic authorisation is found too. All places are found before anything is replaced: values that overlap are all
covered, and no mark is searched for another value.

A stream (the log) holds back only an end that may yet become a value, and never gives out SHORT bytes of it or more.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Set, Tuple
from urllib.parse import quote, quote_plus

MASK = "[secret %s]"
MIN_CHARS = 4  # a shorter value cannot be masked without spoiling every other word
LINE_CHARS = 8  # of one line of a value, to be masked by itself
SHORT = 4  # bytes of a value's beginning that may be shown
_BASE64_BYTES = 8  # a shorter value has base64 forms that are ordinary words

Span = Tuple[int, int, bytes]  # begin, end, mark


class Masker:
    """Replaces the values of `secrets` (name -> value) by marks with their names. Safe to use from every thread."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        marks: Dict[bytes, bytes] = {}
        for name, value in sorted(secrets.items()):
            for form in forms(value):
                marks.setdefault(form, (MASK % name).encode())
        self._marks: Tuple[Tuple[bytes, bytes], ...] = tuple(
            sorted(marks.items(), key=lambda item: -len(item[0]))
        )
        self._by_start: Dict[bytes, List[Tuple[bytes, bytes]]] = {}
        for form, mark in self._marks:
            for length in range(1, SHORT + 1):
                self._by_start.setdefault(form[:length], []).append((form, mark))

    @property
    def longest(self) -> int:
        """Bytes of the longest form of any value; 0 = there is nothing to mask."""
        return len(self._marks[0][0]) if self._marks else 0

    def text(self, text: str) -> str:
        if not self._marks:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def data(self, data: bytes) -> bytes:
        return b"".join(replaced(data, 0, len(data), self.spans(data))) if self._marks else data

    def json(self, value: Any, keys: bool = True) -> Any:
        """`value` with every text in it masked, keys too; `keys` False: they are names of our own, which others read
        and which a secret that is a common word must not change. Containers become plain dicts and lists."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.json(key) if keys else key: self.json(item, keys) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.json(item, keys) for item in value]
        return value

    def tail(self, data: bytes, limit: int) -> bytes:
        """The last `limit` bytes of `data`, masked. Give `longest` bytes more than `limit`: then no value is cut where
        the data begins. An end that is the beginning of a value is masked too."""
        spans = self.spans(data)
        torn, mark = self.beginning(data)
        if len(data) - torn >= SHORT:
            spans = _merged([*spans, (torn, len(data), mark)])
        return b"".join(replaced(data, max(0, len(data) - limit), len(data), spans))

    def spans(self, data: bytes) -> List[Span]:
        """Where values are, in order and apart from each other."""
        found: List[Span] = []
        for form, mark in self._marks:
            at = data.find(form)
            while at >= 0:
                found.append((at, at + len(form), mark))
                at = data.find(form, at + 1)
        return _merged(found)

    def beginning(self, data: bytes) -> Tuple[int, bytes]:
        """(where the longest end of `data` begins that is the beginning of a value, its mark)."""
        for at in range(max(0, len(data) - self.longest + 1), len(data)):
            for form, mark in self._by_start.get(data[at : at + SHORT], ()):
                if len(form) > len(data) - at and data.endswith(form[: len(data) - at]):
                    return at, mark
        return len(data), b""


class MaskStream:
    """Masks what comes in pieces, wherever a value was cut. Used by one thread."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._given = 0  # bytes of `_held` that were given out already, or covered by a mark

    @property
    def holds(self) -> bool:
        """Something waits to be told apart from a value."""
        return len(self._held) > self._given

    def feed(self, data: bytes) -> bytes:
        """What can be given out now."""
        if not self._masker.longest:
            return data
        data = self._held + data
        begin, _ = self._masker.beginning(data)
        spans = self._masker.spans(data)
        out = b"".join(replaced(data, self._given, begin, spans))
        covered = max((end for start, end, _ in spans if start < begin), default=0)
        self._held, self._given = data[begin:], max(0, max(self._given, covered) - begin)
        return out

    def rest(self) -> bytes:
        """Nothing new came for a while: the few bytes that may be shown. They are remembered, so what completes them
        is masked."""
        short = self._held[self._given :] if len(self._held) < SHORT else b""
        self._given += len(short)
        return short

    def end(self) -> bytes:
        """All that is held; the torn beginning of a value counts as one."""
        held, given = self._held, self._given
        self._held, self._given = b"", 0
        _, mark = self._masker.beginning(held)
        spans = [(0, len(held), mark)] if len(held) >= SHORT else self._masker.spans(held)
        return b"".join(replaced(held, given, len(held), spans))


NOTHING = Masker({})


def forms(value: str) -> Set[bytes]:
    """The bytes that `value` may appear as, none shorter than MIN_CHARS."""
    lines = value.splitlines()
    parts = {value, value.strip()} | {line.strip() for line in lines if len(line.strip()) >= LINE_CHARS}
    found: Set[bytes] = set()
    for part in parts:
        texts = {part, quote(part), quote(part, safe=""), quote_plus(part)}
        texts |= {json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1]}
        found |= {text.encode() for text in texts}
        if len(part.encode()) >= _BASE64_BYTES:
            found.update(_base64(part.encode()))
    return {form for form in found if len(form) >= MIN_CHARS}


def _base64(data: bytes) -> Iterator[bytes]:
    """Of `data` behind 0, 1 or 2 other bytes: the characters that depend on nothing but `data`."""
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + data)
        sure = coded[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]
        yield sure
        yield sure.replace(b"+", b"-").replace(b"/", b"_")


def _merged(found: Iterable[Span]) -> List[Span]:
    """Those that overlap become one, with the mark of the longest one at its beginning."""
    spans: List[Span] = []
    for begin, end, mark in sorted(found, key=lambda span: (span[0], -span[1])):
        if spans and begin < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
        else:
            spans.append((begin, end, mark))
    return spans


def replaced(data: bytes, begin: int, end: int, spans: Iterable[Span]) -> Iterator[bytes]:
    """The pieces of data[begin:end] with marks instead of `spans`."""
    at = begin
    for start, stop, mark in spans:
        if stop <= at or start >= end:
            continue
        yield data[at:start]
        yield mark
        at = min(stop, end)
    yield data[at:end]

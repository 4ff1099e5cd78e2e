"""Secret values never leave this machine: every text for the store, a beat or the console is masked first.

The masker searches for a value in every form that a log usually shows: as it is, line by line (lines of LINE_CHARS or
more), escaped as JSON or repr do it, quoted for a URL, and as base64 at each of its three alignments, so that it also
finds the header of a Basic authorization. Programs wrap base64 and keys at any width, indent the lines, and put quotes
or escapes around them: base64 and the bodies of keys are compared without all of these (`_squeezed`). If a value is
JSON, such as the key of a service account, each field with a secret name is a value too.

All occurrences are found before anything is replaced: overlapping values are all covered, and no mark is searched for
another value. A stream (the log) holds back only an end that may still become a value, and never gives out SHORT
characters of it or more.

The provider keeps the agent's standard error, so it is masked too, tracebacks included. Uncaught errors in any thread
take the same path, because Python's own hooks do not mask.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
import threading
from types import TracebackType
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, Type
from urllib.parse import quote, quote_plus

MASK = "[secret %s]"
MIN_CHARS = 4  # masking a shorter value would change every other word
LINE_CHARS = 8  # a line of a value with as many characters is masked by itself
SHORT = 4  # characters: a shorter beginning of a value may be shown
_BASE64_BYTES = 8  # a shorter value has base64 forms that are ordinary words
# What may be between two characters of wrapped base64.
_BREAK = re.compile(rb"""\\+[nrt]?|%0[ADad]|[\s"',]+""")
# Breaks of one byte; most data has no others.
_ONE_BYTE = b" \t\n\r\f\v\"',"
_LINE_END = re.compile(r"[\r\n]+|(?:\\+[nr])+")  # real or escaped
_PEM_BODY = re.compile(r"-----BEGIN [^-]+-----(.+?)-----END ", re.DOTALL)
_SECRET_FIELD = re.compile(r"key|secret|token|passw|auth|credential", re.IGNORECASE)

_CONSOLE_FORMAT = "%(asctime)s %(levelname)s %(threadName)s: %(message)s"
_log = logging.getLogger("agent")

Span = Tuple[int, int, bytes]  # begin, end, mark


class _Forms:
    """Byte strings to search for, each with its mark."""

    def __init__(self, marks: Mapping[bytes, bytes]) -> None:
        self._marks = sorted(marks.items(), key=lambda item: -len(item[0]))
        self.longest = len(self._marks[0][0]) if self._marks else 0
        self._by_start: Dict[bytes, List[Tuple[bytes, bytes]]] = {}
        for form, mark in self._marks:
            for length in range(1, SHORT + 1):
                self._by_start.setdefault(form[:length], []).append((form, mark))

    def spans(self, data: bytes) -> Iterator[Span]:
        for form, mark in self._marks:
            at = data.find(form)
            while at >= 0:
                yield at, at + len(form), mark
                at = data.find(form, at + 1)

    def beginning(self, data: bytes) -> Tuple[int, bytes]:
        """(where the longest end of `data` starts that is the beginning of a form, its mark)."""
        for at in range(max(0, len(data) - self.longest + 1), len(data)):
            for form, mark in self._by_start.get(data[at : at + SHORT], ()):
                if len(form) > len(data) - at and data.endswith(form[: len(data) - at]):
                    return at, mark
        return len(data), b""


class Masker:
    """Replaces the values of `secrets` (name -> value) with marks that show their names. Safe to use from every
    thread."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        plain: Dict[bytes, bytes] = {}
        wrapped: Dict[bytes, bytes] = {}
        for name, value in sorted(secrets.items()):
            mark = (MASK % name).encode()
            parts = _parts(value)
            for form in _plain_forms(parts):
                plain.setdefault(form, mark)
            for form in _wrapped_forms(value, parts):
                wrapped.setdefault(form, mark)
        self._plain = _Forms(plain)
        self._wrapped = _Forms(wrapped)  # compared with squeezed data
        # The most bytes that any form of a value takes; 0 = there is nothing to mask.
        self.longest = max(self._plain.longest, _spread(self._wrapped.longest))

    def text(self, text: str) -> str:
        if not self.longest:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def data(self, data: bytes) -> bytes:
        return b"".join(replaced(data, 0, len(data), self.spans(data))) if self.longest else data

    def json(self, value: Any, keys: bool = True) -> Any:
        """`value` with every text in it masked, keys too. `keys` False: the keys are our own names, which others read
        and which a secret that is a common word must not change. Containers become plain dicts and lists."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.json(key) if keys else key: self.json(item, keys) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.json(item, keys) for item in value]
        return value

    def tail(self, data: bytes, limit: int) -> bytes:
        """The last `limit` bytes of `data`, masked. Pass `longest` bytes more than `limit`: then no value is cut where
        the data begins. An end that is the beginning of a value is masked too."""
        spans = self.spans(data)
        torn, mark, chars = self.beginning(data)
        if chars >= SHORT:
            spans = _merged([*spans, (torn, len(data.rstrip()), mark)])
        return b"".join(replaced(data, max(0, len(data) - limit), len(data), spans))

    def spans(self, data: bytes) -> List[Span]:
        """The places of values, in order and without overlaps."""
        spans = list(self._plain.spans(data))
        wrapped = list(self._wrapped.spans(_squeezed(data)))
        places = _places(data) if wrapped else []
        for first, behind, mark in wrapped:
            begin, end = places[first], places[behind - 1] + 1
            if end - begin <= _spread(behind - first):
                spans.append((begin, end, mark))
        return _merged(spans)

    def beginning(self, data: bytes) -> Tuple[int, bytes, int]:
        """(where the longest end of `data` starts that is the beginning of a value, its mark, how many characters of
        the value it holds)."""
        at, mark = self._plain.beginning(data)
        chars = len(data) - at
        start = max(0, len(data) - self.longest + 1)
        for end in {len(data), len(data) - _torn_break(data)}:
            window = data[start:end]
            squeezed = _squeezed(window)
            first, wrapped_mark = self._wrapped.beginning(squeezed)
            if first < len(squeezed):
                place = start + _places(window)[first]
                if place < at:
                    at, mark, chars = place, wrapped_mark, max(chars, len(squeezed) - first)
        return at, mark, chars


class MaskStream:
    """Masks data that comes in pieces, wherever a value is cut. Used by one thread."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._given = 0  # bytes of `_held` that were given out already, or covered by a mark
        self._chars = 0  # how many characters of a value `_held` has

    @property
    def holds(self) -> bool:
        """Some data is held back, because it may become a value."""
        return len(self._held) > self._given

    def feed(self, data: bytes) -> bytes:
        """The data that can be given out now."""
        if not self._masker.longest:
            return data
        data = self._held + data
        begin, _, self._chars = self._masker.beginning(data)
        spans = self._masker.spans(data)
        out = b"".join(replaced(data, self._given, begin, spans))
        covered = max((end for start, end, _ in spans if start < begin), default=0)
        self._held, self._given = data[begin:], max(0, max(self._given, covered) - begin)
        return out + self.rest() if data.endswith(b"\n") else out

    def rest(self) -> bytes:
        """No new data came for a while: the few bytes that may be shown. They are remembered, so that the rest of their
        value is masked. The beginning of a wrapped value may itself be a complete short value; that waits for `end`."""
        may_be_shown = self._chars < SHORT and not self._masker.spans(self._held)
        short = self._held[self._given :] if may_be_shown else b""
        self._given += len(short)
        return short

    def end(self) -> bytes:
        """All data that is held back; the torn beginning of a value counts as a value."""
        held, given = self._held, self._given
        self._held, self._given = b"", 0
        _, mark, chars = self._masker.beginning(held)
        spans = [(0, len(held.rstrip()), mark)] if chars >= SHORT else self._masker.spans(held)
        return b"".join(replaced(held, given, len(held), spans))


def _parts(value: str) -> Set[str]:
    """The texts that are secret by themselves: the value, its long lines, and the same of its secret JSON fields."""
    parts: Set[str] = set()
    for text in (value, *_secret_fields(value)):
        lines = (line.strip() for line in _LINE_END.split(text))
        parts |= {text, text.strip()} | {line for line in lines if len(line) >= LINE_CHARS}
    return parts


def _secret_fields(value: str) -> List[str]:
    """The texts of a JSON object in fields with a secret name. A text with `://` is an address, such as `token_uri`,
    which logs may show."""
    texts: List[str] = []

    def secret(name: str, text: Any) -> bool:
        long = isinstance(text, str) and len(text) >= LINE_CHARS
        return long and "://" not in text and bool(_SECRET_FIELD.search(name))

    def note(pairs: List[Tuple[str, Any]]) -> None:
        texts.extend(text for name, text in pairs if secret(name, text))

    if value.lstrip().startswith("{"):
        try:
            json.loads(value, object_pairs_hook=note)
        except (ValueError, RecursionError):
            return []
    return texts


def _plain_forms(parts: Iterable[str]) -> Set[bytes]:
    """The bytes that `parts` may appear as, none shorter than MIN_CHARS."""
    forms: Set[bytes] = set()
    for part in parts:
        texts = {part, quote(part), quote(part, safe=""), quote_plus(part)}
        texts |= {json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1]}
        forms |= {text.encode() for text in texts}
    return {form for form in forms if len(form) >= MIN_CHARS}


def _wrapped_forms(value: str, parts: Iterable[str]) -> Set[bytes]:
    """What `_squeezed` leaves of the parts in base64, of a value with several lines and of the bodies of keys."""
    forms = {_squeezed(text.encode()) for text in (value, *_PEM_BODY.findall(value)) if _LINE_END.search(text)}
    for part in parts:
        if len(part.encode()) >= _BASE64_BYTES:
            forms.update(_base64(part.encode()))
    return {form for form in forms if len(form) >= _BASE64_BYTES}


def _base64(data: bytes) -> Iterator[bytes]:
    """Of `data` behind 0, 1 or 2 other bytes: the characters that depend on nothing but `data`."""
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + data)
        sure = coded[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]
        yield sure
        yield sure.replace(b"+", b"-").replace(b"/", b"_")
        yield quote(sure, safe="").encode()


def _squeezed(data: bytes) -> bytes:
    if b"\\" in data or b"%0" in data:
        return _BREAK.sub(b"", data)
    return data.translate(None, _ONE_BYTE)  # much cheaper than the expression


def _torn_break(data: bytes) -> int:
    """Bytes at the end of `data` that may still become a break; `%` may also become the `%2B` of a value."""
    return 2 if data.endswith(b"%0") else int(data.endswith(b"%"))


def _places(data: bytes) -> List[int]:
    """For each byte that `_squeezed` leaves: its place in `data`."""
    places: List[int] = []
    at = 0
    for gap in _BREAK.finditer(data):
        places.extend(range(at, gap.start()))
        at = gap.end()
    places.extend(range(at, len(data)))
    return places


def _spread(length: int) -> int:
    """How many bytes of the data a squeezed form of `length` bytes may cover. Without a limit a stream could hold back
    data without end."""
    return 2 * length + 64 if length else 0


def _merged(overlapping: Iterable[Span]) -> List[Span]:
    """Overlapping spans become one, with the mark of the longest one at its beginning."""
    spans: List[Span] = []
    for begin, end, mark in sorted(overlapping, key=lambda span: (span[0], -span[1])):
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


NOTHING = Masker({})


class MaskingFormatter(logging.Formatter):
    def __init__(self, masker: Masker, log_format: str = _CONSOLE_FORMAT) -> None:
        super().__init__(log_format)
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return self._masker.text(super().format(record))


def open_console(masker: Masker = NOTHING) -> None:
    """Call it at the start, and again when there are secrets to mask."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter(masker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    _log.critical("the agent ends by an error of its own", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        _log.critical("a thread ended by an error", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))

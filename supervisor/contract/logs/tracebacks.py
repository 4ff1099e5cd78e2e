"""Tracebacks of Python in a log that streams by: the error of each, its chain, its process.

A traceback may stand behind the prefix of a rank (`[rank0]: `), of a logger or of a container's log, in a box of rich,
and between the lines of other processes. Its frames quote source lines, which say nothing about the end: the matcher
leaves them out. A traceback that Python only reports (in `__del__`, at exit, in a thread) did not end the command.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

HEADER = b"Traceback (most recent call last)"
CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
ENDING, THREAD, IGNORED = "ending", "thread", "ignored"
KEPT = 24  # of the newest
CHAIN, MORE = 6, 3  # errors of one chain; lines after the error, which may continue its message
FOREIGN = 50  # lines of others that may stand between the lines of one traceback
LINKED_BYTES = 8192  # between an error and "During handling of the above exception"
_BOX = re.compile(rb"\xe2\x95\xad|\+--")  # ╭ and its form in ASCII
_IN_BOX = (b"\xe2\x94\x82", b"\xe2\x95\xad", b"\xe2\x95\xb0", b"\xe2\x9d\xb1", b"|", b"+-")  # │ ╭ ╰ ❱
_BOX_END = (b"\xe2\x95\xb0", b"+-")
_RANK = re.compile(
    rb"^ {0,4}(?:\[[A-Za-z_]{0,24}\d{1,6}\]:?|\d{1,6}:(?= |$)|\([^()]{0,60}pid=\d{1,9}[^()]{0,60}\)|\[\d+,\d+]<\w+>:?)"
)
_ERROR = re.compile(rb"^(?P<path>(?:[A-Za-z_][\w<>]{0,80}\.){0,12})(?P<name>[A-Za-z_]\w{0,80})(?::(?: .*)?)?$")
_LEVELS = (b"INFO", b"DEBUG", b"WARNING", b"WARN", b"ERROR", b"CRITICAL", b"FATAL")
_IGNORED = (b"Exception ignored in", b"Error in atexit", b"Logging error", b"Error in sys.excepthook")
_THREAD = (b"Exception in thread", b"Task exception was never", b"Exception in callback")
_DIGITS = bytes.maketrans(b"123456789+", b"000000000|")


class Traceback(NamedTuple):
    """`process`: the prefix of its rank, "" = none. `errors`: the lines of its exceptions, the one raised first in
    front. `more`: the lines after the last one. `number`: lines of the log before its error, without frames."""

    process: str
    kind: str
    errors: Tuple[str, ...]
    begin: int
    end: int
    up_s: float
    number: int
    more: Tuple[str, ...] = ()

    @property
    def error(self) -> str:
        return self.errors[-1]


class _Open:
    foreign = 0
    boxed = False  # its box has ended

    def __init__(self, prefix: bytes, process: str, kind: str, *, begin: int, errors: List[str], in_box: bool) -> None:
        self.prefix, self.process, self.kind = prefix, process, kind
        self.begin, self.errors, self.in_box = begin, errors, in_box


class _Closed:
    left = MORE

    def __init__(self, traceback: Traceback) -> None:
        self.traceback = traceback
        self.more: List[str] = []


class Tracebacks:
    """Gets each line while `is_active`, and otherwise those with HEADER or one of CHAINED."""

    def __init__(self) -> None:
        self._open: Dict[str, _Open] = {}
        self._chains: Dict[str, Tuple[int, List[str]]] = {}  # process -> begin and errors of the next one's chain
        self._closed: Deque[_Closed] = deque(maxlen=KEPT)

    @property
    def is_active(self) -> bool:
        return bool(self._open) or (bool(self._closed) and self._closed[-1].left > 0)

    def all(self) -> Tuple[Traceback, ...]:
        """The newest, in the order of their errors."""
        return tuple(closed.traceback._replace(more=tuple(closed.more)) for closed in self._closed)

    def forget_open(self) -> None:
        """The next line does not follow on the last one."""
        self._open.clear()
        self._chains.clear()
        for closed in self._closed:
            closed.left = 0

    def feed(self, line: bytes, offset: int, *, up_s: float, number: int, before: Callable[[], bytes]) -> bool:
        """Whether the line belongs to the frames of a traceback. `before`: the last line with content before it."""
        place = line.find(HEADER)
        if place >= 0:
            self._begin(line[:place], offset, before)
            return True
        if any(words in line for words in CHAINED):
            self._chain(line, offset, before)
            return True
        for opened in list(self._open.values()):
            rest = _rest_of(opened, line)
            if rest is None:
                continue
            if _is_frame(opened, rest):
                opened.foreign = 0
                return True
            if _is_error(opened, rest):
                self._close(opened, rest.strip(), offset, up_s, number)
                return False
            opened.foreign += 1
            if opened.foreign > FOREIGN:
                del self._open[opened.process]
        self._continue(line)
        return False

    def _begin(self, prefix: bytes, offset: int, before: Callable[[], bytes]) -> None:
        if prefix.endswith(b"Original "):
            prefix = prefix[: -len(b"Original ")]
        prefix = prefix.replace(b"Exception Group ", b"")
        process, box = process_of(prefix), _BOX.search(prefix)
        begin, errors = self._chains.pop(process, (offset, []))
        if len(self._open) < KEPT or process in self._open:
            kept = prefix if box is None else prefix[: box.start()]
            self._open[process] = _Open(
                kept, process, _kind(before()), begin=begin, errors=errors, in_box=box is not None
            )
        for closed in self._closed:
            closed.left = 0

    def _chain(self, line: bytes, offset: int, before: Callable[[], bytes]) -> None:
        process = process_of(line)
        same = [closed.traceback for closed in self._closed if closed.traceback.process == process]
        if same and offset - same[-1].end <= LINKED_BYTES:
            self._chains[process] = (same[-1].begin, list(same[-1].errors[-CHAIN:]))
        else:
            earlier = _text(_without_rank(before()).strip())
            self._chains[process] = (offset, [earlier] if earlier else [])
        if len(self._chains) > KEPT:
            self._chains.clear()

    def _close(self, opened: _Open, error: bytes, offset: int, up_s: float, number: int) -> None:
        del self._open[opened.process]
        errors = (*opened.errors[-CHAIN + 1 :], _text(error))
        made = Traceback(opened.process, opened.kind, errors, opened.begin, offset, up_s, number)
        self._closed.append(_Closed(made))

    def _continue(self, line: bytes) -> None:
        """A line after an error: more of its message, or of something else."""
        if self._closed and self._closed[-1].left > 0 and line.strip():
            last = self._closed[-1]
            last.left -= 1
            last.more.append(_text(_without_rank(line).strip()))


def process_of(line: bytes) -> str:
    """The prefix of a rank at the beginning of the line, such as `[rank0]:`; "" = none."""
    match = _RANK.match(line)
    return "" if match is None else _text(match.group().strip())


def _without_rank(line: bytes) -> bytes:
    match = _RANK.match(line)
    return line if match is None else line[match.end() :].lstrip(b" ")


def _rest_of(opened: _Open, line: bytes) -> Optional[bytes]:
    """The line without the prefix of this traceback; None for a line of another process."""
    length = len(opened.prefix)
    if length and line[:length].translate(_DIGITS) == opened.prefix.translate(_DIGITS):
        same = not opened.process or process_of(line) == opened.process
        return line[length:] if same else None
    if opened.process:
        bare = len(opened.prefix.rstrip())
        return line[bare:] if line[:bare] == opened.prefix[:bare] else None
    return None if _RANK.match(line) else line


def _is_frame(opened: _Open, rest: bytes) -> bool:
    if not rest.strip():
        return True
    if opened.in_box and not opened.boxed:
        inner = rest.lstrip()
        opened.boxed = inner.startswith(_BOX_END)
        return inner.startswith(_IN_BOX)
    return not opened.in_box and rest[:1] in (b" ", b"\t")


def _is_error(opened: _Open, rest: bytes) -> bool:
    if opened.in_box:
        return opened.boxed
    match = _ERROR.match(rest.rstrip())
    if match is None:
        return False
    name = match.group("name")
    return bool(match.group("path")) or (name[:1].isupper() and name not in _LEVELS)


def _kind(before: bytes) -> str:
    if any(words in before for words in _IGNORED):
        return IGNORED
    return THREAD if any(words in before for words in _THREAD) else ENDING


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")

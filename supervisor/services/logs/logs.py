"""The log of an attempt, read in bounded parts: from a byte or a line, its end, or the lines that contain a text.

However long a log is, one request reads at most COUNTED_BYTES and holds about LIMIT_MAX bytes. Line numbers are known
as far as lines were counted. If that is not far enough, the response contains null, and the next request continues.

A search reads blocks that end with a line, so that a block's end cuts no match. The text is plain and is searched in
the raw bytes; a line has one match. Without regard to case, both sides are compared in lower case: ASCII letters
directly, other letters by alternatives.
"""

from __future__ import annotations

import codecs
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import NotFound, Unavailable
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.services.logs.chunks import Allowance, Chunks, LogBytes
from supervisor.services.logs.lines import BREAK
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.runs.purge import refuse_purged

LIMIT_MAX = 1_048_576  # bytes in one response
CHUNKS_PER_RESPONSE = 512
LOGS_KEPT, CHUNKS_KEPT = 64, 200_000  # cached, of the most recently requested logs
COUNTED_BYTES, COUNTED_S = 256 << 20, 2.0  # for a request that needs line counts
COUNTED_ON_S = 0.3  # for a request that does not: it continues the count for the next one
BACK_BYTES = 65_536  # the first step back from the end, to find the last lines
MATCHES = 100  # in one response
LINE_BYTES = 1 << 20  # a longer line is searched in parts
SHOWN_BEFORE, SHOWN_BYTES = 160, 640  # of a line, around its match

# (block, start, end) -> position of the text; negative = not found
Find = Callable[[bytes, int, int], int]


class LogPart(TypedDict):
    run_id: str
    attempt: int | None
    text: str
    offset: int
    next_offset: int
    size: int
    complete: bool
    line: Annotated[int | None, Field(description="Number of the line at `offset`; null: not known yet.")]
    lines: Annotated[int | None, Field(description="Lines of the whole log; null: not counted to its end yet.")]
    counted_bytes: Annotated[int, Field(description="Lines were counted up to this byte; the next request counts on.")]


class LogText(LogPart):
    """Offsets count bytes of the attempt's whole log. `complete`: nothing will follow `next_offset`. Where `line` is
    beyond the lines counted so far, `line` is null and the text is empty: repeat the request."""


class LogMatch(TypedDict):
    line: int | None
    offset: Annotated[int, Field(description="The byte where the line begins.")]
    text: Annotated[str, Field(description="Of the line, around the first match: at most 640 bytes.")]
    skipped_bytes: Annotated[int, Field(description="of the line, before `text`")]
    cut_bytes: Annotated[int, Field(description="of the line, after `text`")]


class LogMatches(LogPart):
    """Lines that contain the text, at most 100. Go on from `next_offset` while `more` is true; `text` is empty."""

    matches: list[LogMatch]
    more: bool


@dataclass(slots=True)
class Search:
    """`at`: everything before is searched. `line`: the number of the line that starts there; None = not known."""

    text: str
    ignore_case: bool
    at: int
    line: int | None
    matches: list[LogMatch] = field(default_factory=list)

    def run(self, log: LogBytes, allowance: Allowance) -> None:
        """Continue to the end of the log, to MATCHES matches, or to the end of the allowance."""
        find_in, rest = _finder(self.text, self.ignore_case), b""
        for piece in log.stream(self.at, log.size):
            block = rest + piece
            whole = block.rfind(BREAK) + 1 or (len(block) if len(block) > LINE_BYTES else 0)
            if whole and not self._scan(block, whole, find_in(block)):
                return
            rest = block[whole:]
            if not allowance.spend(len(piece)):
                return
        if self.at + len(rest) >= log.size:  # the last line is unfinished
            self._scan(rest, len(rest), find_in(rest))

    def _scan(self, block: bytes, end: int, find: Find) -> bool:
        """False: there are MATCHES matches."""
        begin = 0
        while len(self.matches) < MATCHES and (hit := find(block, begin, end)) >= 0:
            start = block.rfind(BREAK, begin, hit) + 1 or begin
            stop = block.find(BREAK, hit, end)
            stop = end if stop < 0 else stop
            self._pass(block, begin, start)
            self.matches.append(self._match(block[start:stop], hit - start))
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

    def _match(self, line: bytes, hit: int) -> LogMatch:
        begin = max(0, hit - SHOWN_BEFORE)
        while 0 < begin < hit and line[begin] & 0xC0 == 0x80:  # not in the middle of a character
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
    """Makes the search function for a block."""
    wanted = text.encode()
    if not ignore_case:
        return lambda block: lambda _, begin, end: block.find(wanted, begin, end)
    if text.isascii():
        return lambda block: _in(block.lower(), wanted.lower())
    letters = (sorted({form.encode() for form in (letter, letter.lower(), letter.upper())}) for letter in text)
    pattern = re.compile(b"".join(b"(?:" + b"|".join(map(re.escape, some)) + b")" for some in letters))

    def search(block: bytes, begin: int, end: int) -> int:
        match = pattern.search(block, begin, end)
        return -1 if match is None else match.start()

    return lambda _: search


def _in(block: bytes, wanted: bytes) -> Find:
    return lambda _, begin, end: block.find(wanted, begin, end)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a log is requested: from `offset`, from the start of `line` (from 1), or the last `tail` lines
    before byte `before` (None: before the end). `lines`: at most so many. With `line`, `tail` or `lines` the part ends
    with a line, unless one line is longer than `limit` bytes."""

    offset: int = 0
    limit: int = 262_144
    line: int | None = None
    tail: int | None = None
    before: int | None = None
    lines: int | None = None

    @property
    def by_lines(self) -> bool:
        return self.line is not None or self.tail is not None or self.lines is not None


@dataclass(frozen=True, slots=True)
class Opened:
    """`over`: the log will not grow any more."""

    run: Run
    number: int
    bytes: LogBytes
    over: bool


class Logs:
    """Reads logs, and notifies the inbox, so that the agent of a log that is read writes it at the fast pace."""

    def __init__(self, parts: Parts, queries: Queries, inbox: BeatInbox) -> None:
        self._parts, self._queries, self._inbox = parts, queries, inbox
        self._chunks_by_log: OrderedDict[str, Chunks] = OrderedDict()
        self._lock = threading.Lock()

    def show(self, run_id: str, number: int | None, part: Part) -> LogText:
        """Text of the log, at most `part.limit` bytes; `number` None = the newest attempt. `complete`: nothing follows
        `next_offset`, now or later. Bytes that are not UTF-8 are replaced. Raises NotFound, FilesPurged,
        Unavailable."""
        run = self._queries.find(run_id)
        with self._answering(run):
            opened = self._open(run, number, follow=part.tail is None)
            if opened is None:
                return _nothing(run, part.offset)
            log = opened.bytes
            offset, line = self._begin(log, part)
            raw = b""
            if offset is not None:
                end = offset + min(part.limit, LIMIT_MAX)
                if part.tail is not None:
                    end = min(end, log.size if part.before is None else part.before)
                raw = log.read(offset, end, CHUNKS_PER_RESPONSE)
                log.count_lines(self._allowance(COUNTED_ON_S if part.by_lines else 0))
            if part.by_lines:
                raw = _whole_lines(raw, part.lines, cut=offset is not None and offset + len(raw) < log.size)
        return self._log_text(opened, offset if offset is not None else log.lines.counted, raw, line)

    def search(self, run_id: str, number: int | None, text: str, ignore_case: bool, part: Part) -> LogMatches:
        """Lines that contain `text`, from `part.offset` or `part.line`, at most MATCHES; `more`: the log was not
        searched to its end. Raises as `show`."""
        run = self._queries.find(run_id)
        with self._answering(run):
            opened = self._open(run, number)
            if opened is None:
                return {**_nothing(run, part.offset), "matches": [], "more": False}
            log, allowance = opened.bytes, self._allowance(COUNTED_S)
            at, line = self._begin(log, replace(part, lines=1))
            if at is None:  # not counted that far
                return {**self._log_text(opened, log.lines.counted, b"", None), "matches": [], "more": True}
            search = Search(text, ignore_case, at, line)
            search.run(log, allowance)
        log_text, more = self._log_text(opened, at, b"", line), search.at < log.size
        log_text["next_offset"], log_text["complete"] = search.at, opened.over and not more
        return {**log_text, "matches": search.matches, "more": more}

    def whole(self, run_id: str, number: str) -> Opened:
        """The whole log, to be streamed. `number`: of the attempt. Raises as `show`."""
        run = self._queries.find(run_id)
        with self._answering(run):
            opened = self._open(run, int(number) if number.isdecimal() and len(number) < 10 else 0)
        assert opened is not None, "an attempt with a number was found, or NotFound was raised"
        return opened

    def _begin(self, log: LogBytes, part: Part) -> tuple[int | None, int | None]:
        """(offset, line number) of the start of the part. Offset None: not counted that far."""
        if part.line is not None:
            breaks = part.line - 1
            log.count_lines(self._allowance(COUNTED_S), lambda: log.lines.before_break(breaks) is not None)
            offset = log.offset_of(part.line)
            if offset is None:
                return None, None
            return offset, part.line if offset < log.size else log.line_at(offset)
        offset = part.offset
        if part.tail is not None:
            offset = _tail_begin(log, part.tail, part.limit, part.before)
        if not part.by_lines:
            mark = log.lines.before(offset)
            return offset, 1 + mark.breaks if mark is not None and mark.offset == offset else None
        seconds = COUNTED_S if part.tail is None else COUNTED_ON_S  # the end can be shown without line numbers
        log.count_lines(self._allowance(seconds), lambda: log.lines.counted >= min(offset, log.size))
        return offset, log.line_at(offset) if offset <= log.size else None

    def _log_text(self, opened: Opened, offset: int, raw: bytes, line: int | None) -> LogText:
        log, end = opened.bytes, offset + len(raw)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(raw, final=opened.over and end >= log.size)
        next_offset = end - len(decoder.getstate()[0])
        return {
            "run_id": opened.run.run_id,
            "attempt": opened.number,
            "text": text,
            "offset": offset,
            "next_offset": next_offset,
            "size": log.size,
            "complete": opened.over and next_offset >= log.size,
            "line": line,
            "lines": log.lines.total(log.size),
            "counted_bytes": min(log.lines.counted, log.size),
        }

    def _open(self, run: Run, number: int | None, follow: bool = False) -> Opened | None:
        """None: there is no attempt yet. `follow`: the reader wants later text too. Every open page of a run reads the
        end of the log, and that must not make its agent write at the fast pace all day."""
        attempt = self._attempt(run, number)
        if attempt is None:
            return None
        refuse_purged(run, attempt)
        if follow and run.live_attempt is not None:
            self._inbox.follow(run.run_id)
        # Before the read: a log that is over now cannot grow during the read.
        over = attempt.ended_at is not None and (attempt.gone_at is not None or run.terminal)
        prefix = runfiles.logs(run.run_id, attempt.number)
        chunks = self._chunks(prefix)
        log = chunks.open(self._parts.objects, prefix, self._parts.clock.monotonic())
        return Opened(run, attempt.number, log, over)

    def _attempt(self, run: Run, number: int | None) -> Attempt | None:
        if number is None or (run.attempt is not None and run.attempt.number == number):
            return run.attempt
        for attempt in self._parts.store.attempts(run.key):
            if attempt.number == number:
                return attempt
        raise NotFound(f"{run.run_id} has no attempt {number}.", {"run_id": run.run_id})

    def _chunks(self, prefix: str) -> Chunks:
        with self._lock:
            chunks = self._chunks_by_log.setdefault(prefix, Chunks())
            self._chunks_by_log.move_to_end(prefix)
            while len(self._chunks_by_log) > 1 and not self._few():
                self._chunks_by_log.popitem(last=False)
            return chunks

    def _few(self) -> bool:
        return len(self._chunks_by_log) <= LOGS_KEPT and sum(map(len, self._chunks_by_log.values())) <= CHUNKS_KEPT

    def _allowance(self, seconds: float) -> Allowance:
        return Allowance(COUNTED_BYTES, seconds, self._parts.clock.monotonic)

    @contextmanager
    def _answering(self, run: Run) -> Iterator[None]:
        try:
            yield
        except (StoreUnavailable, ObjectMissing) as error:
            text = f"The log of {run.run_id} cannot be read now. Retry."
            raise Unavailable(text, {"run_id": run.run_id}) from error


def _nothing(run: Run, offset: int) -> LogText:
    return {
        "run_id": run.run_id,
        "attempt": None,
        "text": "",
        "offset": offset,
        "next_offset": offset,
        "size": 0,
        "complete": run.terminal,
        "line": None,
        "lines": None,
        "counted_bytes": 0,
    }


def _tail_begin(log: LogBytes, lines: int, limit: int, before: int | None) -> int:
    """Where the last `lines` lines before byte `before` start, at most `limit` bytes earlier."""
    end = log.size if before is None else min(before, log.size)
    first, step = max(0, end - min(limit, LIMIT_MAX)), BACK_BYTES
    while True:
        begin = max(first, end - step)
        data = log.read(begin, end)
        at, breaks = len(data) - data.endswith(BREAK), 0
        while breaks < lines and at >= 0:
            at, breaks = data.rfind(BREAK, 0, at), breaks + 1
        if at >= 0:
            return begin + at + 1
        if begin == first:  # not in the middle of a line, if another line starts later
            whole = data.find(BREAK) + 1 if first else 0
            return first + (whole if whole < len(data) else 0)
        step *= 4


def _whole_lines(raw: bytes, lines: int | None, cut: bool) -> bytes:
    """At most so many lines; `cut`: the log continues after `raw`."""
    if lines is not None:
        parts = raw.split(BREAK, lines)
        if len(parts) > lines:
            return raw[: len(raw) - len(parts[-1])]
    return raw[: raw.rfind(BREAK) + 1] or raw if cut else raw

"""What the command's output says about its end: the whole of it goes through the matcher beside the command.

The output is masked before it is matched, and a line again once its colors are removed, so no line, context or error
can show a secret, wherever a value is cut. A healthy log costs a stat every PERIOD_S and a search for a few words. A
flood of more than FLOOD_BYTES since the last look is sampled: its first and its last SAMPLE_BYTES; the end is always
read.

A flood of short lines that each have words of an error costs a hundred times as much to search. So the watch has a
budget of CPU time, CPU_SHARE of a core with BURST_S at once: where it is used up, only the newest TAIL_BYTES are read,
and nothing more until the budget has grown again. The first hits were read then, and the last ones are read at the end.

Steps decide what the training survived. `note_step` comes before each reading of the progress: a step that is new now
was read after the previous call, so it was written after the call before that. What the log held then did not end the
command. Positions count all bytes that the file ever had, also where the command empties it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Optional, Tuple

from supervisor.agent.machine.folder import open_plain, size_of
from supervisor.agent.machine.masking import NOTHING, Masker, MaskStream
from supervisor.agent.watch.guess import StepGuess
from supervisor.contract.heartbeat import Guess
from supervisor.contract.logs.beginning import NEAR_LINES, beginning
from supervisor.contract.logs.matcher import Matcher, Place, Seen
from supervisor.contract.signs import CAUSE, TEARDOWN, Hit

PERIOD_S = 2.0
PIECE_BYTES = 1 << 18  # at once: other threads run in between
FLOOD_BYTES, SAMPLE_BYTES = 40 << 20, 1 << 20  # 20 MB/s
END_BYTES, HURRY_BYTES = 8 << 20, 2 << 20  # the same once the command has ended, and where little time is left
CPU_SHARE, BURST_S, TAIL_BYTES = 0.02, 2.0, 1 << 16
END_CPU_S = 2.0  # then the last SAMPLE_BYTES are read
# As trainings print a loss: `loss: 0.31`, `train_loss=0.31`, `"loss": 0.31`, `step 0: train loss 4.2`.
_LOSS = re.compile(rb"[Ll]oss[\w/.]{0,16}[\"']?[ \t]{0,3}[:=]?[ \t]{0,3}-?[0-9]{1,6}\.[0-9]")
LOSSES, LOSS_BYTES = 3, 1 << 16  # how many are enough; where they are looked for in each piece
_log = logging.getLogger("agent")


class LogWatch:
    """A loop's step reads beside the command; the main thread calls `note_step` and, at the end, `conclude`."""

    def __init__(
        self,
        path: str,
        masker: Masker = NOTHING,
        up_s: Callable[[], float] = lambda: 0.0,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`up_s`: seconds since the agent's start; `cpu_s`: CPU time of the calling thread."""
        self._path, self._masker, self._up_s, self._cpu_s = path, masker, up_s, cpu_s
        self._budget_s, self._refilled_at = BURST_S, up_s()
        self._matcher, self._stream = Matcher(mask=masker.data), MaskStream(masker)
        self._lock = threading.Lock()
        self._ends = self._failing = False
        self._file = (0, 0)  # device and inode
        self._offset = self._base = 0  # read of the file; bytes of the log before this file's first one
        self._sizes = (0, 0)  # positions at the last two calls of `note_step`
        self._step: Optional[int] = None
        self._survived = 0  # the position before the newest step
        self._steps: Dict[str, Tuple[int, int]] = {}  # pattern -> offset of its last hit, step when it was read
        self._losses = 0
        self._guesses: Optional[StepGuess] = StepGuess()  # None: the command reports steps
        self.guess: Optional[Guess] = None  # as of the last look
        self.sampled = False
        self.began = ("", "")  # pattern and line, once the command has ended

    def note_step(self, step: Optional[int]) -> None:
        if step is not None and self._step is None:
            with self._lock:
                self._guesses, self.guess = None, None
        if step != self._step:
            self._step, self._survived = step, self._sizes[0]
        self._sizes = (self._sizes[1], self._base + size_of(self._path))

    def skip(self) -> None:
        """What the log holds now is not the command's: its words do not count."""
        with suppress(OSError), self._lock:
            status = os.stat(self._path)
            self._file, self._offset = (status.st_dev, status.st_ino), status.st_size

    def step(self) -> Optional[float]:
        """Read what is new; seconds until the next time."""
        now = self._up_s()
        self._budget_s = min(BURST_S, self._budget_s + CPU_SHARE * (now - self._refilled_at))
        self._refilled_at = now
        if self._budget_s > 0:
            began_s = self._cpu_s()
            self._read_quietly(FLOOD_BYTES, began_s + self._budget_s)
            with self._lock:
                self.guess = None if self._guesses is None else self._guesses.look(now)
            self._budget_s -= self._cpu_s() - began_s
        return None if self._ends else PERIOD_S

    def conclude(self, code: Optional[int], hurry: bool) -> str:
        """The command has ended with this exit code: read the rest. The line that began the end, "" = none does."""
        with self._lock:
            self._ends = True
        self._read_quietly(HURRY_BYTES if hurry else END_BYTES, self._cpu_s() + END_CPU_S, is_last=True)
        with self._lock:
            self.began = beginning(self._matcher, self._survived, code)
        return self.began[1]

    def hits(self) -> Tuple[Hit, ...]:
        """What may matter, the oldest first: no work after the end, nothing that the training survived long ago."""
        with self._lock:
            hits = [self._matcher.hit(seen, self._steps_after(seen)) for seen in self._matcher.seen()]
        return tuple(hit for hit in hits if hit.role != TEARDOWN and (hit.role != CAUSE or _is_near(hit)))

    @property
    def shows_losses(self) -> bool:
        return self._losses >= LOSSES

    def part(self) -> Dict[str, Any]:
        """For the evidence: each pattern's first and last hit with the lines around them."""
        with self._lock:
            rows = [self._row(seen) for seen in self._matcher.seen()]
            began = dict(zip(("pattern", "line"), self.began))
        return {"log_hits": rows, "log_began": began if began["line"] else None, "log_sampled": self.sampled}

    def _row(self, seen: Seen) -> Dict[str, Any]:
        return {
            "pattern": seen.pattern.id,
            "role": seen.pattern.role,
            "count": seen.count,
            "steps_after": self._steps_after(seen),
            "lines_after": self._matcher.lines_after(seen.last.number),
            "first": _place(seen.first),
            "last": _place(seen.last),
        }

    def _steps_after(self, seen: Seen) -> Optional[int]:
        """Steps since the last hit, one at least if any was surely later; None: the command reports no steps."""
        step = self._step
        if step is None:
            return None
        if seen.last.offset >= self._survived:
            return 0
        _, step_then = self._steps.get(seen.pattern.id, (0, step))
        return max(1, step - step_then)

    def _read_quietly(self, most: int, until_s: float, is_last: bool = False) -> None:
        try:
            self._read(most, until_s, is_last)
            self._failing = False
        except OSError as error:
            if not self._failing:
                _log.warning("the output cannot be read for known errors: %s", error)
            self._failing = True
        if is_last:
            with self._lock:
                self._take(self._stream.end())
                self._matcher.end(self._up_s())

    def _read(self, most: int, until_s: float, is_last: bool) -> None:
        """`until_s`: of CPU time, when only the end of the log is left to be read."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        if (status.st_dev, status.st_ino) == self._file and status.st_size == self._offset:
            return  # at most calls: the file is not even opened
        source = open_plain(self._path)
        if source is None:
            return
        with source:
            with self._lock:
                if self._ends != is_last:
                    return
                status = os.fstat(source.fileno())  # an older size would look like a file that was emptied
                self._follow((status.st_dev, status.st_ino), status.st_size)
            end = status.st_size
            if end - self._offset > most:
                self._read_until(source.fileno(), self._offset + SAMPLE_BYTES, is_last, until_s)
                self._skip_to(source.fileno(), end - SAMPLE_BYTES, is_last)
            self._read_until(source.fileno(), end, is_last, until_s)
            if self._cpu_s() >= until_s:
                self._skip_to(source.fileno(), end - (SAMPLE_BYTES if is_last else TAIL_BYTES), is_last)
                self._read_until(source.fileno(), end, is_last)

    def _follow(self, file: Tuple[int, int], size: int) -> None:
        """A file that was emptied or replaced is read from its beginning."""
        if file != self._file or size < self._offset:
            self._base += self._offset
            self._file, self._offset = file, 0

    def _read_until(self, file: int, end: int, is_last: bool, until_s: Optional[float] = None) -> None:
        """By the thread beside the command only until the command ends: the main thread reads the rest."""
        while until_s is None or self._cpu_s() < until_s:
            with self._lock:
                if self._offset >= end or self._ends != is_last:
                    return
                data = os.pread(file, min(PIECE_BYTES, end - self._offset), self._offset)
                if not data:
                    return
                self._offset += len(data)
                self._take(self._stream.feed(data))

    def _skip_to(self, file: int, offset: int, is_last: bool) -> None:
        """What is left out may end within a value: what is read before `offset` is masked with it, and not matched."""
        with self._lock:
            if self._ends != is_last or offset <= self._offset:
                return
            self.sampled = True
            self._take(self._stream.end())
            self._matcher.gap()
            if self._guesses is not None:
                self._guesses.gap()
            before = max(self._offset, offset - self._masker.longest)
            self._stream = MaskStream(self._masker)
            self._stream.feed(os.pread(file, offset - before, before))
            self._offset = offset

    def _take(self, plain: bytes) -> None:
        """Masked values have another length, so positions are those of the end of what was read: a little late."""
        if not plain:
            return
        if not self.shows_losses and b"oss" in plain:
            self._losses += len(_LOSS.findall(plain, 0, LOSS_BYTES))
        if self._guesses is not None:
            self._guesses.feed(plain)
        self._matcher.feed(plain, self._up_s(), at=max(0, self._base + self._offset - len(plain)))
        for seen in self._matcher.seen():
            offset, _ = self._steps.get(seen.pattern.id, (-1, 0))
            if offset != seen.last.offset:
                self._steps[seen.pattern.id] = seen.last.offset, self._step or 0


def _is_near(hit: Hit) -> bool:
    return not hit.steps_after and (hit.lines_after or 0) < NEAR_LINES


def _place(place: Place) -> Dict[str, Any]:
    return {
        "line": place.line,
        "up_s": place.up_s,
        "offset": place.offset,
        "before": list(place.before),
        "after": list(place.after),
    }

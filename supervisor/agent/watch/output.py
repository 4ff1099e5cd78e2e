"""The command's output: its log on the way to the store, and its reports of progress.

The log goes in chunks of at most 1 MB that sort by name. A chunk that is still small is written again, longer, under
the same name, so that a quiet log does not become many tiny objects; it is sealed at SEAL_BYTES. Readers may rely on
it: a chunk only ever grows, and chunks before the last one never change. What is not in the store yet stays on disk,
not in memory. `LogDuty` ships the log beside the command, with a last round when the command has ended.

Progress comes as JSON lines in SPOT_PROGRESS_FILE, and is accepted within bounds:

  {"step": 120, "total": 500, "metrics": {"loss": 0.3}}     {"checkpoint": "step-120.npz", "step": 120}
  {"phase": "evaluation"}   (or checkpoint, training)

Metrics that are not finite are named beside the others: {"step": 7, "metrics": {}, "nonfinite": {"loss": "nan"}}.

Any other line is ignored and counted: a typing error in a training's report must not end the training.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import OrderedDict, deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from supervisor.agent.machine.folder import open_plain
from supervisor.agent.machine.masking import NOTHING, Masker, MaskStream
from supervisor.agent.watch.ends import EndReasons
from supervisor.agent.watch.metrics import MetricWatch
from supervisor.agent.watch.series import MetricSeries
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import CHECKPOINT, EVALUATION, TRAINING, is_count
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

LINE_BYTES = 65536  # the rest of a longer line is cut off
CHUNK_BYTES = 1 << 20
SEAL_BYTES = 1 << 16
FOLLOW_S = 2.0
IDLE_S = 5.0  # between two looks at whether the log is due; a change of phase and a reader wake the thread
REPORT_BYTES = 65536  # a longer line is no report
READ_BYTES = 1 << 20  # in one call, so that a flood cannot block the agent
PHASES = (TRAINING, CHECKPOINT, EVALUATION)
REMEMBERED = 200  # announced checkpoints
PACE_WINDOW_S = 60.0
PACE_APART_S = 0.5  # reports that are closer together show no pace
_log = logging.getLogger("agent")


class LineCutter:
    """Cuts lines to LINE_BYTES as they stream by, with a mark that shows how much was left out."""

    def __init__(self) -> None:
        self._length = 0  # of the current line
        self._cut = 0

    def feed(self, data: bytes) -> bytes:
        out: List[bytes] = []
        *complete, rest = data.split(b"\n")
        for line in complete:
            out.extend((self._part(line), self._mark(), b"\n"))
            self._length = 0
        out.append(self._part(rest))
        return b"".join(out)

    def end(self) -> bytes:
        """The mark of a last line without an end."""
        return self._mark()

    def _part(self, data: bytes) -> bytes:
        kept = data[: max(0, LINE_BYTES - self._length)]
        self._length += len(kept)
        self._cut += len(data) - len(kept)
        return kept

    def _mark(self) -> bytes:
        mark = b" [... %d bytes of this line were cut]" % self._cut if self._cut else b""
        self._cut = 0
        return mark


class LogShipper:
    """Used by one thread. Ships `path` as the log of one attempt; a line is masked before it is cut."""

    def __init__(self, store: ObjectStore, run_id: str, attempt: int, path: str, masker: Masker = NOTHING) -> None:
        self._store, self._run_id, self._attempt, self._path = store, run_id, attempt, path
        self._stream = MaskStream(masker)
        self._cutter = LineCutter()
        self._offset = 0  # read from the file so far
        self._chunk = b""  # content of the last chunk, and more that is not written yet
        self._sequence = 0
        self._written = 0  # bytes of `_chunk` that are in the store

    def ship(self, last: bool = False) -> None:
        """Write what is new now. Later output is for the next call, so that a flood cannot make this call too long.
        StoreUnavailable: the next call ships it. OSError: this disk.

        A file that the training removed, or replaced by something else, has nothing new.
        """
        source = open_plain(self._path)
        if source is None:
            self._write()
            return
        with source:
            end = os.fstat(source.fileno()).st_size
            if end < self._offset:
                self._offset = 0  # it was emptied: its present content is new
            more = True
            while more:
                if len(self._chunk) < CHUNK_BYTES:  # else an earlier call could not write it
                    source.seek(self._offset)
                    data = source.read(min(READ_BYTES, end - self._offset))
                    self._offset += len(data)
                    plain = self._stream.feed(data) if data else self._stream.rest()
                    self._chunk += self._cutter.feed(plain)
                    more = bool(data) and self._offset < end
                if last and not more:
                    self._chunk += self._cutter.feed(self._stream.end()) + self._cutter.end()
                self._write()

    def _write(self) -> None:
        while len(self._chunk) > self._written:
            piece = self._chunk[:CHUNK_BYTES]
            self._store.put(runfiles.log_chunk(self._run_id, self._attempt, self._sequence), piece)
            self._written = len(piece)
            if len(piece) >= SEAL_BYTES:
                self._sequence += 1
                self._chunk = self._chunk[len(piece) :]
                self._written = 0


class LogDuty:
    """`phase` returns the present phase: the log is shipped when it changes."""

    def __init__(self, shipper: LogShipper, period_s: float, end_reasons: EndReasons, phase: Callable[[], str]) -> None:
        self._shipper, self._period_s, self._end_reasons = shipper, period_s, end_reasons
        self._phase = phase
        self._shipped_phase = ""
        self._shipped_at = float("-inf")
        self._last = False
        self._failing = False
        self.followed = False

    def follow(self, followed: bool) -> None:
        self.followed = followed

    def finish(self) -> None:
        """Ship the rest, and wait for the store if necessary."""
        self._last = True

    def ship_rest(self) -> None:
        """After the last round: ship what was written since. StoreUnavailable."""
        try:
            self._shipper.ship(last=True)
        except OSError as error:
            _log.warning("the end of the log cannot be read: %s", error)

    def step(self) -> Optional[float]:
        last, now = self._last, time.monotonic()
        if self._end_reasons.uploads_over():
            return None
        period_s = min(self._period_s, FOLLOW_S) if self.followed else self._period_s
        phase = self._phase()
        if not last and phase == self._shipped_phase and now < self._shipped_at + period_s:
            return min(IDLE_S, period_s)
        try:
            self._shipper.ship(last)
        except (StoreUnavailable, OSError) as error:
            if not self._failing:
                _log.warning("the log is not stored yet: %s", error)
            self._failing = True
            return min(5.0, max(0.2, period_s))
        self._failing = False
        self._shipped_phase, self._shipped_at = phase, now
        return None if last else min(IDLE_S, period_s)


class LineTail:
    """New complete lines of a growing file. A file that shrank or was replaced is read from its beginning."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._part = b""
        self._too_long = False
        self.dropped = 0  # lines longer than LINE_BYTES
        self.read_bytes = 0  # in all

    def lines(self) -> List[bytes]:
        """At most READ_BYTES; none when there is no plain file."""
        try:
            status = os.stat(self._path)
            if (status.st_ino, status.st_size) == (self._inode, self._offset):
                return []  # at most calls: the file is not even opened
            source = open_plain(self._path)
            if source is None:
                return []
            with source:
                status = os.fstat(source.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset, self._part, self._too_long = status.st_ino, 0, b"", False
                source.seek(self._offset)
                data = source.read(READ_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        self.read_bytes += len(data)
        *complete, self._part = (self._part + data).split(b"\n")
        reports = [line for line in complete if self._fits(line)]
        if len(self._part) > REPORT_BYTES:
            self._part, self._too_long = b"", True
        return reports

    def unread_bytes(self) -> int:
        """Of the file as it is now; 0 where it cannot be read."""
        try:
            status = os.stat(self._path)
        except OSError:
            return 0
        starts_again = status.st_ino != self._inode or status.st_size < self._offset
        return status.st_size - (0 if starts_again else self._offset)

    def _fits(self, line: bytes) -> bool:
        if self._too_long or len(line) > REPORT_BYTES:
            self._too_long = False
            self.dropped += 1
            return False
        return bool(line.strip())


class Progress:
    """The newest values that the training has reported. `report` gets new values of the beat's fields.

    `from_zero`: the run's steps are counted from 0, so the last one is total - 1. It is true when the first report of
    an attempt that restored nothing is step 0; a resumed attempt takes it from earlier attempts (the argument).
    """

    def __init__(
        self,
        path: str,
        report: Callable[..., None],
        monotonic: Callable[[], float],
        from_zero: bool = False,
        *,
        metrics: Optional[MetricWatch] = None,
        series: Optional[MetricSeries] = None,
    ) -> None:
        """`metrics` and `series` follow each report."""
        takers = [taker for taker in (metrics, series) if taker is not None]
        self._takers: List[Callable[[int, object, object], None]] = [taker.add for taker in takers]
        self._tail = LineTail(path)
        self._report = report
        self._monotonic = monotonic
        self._announced: OrderedDict[str, int] = OrderedDict()  # checkpoint name -> step
        self._saved_step = -1
        self._pace = Pace()
        self._bad = 0
        self.phases: Set[str] = set()  # those that the training has named
        self._own_steps = False  # the file has had a step
        self.first_step: Optional[int] = None
        self.step: Optional[int] = None
        self.total: Optional[int] = None
        self.from_zero = from_zero

    @property
    def ignored(self) -> int:
        """Lines that were no report."""
        return self._bad + self._tail.dropped

    def drain(self) -> None:
        """The training has ended: read what it has written, and no more, because a process that it left behind may
        write forever."""
        until = self._tail.read_bytes + self._tail.unread_bytes()
        while self.poll() and self._tail.read_bytes < until:
            pass

    def poll(self) -> bool:
        """Read what is new; False when there was nothing."""
        changes: Dict[str, Any] = {}
        before = self._tail.read_bytes
        for line in self._tail.lines():
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                data = None
            reported = self._read(data) if isinstance(data, dict) else None
            if reported is None:
                self._bad += 1
            else:
                changes.update(reported)
                self._own_steps = self._own_steps or "step" in reported
        if changes:
            self._report(**changes)
        return self._tail.read_bytes > before

    def follow(self, take: Callable[[int, object, object], None]) -> None:
        """`take` gets the step, the metrics and the metrics that are not finite of each report."""
        self._takers.append(take)

    def add(self, data: Dict[str, Any]) -> None:
        """A report by another door (trainerstatus.py). It counts until the training reports steps itself."""
        changes = None if self._own_steps else self._read(data)
        if changes:
            self._report(**changes)

    def step_of(self, name: str) -> int:
        """The step of a checkpoint: the announced one, else the last integer in its name, else the last reported step.
        Without any reported step checkpoints are counted."""
        steps = (self._announced.get(name), step_in_name(name), self.step)
        return next((step for step in steps if step is not None), self._saved_step + 1)

    def announces(self, name: str) -> bool:
        """A report named the step of this checkpoint."""
        return name in self._announced

    def saved(self, step: Optional[int]) -> None:
        """The step of the newest checkpoint in the store; None = there is none."""
        self._saved_step = -1 if step is None else step

    @property
    def saved_step(self) -> Optional[int]:
        return self._saved_step if self._saved_step >= 0 else None

    def _read(self, data: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """New values for the beat; None when the line is no report."""
        if "checkpoint" in data:
            return self._read_checkpoint(data)
        if "phase" in data:
            return self._read_phase(data["phase"])
        step: Any = data.get("step")
        total: Any = data.get("total")
        if not is_count(step) or not (total is None or is_count(total)):
            return None
        changes: Dict[str, Any] = {"step": step}
        if self.step is None:
            self.first_step = step
            if self._saved_step < 0:
                self.from_zero = step == 0
            changes["from_zero"] = self.from_zero
        if self.step is not None and step > self.step:
            changes["phase"] = TRAINING  # a new step ends any other phase
        self.step = step
        if total is not None:
            self.total = changes["total"] = total
        if isinstance(data.get("metrics"), dict):
            changes["metrics"] = data["metrics"]
        for take in self._takers:
            take(step, data.get("metrics"), data.get("nonfinite"))
        self._pace.add(self._monotonic(), step)
        changes["steps_per_s"] = self._pace.steps_per_s()
        return changes

    def _read_phase(self, phase: Any) -> Optional[Dict[str, Any]]:
        if phase not in PHASES:
            return None
        self.phases.add(phase)
        return {"phase": phase}

    def _read_checkpoint(self, data: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        name: Any = data["checkpoint"]
        step: Any = data.get("step")
        if not isinstance(name, str) or not is_count(step):
            return None
        entry = os.path.basename(name.rstrip("/"))
        self._announced[entry] = step
        self._announced.move_to_end(entry)
        while len(self._announced) > REMEMBERED:
            self._announced.popitem(last=False)
        return {}


class Pace:
    """Steps per second over the last minute of reports."""

    def __init__(self) -> None:
        self._points: Deque[Tuple[float, int]] = deque(maxlen=600)

    def add(self, now: float, step: int) -> None:
        if self._points and step < self._points[-1][1]:
            self._points.clear()  # the training has gone back
        self._points.append((now, step))
        while len(self._points) > 2 and now - self._points[0][0] > PACE_WINDOW_S:
            self._points.popleft()

    def steps_per_s(self) -> Optional[float]:
        """None until two reports have some time between them. Lines that were read in one call are microseconds apart:
        that is the pace of our reading, not of the training."""
        if len(self._points) < 2:
            return None
        (first_at, first), (last_at, last) = self._points[0], self._points[-1]
        return (last - first) / (last_at - first_at) if last_at - first_at >= PACE_APART_S else None


def step_in_name(name: str) -> Optional[int]:
    """The last integer in a checkpoint's name, None when there is none or it is absurd."""
    numbers = re.findall(r"[0-9]+", name.rpartition(".")[0] or name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) <= 15 else None

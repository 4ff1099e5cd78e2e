"""The step of a training that reports none, guessed from the progress lines in its log: the last resort.

A guess is for people. It has its own field in the beat, so that nothing that decides (stalls, checkpoints, moves) can
take it for a reported step. It ends with the first reported one.

Known are the bars of tqdm (with those of Hugging Face and Lightning), Keras and rich, lines such as `step 120/500` and
`Epoch 3/10`, and both in one line. Lines of one kind, with one text before the number and one total, are one *track*.

- What is no training is left out by the words before its number (validation, download, map ...) and by its unit
  (bytes, scaled numbers).
- Of the others the track counts that has moved for the longest time. So a short bar over data never wins against the
  training, an inner bar wins against its outer one, and a validation without a description wins only where it takes
  longer than the training.
- A track that begins again at its start is the next epoch: its steps are added.
- A track that is over gives way to a larger one, and one that has not moved for half an hour to any.

Only the last TAIL_BYTES of the log are looked at, once in each step of the log watch, so a flood costs no more than a
few lines, and lines that a look has missed change the pace of a guess at most.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache
from typing import Deque, Dict, List, NamedTuple, Optional, Tuple

from supervisor.contract.heartbeat import MAX_COUNT, Guess

TAIL_BYTES, LINE_BYTES, LINES = 8192, 400, 60
TRACKS = 8
MOVES, MOVED_S = 2, 4.0  # before a track counts
GAP_S = 30.0  # a longer time between two moves counts as this
AHEAD = 1.25  # so much longer must another track have moved
OVER_S, STILL_S = 120.0, 1800.0
PACE_S, PACE_POINTS = 60.0, 64
EPOCH_WEIGHT = 0.05  # a line about epochs alone is coarse
# Compiled when the first line comes: a command of a second needs none of them.
_compiled = lru_cache(None)(re.compile)
_COLOR = rb"\x1b\[[0-9;?]{0,32}[A-Za-z]"
_LINE_END = rb"[\r\n\x08]+"
_OTHER_WORK = (
    rb"valid|\bval\b|\bval_|eval|\btest|predict|sanity|infer|generat|sampl|download|upload|fetch|load|\bmap\b|filter|"
    rb"tokeni|shard|\bfiles?\b|extract|unpack|read|cach|export|\bsav|warm|compil|convert|quanti|install|collect|"
    rb"prepar|preproc|packing|group|writ|copy|scann|index|retry|attempt|worker|rank\b|request"
)
_COUNT = rb"([0-9]{1,15})"
_OF = _COUNT + rb" {0,8}/ {0,8}" + _COUNT
_BAR = rb" {0,16}" + _OF + rb" \[([^\]]{0,160})"  # behind the bar itself
_OPEN_BAR = _COUNT + rb"it \[[0-9:]{2,12}, "
_KERAS = rb" {0,16}" + _OF + rb" (?:\xe2\x94\x81|\[[=>.])"
_RICH = rb"(?:\xe2\x94\x81|\xe2\x95\xb8|\xe2\x95\xba) {0,8}" + _OF + rb" "
_NUMBER = rb"[\"']? ?[:=#]? ?\[? {0,8}([0-9]{1,15})(?![0-9]|\.[0-9])(?: {0,8}(?:/|of) {0,8}([0-9]{1,15}))?"
_EPOCH = rb"\bepoch" + _NUMBER
_STEP = rb"\b(?:global[_ ]?step|step|iteration|iter|update|batch)s?\b" + _NUMBER
_INNER = rb"[^0-9]{0,12}[\[( ] {0,8}" + _OF  # `Epoch: [3][ 450/1000]`, `Epoch 3 [450/1000 (45%)]`
_LETTERS = rb"[^a-z]+"


class Line(NamedTuple):
    """What one line says. `kind` and `label` name its track; `done` None: it is about epochs alone."""

    kind: str
    label: bytes
    done: Optional[int]
    total: Optional[int]
    epoch: Optional[int] = None
    epochs: Optional[int] = None


class _Track:
    """One progress. `moved_s`: for how long it has moved, as far as the looks show it."""

    def __init__(self, now: float, weight: float) -> None:
        self.weight = weight
        self.count, self.base = -1, 0  # -1: no line yet
        self.total: Optional[int] = None
        self.epochs: Optional[int] = None
        self.moves, self.moved_s, self.moved_at = 0, 0.0, now
        self._points: Deque[Tuple[float, int]] = deque(maxlen=PACE_POINTS)

    def take(self, count: int, base: Optional[int], now: float) -> None:
        """`base`: steps of the epochs before, None = unknown: it follows from the track beginning again."""
        if base is None:
            base = self.base
            if count < self.count and count <= self.count // 2:  # ranks that write in turn differ by less
                base += max(self.count, self.total or 0)
        if base + count <= self.step and base >= self.base:
            return  # nothing new: an earlier epoch alone is a training that begins again
        self.base = base
        if self.count >= 0:
            self.moves += 1
            self.moved_s += min(GAP_S, now - self.moved_at)
        self.count, self.moved_at = count, now
        self._points.append((now, self.step))

    @property
    def step(self) -> int:
        return self.base + self.count

    @property
    def whole(self) -> Optional[int]:
        """The total of all epochs; None = unknown."""
        if self.total is None:
            return None
        if self.epochs is not None:
            return self.total * self.epochs
        return self.total if self.base == 0 else None

    @property
    def score(self) -> float:
        return self.moved_s * self.weight if self.moves >= MOVES and self.moved_s >= MOVED_S else 0.0

    @property
    def is_over(self) -> bool:
        whole = self.whole
        return whole is not None and self.step >= whole

    def pace(self, now: float) -> Optional[float]:
        """Steps a second over the last minute, or over the last two moves; None where it has stopped."""
        while len(self._points) > 2 and now - self._points[0][0] > PACE_S:
            self._points.popleft()
        if len(self._points) < 2:
            return None
        (first_at, first), (last_at, last) = self._points[0], self._points[-1]
        if last_at - first_at < 1.0 or last <= first or now - last_at > PACE_S + 2 * (last_at - first_at):
            return None
        return round((last - first) / (last_at - first_at), 4)


class StepGuess:
    """`feed` and `gap` follow the log, `look` judges what came since the last look; `now` in seconds of any clock."""

    def __init__(self) -> None:
        self._tail, self._cut, self._new = b"", False, False
        self._tracks: Dict[Tuple[str, bytes, Optional[int]], _Track] = {}
        self._current: Optional[_Track] = None
        self._epoch: Tuple[Optional[int], Optional[int]] = (None, None)  # of the last line that named one
        self._from_zero = False

    def feed(self, plain: bytes) -> None:
        joined = self._tail + plain[-TAIL_BYTES:]
        self._cut = self._cut or len(joined) > TAIL_BYTES or len(plain) > TAIL_BYTES
        self._tail, self._new = joined[-TAIL_BYTES:], True

    def gap(self) -> None:
        """The next piece begins somewhere later, perhaps within a line."""
        self._tail, self._cut = b"", True

    def look(self, now: float) -> Optional[Guess]:
        """The guess as of now; None = no line has shown a training yet."""
        if self._new:
            self._new = False
            for line in self._lines():
                parsed = parse(line)
                if parsed is not None:
                    self._take(parsed, now)
        self._current = self._choose(now)
        current = self._current
        if current is None or not 0 <= current.step <= MAX_COUNT:
            return None
        whole = current.whole
        fits = whole is not None and current.step <= whole <= MAX_COUNT
        return Guess(current.step, whole if fits else None, current.pace(now))

    def _lines(self) -> List[bytes]:
        """The last whole lines; a bar that is still being written is a line too, once its end is there."""
        *lines, self._tail = _compiled(_LINE_END).split(self._tail)
        if self._cut and lines:
            lines = lines[1:]
            self._cut = False
        return [_compiled(_COLOR).sub(b"", line[:LINE_BYTES]) for line in lines[-LINES:]]

    def _take(self, line: Line, now: float) -> None:
        if line.epoch is not None:
            self._epoch = line.epoch, line.epochs
            self._from_zero = self._from_zero or line.epoch == 0 or (line.kind == "bar" and line.epochs is None)
        elif line.kind == "keras":
            line = line._replace(epoch=self._epoch[0], epochs=self._epoch[1])
        if line.done is None:
            line = line._replace(done=line.epoch, total=line.epochs, epoch=None, epochs=None)
        if line.done is None or (line.total is not None and line.done > line.total):
            return
        key = line.kind, line.label, line.total
        track = self._tracks.get(key)
        if track is None:
            self._forget()
            track = self._tracks[key] = _Track(now, EPOCH_WEIGHT if line.kind == "epoch" else 1.0)
        track.total, track.epochs = line.total, line.epochs or track.epochs
        base = None
        if line.epoch is not None and line.total is not None:
            base = max(0, line.epoch - (0 if self._from_zero else 1)) * line.total
        track.take(line.done, base, now)

    def _forget(self) -> None:
        """Make space for one more track."""
        while len(self._tracks) >= TRACKS:
            others = [key for key, track in self._tracks.items() if track is not self._current]
            del self._tracks[min(others, key=lambda key: (self._tracks[key].score, self._tracks[key].moved_at))]

    def _choose(self, now: float) -> Optional[_Track]:
        best = max(self._tracks.values(), key=lambda track: track.score, default=None)
        current = self._current
        if best is None or best.score == 0.0:
            return current
        if current is None or best.score > AHEAD * current.score:
            return best
        still_s = now - current.moved_at
        moving = [track for track in self._tracks.values() if track.score and now - track.moved_at < GAP_S]
        if still_s >= OVER_S and current.is_over:
            moving = [track for track in moving if (track.whole or 0) > (current.whole or 0)]
        elif still_s < STILL_S:
            return current
        return max(moving, key=lambda track: track.score, default=current)


def parse(line: bytes) -> Optional[Line]:
    """What this line, without colors, says about the progress of a training; None = nothing."""
    lower = line.lower()
    return _bar(lower) or _keras(lower) or _words(lower)


def _bar(line: bytes) -> Optional[Line]:
    at = line.find(b"%|")
    if at > 0:
        behind = line.find(b"|", at + 2)
        match = _compiled(_BAR).match(line, behind + 1) if behind > 0 else None
        label = line[:at].rstrip(b"0123456789 ")
    else:
        match = _compiled(_OPEN_BAR).search(line)
        label = line[: match.start()].rstrip() if match else b""
    if match is None or _compiled(_OTHER_WORK).search(label):
        return None
    if at > 0 and b"b/s" in match.group(3):
        return None  # bytes
    total = int(match.group(2)) if at > 0 else None
    epoch = _compiled(_EPOCH).search(label)
    return _line("bar", label, int(match.group(1)), total or None, epoch)


def _keras(line: bytes) -> Optional[Line]:
    match = _compiled(_KERAS).match(line)
    if match is not None:
        return _line("keras", b"", int(match.group(1)), int(match.group(2)) or None, None)
    match = _compiled(_RICH).search(line)
    if match is None:
        return None
    label = line[: match.start()]
    if _compiled(_OTHER_WORK).search(label):
        return None
    return _line("rich", label, int(match.group(1)), int(match.group(2)) or None, _compiled(_EPOCH).search(label))


def _words(line: bytes) -> Optional[Line]:
    epoch, step = _compiled(_EPOCH).search(line), _compiled(_STEP).search(line)
    match = epoch if epoch is not None and (step is None or epoch.start() < step.start()) else step
    if match is None or _compiled(_OTHER_WORK).search(line[: match.start()]):
        return None
    label = line[: match.start()][-40:]
    if step is not None:
        total = step.group(2)
        of_epoch = epoch if total is not None else None  # a step without a total counts through all epochs
        return _line("step", label, int(step.group(1)), int(total) if total else None, of_epoch)
    assert epoch is not None
    inner = _compiled(_INNER).match(line, epoch.end())
    if inner is not None:
        return _line("step", label, int(inner.group(1)), int(inner.group(2)) or None, epoch)
    return _line("epoch", label, None, None, epoch)


def _line(
    kind: str, label: bytes, count: Optional[int], total: Optional[int], epoch: Optional[re.Match[bytes]]
) -> Line:
    number = int(epoch.group(1)) if epoch is not None else None
    epochs = int(epoch.group(2)) if epoch is not None and epoch.group(2) else None
    return Line(kind, _compiled(_LETTERS).sub(b"", label)[-40:], count, total, number, epochs)

"""Metrics that are not finite, or that jump: the first one of each is noted, with its step and what was before it.

A metric is NaN or infinite where the training says so: the name is in the report's `nonfinite`, or the value itself is
(a line that was written without spot_progress). Every metric is noted then. A jump is looked for only in the metrics
that the run's spec watches: a value whose magnitude is more than FACTOR times the median magnitude of the last POINTS
finite values, and more than twice the largest of them, so that a metric which is noisy by its nature does not count.
The first LEAST values of an attempt are not judged: a training that warms up moves fast.

`nan: stop` holds checkpoints back: from the first value that is not finite until a finite one at that step or later, no
checkpoint of that step or a later one may be used. A number in a name may count epochs, so a file whose step was not
announced is also judged by its time. After LASTING reports in a row that are not finite, over LASTING_S or more, the
metric stays so for this attempt: then the supervisor ends the run. A step that mixed precision skips ends nothing.

A loss, or a watched metric, that has exactly one value in SAME reports over SAME_S is flat (or zero) until it changes.
Words of CONSTANT in a name say that this is as it should be: an evaluation's value is repeated until the next one, a
scale or a rate may never change.

Nothing here ends a command. `Reports` compares what it reported before a drill with its first report after the restore.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.watch.rhythm import median
from supervisor.contract.drill import Round
from supervisor.contract.heartbeat import is_metric_name, is_number
from supervisor.contract.signs import FLAT, INF, INF_STAYS, NAN, NAN_STAYS, SPIKE, ZERO, OddMetric

POINTS, LEAST, FACTOR, ABOVE_LARGEST = 50, 20, 10.0, 2.0
LASTING, LASTING_S = 5, 30.0
GONE, GONE_S = 100, 600.0  # a metric that so many reports in so long a time do not have is reported no more
SAME, SAME_S = 100, 600.0
CONSTANT = ("val", "eval", "test", "dev", "best", "scale", "weight", "coef", "lr", "rate", "epoch", "step", "count")
READ_S = 1.0  # a report is read this much later at most
NAMES = 64  # metrics that are followed, beside the watched ones: a training may make new names all the time
Watched = Mapping[str, Mapping[str, str]]
STOP = "stop"


class _Hold(NamedTuple):
    """Checkpoints from `odd.step` on are held back. `until`: those of this step and later ones are free again; None =
    none is. `seen_at`, `finite_at`: wall times of the first value that was not finite, and of the first one after it
    that was. `row`: so many reports in a row were not finite, since `row_up_s`. `without`: so many reports since its
    last value, at `last_up_s`, did not have the metric."""

    odd: OddMetric
    seen_at: float
    row: int
    row_up_s: float
    last_up_s: float
    without: int = 0
    until: Optional[int] = None
    finite_at: Optional[float] = None
    lasts: bool = False

    def holds(self, step: int, changed_at: Optional[float]) -> bool:
        if changed_at is not None and self.finite_at is not None and changed_at > self.finite_at:
            return False  # its number may count epochs, and then be one of these steps
        if self.until is not None:
            return self.odd.step <= step < self.until
        return step >= self.odd.step or (changed_at is not None and changed_at > self.seen_at - READ_S)


class MetricWatch:
    """Used by one thread; `signs` and `held` by any. `watched`: name -> what the spec wants (nan, spike). `up_s`:
    seconds since the agent's start; `wall`: of the clock that files have. A value that is odd again after it was well
    is the same one: only the first step is kept."""

    def __init__(
        self,
        watched: Watched,
        up_s: Callable[[], float],
        masker: Masker = NOTHING,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._watched, self._up_s, self._masker, self._wall = watched, up_s, masker, wall
        self._stops = frozenset(name for name, wants in watched.items() if wants.get("nan") == STOP)
        self._holds: Mapping[str, _Hold] = {}  # by name; never changed, only replaced
        self._read: Optional[Tuple[int, float]] = None  # (step, wall time) of the newest report
        self._finite: Dict[str, Optional[Tuple[int, float]]] = {}  # name -> (step, the last finite value)
        self._points: Dict[str, Deque[float]] = {}  # of the metrics whose jumps are watched
        self._odd: Dict[Tuple[str, str], OddMetric] = {}  # by (name, NAN or SPIKE)
        self._same: Dict[str, Tuple[OddMetric, int]] = {}  # name -> (its value since when, reports)
        self._same_names: Dict[str, bool] = {}  # whether it should change
        self._signs: Dict[str, Any] = {}
        self.has_any = False

    def add(self, step: int, metrics: object, nonfinite: object) -> None:
        """One report. Both come from the training: anything may be in them."""
        before = dict(self._odd)
        names = set()
        for name, value in _values(metrics, nonfinite):
            self.has_any = True
            names.add(name)
            if name not in self._finite and len(self._finite) >= NAMES and name not in self._watched:
                continue
            if math.isfinite(value):
                self._is_finite(name, step, value)
            else:
                self._is_not_finite(name, step, value)
        for name in self._holds.keys() - names:
            self._miss(name, step)
        self._read = step, self._wall()
        if self._odd != before:
            self._signs = self._made()

    def held(self, step: int, changed_at: Optional[float] = None) -> Optional[str]:
        """Why a checkpoint of this step may not be used; "" = it may; None = its reports are not read yet.
        `changed_at`: wall time of its last change, where its step is only a number in its name."""
        read_step, read_at = self._read or (-1, 0.0)  # before the holds: `add` writes it after them
        for name, hold in self._holds.items():
            if hold.holds(step, changed_at):
                word = "infinite" if hold.odd.kind == INF else "NaN"
                return "%s is %s since step %d" % (name, word, hold.odd.step)
        if not self._stops:
            return ""
        return "" if read_step >= step and (changed_at is None or read_at > changed_at) else None

    def signs(self) -> Mapping[str, Any]:
        """Fields of contract/signs.py."""
        return self._signs

    def _is_not_finite(self, name: str, step: int, value: float) -> None:
        self._same.pop(name, None)
        self._odd.pop((name, FLAT), None)
        odd = self._odd.get((name, NAN))
        before_step, before = self._finite.setdefault(name, None) or (None, None)
        new = OddMetric(name, NAN if math.isnan(value) else INF, step, self._up_s(), before, before_step)
        if odd is None:
            self._odd[name, NAN] = new
        elif odd.back_step is not None:
            self._odd[name, NAN] = odd._replace(back_step=None)
        if name in self._stops:
            self._hold(new)

    def _hold(self, new: OddMetric) -> None:
        hold, up_s = self._holds.get(new.name), new.up_s
        if hold is None or not (hold.lasts or (hold.until is None and hold.odd.step <= new.step)):
            hold = _Hold(new, self._wall(), 0, up_s, up_s)
        elif hold.finite_at is not None:  # the training went back, and it is not finite again
            hold = hold._replace(seen_at=self._wall(), finite_at=None)
        row, row_up_s = (hold.row + 1, hold.row_up_s) if hold.row else (1, up_s)
        lasts = hold.lasts or (row >= LASTING and up_s - row_up_s >= LASTING_S)
        self._holds = {
            **self._holds,
            new.name: hold._replace(row=row, row_up_s=row_up_s, last_up_s=up_s, without=0, lasts=lasts),
        }
        if lasts and (new.name, NAN_STAYS) not in self._odd:
            kind = NAN_STAYS if hold.odd.kind == NAN else INF_STAYS
            self._odd[new.name, NAN_STAYS] = hold.odd._replace(kind=kind)

    def _miss(self, name: str, step: int) -> None:
        """A report without this metric. One that is never reported again must not hold checkpoints for ever."""
        hold = self._holds[name]._replace(without=self._holds[name].without + 1)
        self._holds = {**self._holds, name: hold}
        if hold.without >= GONE and self._up_s() - hold.last_up_s >= GONE_S:
            self._release(name, step)

    def _release(self, name: str, step: int) -> None:
        hold = self._holds.get(name)
        if hold is not None and not hold.lasts and hold.until is None:
            until = step if step >= hold.odd.step else None  # else the training went back, and may repeat that step
            finite_at = self._wall() if hold.finite_at is None else hold.finite_at
            self._holds = {**self._holds, name: hold._replace(row=0, until=until, finite_at=finite_at)}

    def _is_finite(self, name: str, step: int, value: float) -> None:
        odd = self._odd.get((name, NAN))
        if odd is not None and odd.back_step is None:
            self._odd[name, NAN] = odd._replace(back_step=step)
        self._finite[name] = (step, value)
        self._release(name, step)
        if name not in self._same_names:
            parts = re.split("[^a-z]+", name.lower())
            is_constant = any(part.startswith(CONSTANT) for part in parts)
            self._same_names[name] = not is_constant and (name in self._watched or "loss" in name.lower())
        if self._same_names[name]:
            self._follow_same(name, step, value)
        if SPIKE not in self._watched.get(name, {}):
            return
        points = self._points.setdefault(name, deque(maxlen=POINTS))
        if (name, SPIKE) not in self._odd and jumps(value, points):
            usual = median(points)
            self._odd[name, SPIKE] = OddMetric(name, SPIKE, step, self._up_s(), before=usual, value=value)
        points.append(abs(value))

    def _follow_same(self, name: str, step: int, value: float) -> None:
        same, reports = self._same.get(name) or (None, 0)
        if same is None or same.value != value or step < same.step:
            self._odd.pop((name, FLAT), None)
            kind = ZERO if value == 0 else FLAT
            self._same[name] = OddMetric(name, kind, step, self._up_s(), value=value), 1
            return
        self._same[name] = same, reports + 1
        if reports + 1 >= SAME and self._up_s() - same.up_s >= SAME_S:
            self._odd[name, FLAT] = same

    def _made(self) -> Dict[str, Any]:
        """What ends the run first, then the watched metrics, then by time; what does not change last."""
        odds = sorted(
            self._odd.values(), key=lambda odd: (_LAST.get(odd.kind, 1), odd.name not in self._watched, odd.up_s)
        )
        masked = [odd._replace(name=self._masker.text(odd.name)) for odd in odds]
        nonfinite = dict.fromkeys(odd.name for odd in masked if odd.kind in (NAN, INF))
        return {"metrics": tuple(masked), "nonfinite": tuple(nonfinite)}


_LAST = {NAN_STAYS: 0, INF_STAYS: 0, FLAT: 2, ZERO: 2}


def jumps(value: float, points: Deque[float]) -> bool:
    """`points`: magnitudes. False where there are fewer than LEAST."""
    usual = median(points) if len(points) >= LEAST else 0.0
    return usual > 0 and abs(value) > max(FACTOR * usual, ABOVE_LARGEST * max(points))


def _values(metrics: object, nonfinite: object) -> Iterator[Tuple[str, float]]:
    reported: List[Tuple[Any, Any]] = list(metrics.items()) if isinstance(metrics, dict) else []
    if isinstance(nonfinite, dict):
        reported += [(name, _WORDS.get(str(word), math.nan)) for name, word in nonfinite.items()]
    elif isinstance(nonfinite, list):
        reported += [(name, math.nan) for name in nonfinite]
    for name, value in reported:
        number = _number(value)
        if number is not None and name and is_metric_name(name):
            yield name, number


_WORDS = {"inf": math.inf, "-inf": -math.inf}  # any other word is NaN


def _number(value: object) -> Optional[float]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number without a bound
        return math.inf


# --- before and after a restart -------------------------------------------------------------------------------------

POSITION = "data_position"  # the metric that says how many samples are used up, over all epochs


class First(NamedTuple):
    step: int
    metrics: object
    at: float


class Reports:
    """The last reports of the training, each with the number of its start: what lies between two starts is no usual
    distance. `first`: the first one since the command was started again."""

    def __init__(self) -> None:
        self._last: Deque[Tuple[int, object, int]] = deque(maxlen=POINTS)
        self._start = 0
        self._later: Deque[Tuple[int, object]] = deque(maxlen=POINTS)  # that came with the first one, or soon after it
        self._waits = False
        self.first: Optional[First] = None

    def add(self, step: int, metrics: object, nonfinite: object) -> None:
        if self._waits:
            if self.first is None:
                self.first = First(step, metrics, time.monotonic())
            else:
                self._later.append((step, metrics))
            return
        self._last.append((step, metrics, self._start))

    def wait(self) -> None:
        """The command is started again: what comes next is compared with what is here."""
        self._waits, self.first = True, None
        self._later.clear()

    def go_on(self) -> None:
        """What was done over again counts no more."""
        first, self._waits = self.first, False
        if first is not None:
            self._start += 1
            kept = [report for report in self._last if report[0] < first.step]
            since = [(first.step, first.metrics), *self._later]
            self._last = deque([*kept, *((*each, self._start) for each in since)], maxlen=POINTS)
            self.first = None

    @property
    def seen(self) -> bool:
        """Enough for the usual distance between two reports."""
        return len(self._last) > 1

    @property
    def stride(self) -> int:
        """The farthest usual distance. Distances that differ are those of a clock (Transformers reports every 5 s): the
        next report may then come some steps later than any one before, as a restored command begins slowly or fast."""
        reports = list(self._last)
        usual = [b[0] - a[0] for a, b in zip(reports, reports[1:]) if b[0] > a[0] and a[2] == b[2]]
        if not usual:
            return 1
        return usual[0] if len(set(usual)) == 1 else 2 * max(usual)

    def compared(self, restored: Optional[int]) -> Round:
        """A round with what these reports and the first one after the restore show."""
        first = self.first
        assert first is not None
        losses = [loss for loss in (_loss(metrics) for _, metrics, _ in self._last) if loss is not None]
        after = _loss(first.metrics)
        has_jumped = after is not None and jumps(after, deque(map(abs, losses)))
        return Round(
            moment="",
            first=first.step,
            stride=self.stride,
            loss_before=losses[-1] if losses else None,
            loss_after=after,
            loss_jumped=has_jumped,
            data_off=self._data_off(first),
        )

    def _data_off(self, first: First) -> Optional[float]:
        """How far its data position is from the one that follows from those before; None where that cannot be said."""
        points = [(step, _metric(metrics, POSITION), start) for step, metrics, start in self._last]
        positions = [(step, position, start) for step, position, start in points if position is not None]
        position = _metric(first.metrics, POSITION)
        if position is None or len(positions) < 2:
            return None
        same = [before for step, before, _ in positions if step == first.step]
        if same:
            return position - same[-1]
        pairs = [(a, b) for a, b in zip(positions, positions[1:]) if b[0] > a[0] and a[2] == b[2]]
        rates = {(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs}
        if len(rates) != 1:
            return None
        last_step, last, _ = positions[-1]
        return position - (last + (first.step - last_step) * rates.pop())


def _metric(metrics: object, name: str) -> Optional[float]:
    value: Any = metrics.get(name) if isinstance(metrics, dict) else None
    return float(value) if is_number(value) else None


def _loss(metrics: object) -> Optional[float]:
    names = [name for name in metrics if isinstance(name, str) and "loss" in name] if isinstance(metrics, dict) else []
    return _metric(metrics, "loss" if "loss" in names else next(iter(names), "loss"))

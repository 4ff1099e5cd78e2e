"""Why a run is slow: figures of several minutes, from what the agent reads for its beats anyway.

Each reading of the machine is a sample; ten times in a window the command's processes are read too (`Work`). A window
counts the time in which the command trains, and says nothing before it is full: `slow_s` (10 min), and one and a half
of it for the pace of the steps. Left out are the warm-up (until a while after the first step; where no steps come, as
long as a compile may take) and every announced phase; a pause of half a window empties the windows. A figure that
could not be read in most samples is absent, which is not zero.

The pace is compared with the run's own: the median of what it was before the window. What is slow does not become
usual, so the comparison does not forget.

`signs` is what a beat carries: nothing while the run is well. The conditions are those of the supervisor's rules
(lifecycle/diagnosis/rules/living.py), which judge the figures again.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.rhythm import Pace
from supervisor.contract.beat_telemetry import Gpus, Telemetry
from supervisor.contract.heartbeat import TRAINING
from supervisor.contract.signs import (
    DOWNLOAD,
    HALVED,
    LOADER,
    MOUNT,
    SHARED,
    SLOW,
    SLOW_MOUNTS,
    SMALL_FILES,
    THREADS,
    THROTTLED,
    THROTTLING,
    UNDERFED,
    Slow,
)

SAMPLES, LOOKS = 60, 10  # at most, in a window
STEPS_WINDOW = 1.5  # windows
WARM_SHARE = 0.2  # of a window after the first step
MOST, OFTEN = 0.8, 0.5  # of the samples of a window: have a figure; have a clock event reason
USED_MIB = 400.0  # a card with less memory in use does not compute
WAITS_PCT = 70.0  # of a core: a process that uses less waits
DOWNLOAD_S = 120.0
_READ_PER_S = "read_bytes_per_s"


class Wanted(NamedTuple):
    """What a look reads besides: it costs more, so only where a figure needs it."""

    runnable: bool = False
    downloads: bool = False
    mount: bool = False


class Work(NamedTuple):
    """One reading of the command's processes, by pid where it is a mapping. None = unread."""

    at: float
    cpu_s: Mapping[int, float]
    reads: Mapping[int, Tuple[float, float]]  # (calls, bytes) so far
    workers: Sequence[int] = ()  # that load data
    main: Optional[int] = None  # the process that started them
    periods: Optional[Tuple[float, float]] = None  # of the CPU's quota, and those in which it was used up
    others_bytes: Optional[float] = None  # of one card
    runnable: Optional[float] = None  # threads
    downloads: Optional[Mapping[str, float]] = None  # unfinished file -> bytes
    mount: str = ""  # under the data, as a kind of file system


class _Sample(NamedTuple):
    at: float  # seconds of training
    figures: Dict[str, float]
    reasons: Optional[int]
    inodes: Dict[str, float]  # in use, by disk


class SlowWatch:
    """`add` each reading, by one thread; the rest by any. `look` returns the last finished reading of the processes,
    and begins the next one. `host_io`: the io pressure of the machine, where our own group's is not counted."""

    def __init__(
        self,
        slow_s: float,
        beat_state: BeatState,
        *,
        look: Callable[[Wanted], Optional[Work]],
        host_io: Callable[[], Optional[float]],
        monotonic: Callable[[], float],
    ) -> None:
        self._window_s, self._beat_state, self._monotonic = slow_s, beat_state, monotonic
        self._look, self._host_io = look, host_io
        self._began_at: Optional[float] = None  # of the training
        self._step_at: Optional[float] = None  # of its first step
        self._moved: Tuple[Optional[int], float] = (None, 0.0)  # the last step, and when it came
        self._added_at = self._looked_at = self._resumed_at = float("-inf")
        self._is_paused = True
        self._trained_s = 0.0
        self._samples: Deque[_Sample] = deque()
        self._pace = Pace(STEPS_WINDOW * slow_s)
        self._work: Optional[Work] = None
        self._rows: Deque[Tuple[float, float, Dict[str, float]]] = deque()  # (trained, seconds, what was done)
        self._downloads: Dict[str, Tuple[float, float]] = {}  # name -> (bytes, since when)
        self._mount = ""
        self._figures: Dict[str, float] = {}
        self._slow: Tuple[Slow, ...] = ()

    def signs(self) -> Mapping[str, Any]:
        """Fields of contract/signs.py."""
        return {"slow": self._slow} if self._slow and self._is_fresh() else {}

    def part(self) -> Dict[str, Any]:
        """For the evidence: the figures of full windows, notable or not."""
        if not self._is_fresh():
            return {}
        return {**self._figures, **({"mount.data": self._mount} if self._mount else {})}

    def _is_fresh(self) -> bool:
        return self._monotonic() - self._added_at <= self._window_s / 2

    def add(self, telemetry: Telemetry) -> None:
        now, beat = self._monotonic(), self._beat_state.now
        if beat.phase != TRAINING:
            self._is_paused = True
            return
        if now - self._added_at < 0.9 * self._window_s / SAMPLES:
            return
        self._follow(now, beat.step)
        if self._is_warm(now):
            self._sample(now, beat.step, telemetry)
        self._added_at = now
        if now - self._looked_at >= 0.95 * self._window_s / LOOKS:
            self._looked_at = now
            self._follow_work(self._look(self._wanted(now)))
            self._figures = self._window_figures()
            self._slow = slow_words({**self._figures, **self._still(now)}, self._mount)

    def _follow(self, now: float, step: Optional[int]) -> None:
        """The steps, and the end of a pause. The first training of an attempt ends a pause too."""
        self._began_at = now if self._began_at is None else self._began_at
        if step is not None and step != self._moved[0]:
            self._step_at = now if self._step_at is None else self._step_at
            self._moved = (step, now)
        if now - self._added_at > self._window_s / 2:
            self._samples.clear()
            self._rows.clear()
            self._pace.clear()
        elif not self._is_paused:
            self._trained_s += now - self._added_at
            return
        self._is_paused, self._resumed_at, self._work = False, now, None

    def _is_warm(self, now: float) -> bool:
        if self._step_at is not None:
            return now - self._step_at >= WARM_SHARE * self._window_s
        return self._began_at is not None and now - self._began_at >= STEPS_WINDOW * self._window_s

    def _sample(self, now: float, step: Optional[int], telemetry: Telemetry) -> None:
        figures, reasons = _of_cards(telemetry.gpus)
        group = telemetry.cgroup
        pressure = group.io_pressure_pct if group is not None else None
        figures["window.io_pressure"] = self._host_io() if pressure is None else pressure
        figures["window.cpu_quota"] = group.cpu_quota if group is not None else None
        read = {name: value for name, value in figures.items() if value is not None}
        self._samples.append(_Sample(self._trained_s, read, reasons, _inodes(telemetry)))
        while self._samples[0].at < self._trained_s - STEPS_WINDOW * self._window_s:
            self._samples.popleft()
        if step is not None:
            self._pace.add(self._trained_s, step)

    def _window_figures(self) -> Dict[str, float]:
        figures = {**_means(self._within(1.0)), **self._of_processes()}
        reasons = _often(self._within(STEPS_WINDOW))
        if reasons is not None:
            figures["window.clock_reasons"] = float(reasons)
        share = self._pace.share(self._trained_s)
        if share is not None:
            figures["window.steps_share"] = share
        return figures

    def _within(self, windows: float) -> List[_Sample]:
        """The samples of the last windows; [] until these are full."""
        since = self._trained_s - windows * self._window_s
        is_full = bool(self._samples) and self._samples[0].at <= since + self._window_s / SAMPLES
        return [sample for sample in self._samples if sample.at >= since] if is_full else []

    # --- processes ----------------------------------------------------------------------------------------------------

    def _wanted(self, now: float) -> Wanted:
        figures, last_at = self._figures, self._began_at if self._moved[0] is None else self._moved[1]
        waits = figures.get("window.gpu_util", 100.0) < 50
        return Wanted(
            runnable=figures.get("window.throttled_share", 0.0) > 0.2,
            downloads=last_at is not None and now - last_at >= DOWNLOAD_S / 2,
            mount=waits and figures.get("window.io_pressure", 0.0) > 40,
        )

    def _follow_work(self, work: Optional[Work]) -> None:
        """Keep what the processes did since the reading before."""
        if work is None:
            return
        before = self._downloads
        self._downloads = {
            name: before[name] if name in before and before[name][0] == size else (size, work.at)
            for name, size in (work.downloads or {}).items()
        }
        self._mount = work.mount or self._mount
        if work.at < self._resumed_at or not self._samples:
            return
        last, self._work = self._work, work
        if last is None or work.at <= last.at:
            return
        self._rows.append((self._trained_s, work.at - last.at, _done(last, work)))
        while self._rows[0][0] <= self._trained_s - self._window_s:
            self._rows.popleft()

    def _still(self, now: float) -> Dict[str, float]:
        """How long the longest of the unfinished downloads stands still."""
        since = [since for _, since in self._downloads.values()]
        return {"window.download_still_s": float(round(now - min(since)))} if since else {}

    def _of_processes(self) -> Dict[str, float]:
        seconds = sum(row_s for _, row_s, _ in self._rows)
        if seconds < MOST * self._window_s:
            return {}
        figures: Dict[str, float] = {}
        for name in {name for _, _, row in self._rows for name in row}:
            parts = [(row_s, row[name]) for _, row_s, row in self._rows if name in row]
            read_s = sum(row_s for row_s, _ in parts)
            if read_s >= MOST * seconds or name == "window.threads":  # these are read only where they may be too many
                figures[name] = _rounded(sum(row_s * value for row_s, value in parts) / read_s)
        read, calls = figures.pop(_READ_PER_S, None), figures.get("window.reads_per_s")
        if read is not None and calls:
            figures["window.read_bytes"] = _rounded(read / calls)
        return figures


def slow_words(figures: Mapping[str, float], mount: str = "") -> Tuple[Slow, ...]:
    """What these figures of full windows (name of the item -> value) say: nothing while all is well."""

    def value(name: str) -> float:
        return figures.get("window." + name, float("nan"))  # no comparison with it holds

    is_throttled = bool(int(figures.get("window.clock_reasons", 0.0)) & THROTTLING)
    lacks_work = value("sm_clock_share") < 0.5 or value("power_share") < 0.4
    are_small = value("read_bytes") < 16_384 and value("reads_per_s") > 1000
    is_slow_mount = any(word in mount for word in SLOW_MOUNTS)
    holds = {
        THROTTLED: is_throttled and value("steps_share") < 0.75,
        UNDERFED: value("gpu_util") > 95 and lacks_work and not is_throttled,
        MOUNT: is_slow_mount and value("io_pressure") > 40 and value("gpu_util") < 50,
        LOADER: value("loader_cpu") > 90 and 9 < value("gpu_util") < 70,
        SMALL_FILES: value("new_inodes_per_s") > 100 or are_small,
        THREADS: value("throttled_share") > 0.2
        and value("gpu_util") < 20
        and value("threads") > 2 * value("cpu_quota"),
        SHARED: value("card_others_bytes") > 2**30 and value("steps_share") < 0.9,
        DOWNLOAD: value("download_still_s") > DOWNLOAD_S,
    }
    # Where nothing else explains it.
    holds[HALVED] = value("steps_share") < 0.5 and not (holds[THROTTLED] or holds[SHARED])
    return tuple(
        Slow(word, tuple(figures.get(name) for name in names), mount if word == MOUNT else "")
        for word, names in SLOW.items()
        if holds[word]
    )


# --- one reading ------------------------------------------------------------------------------------------------------


def _of_cards(gpus: Optional[Gpus]) -> Tuple[Dict[str, Optional[float]], Optional[int]]:
    """(means over the cards that compute, reasons of any of them). Where none has memory in use, over all cards."""
    if gpus is None or not gpus.util_pct:
        return {}, None
    used = gpus.memory_used_mib or (None,) * len(gpus.util_pct)
    cards = [card for card, mib in enumerate(used) if mib is None or mib > USED_MIB] or list(range(len(used)))

    def column(name: str) -> List[Optional[float]]:
        values = getattr(gpus, name)
        return [values[card] if card < len(values) else None for card in cards]

    temperatures = [value for value in column("temperature_c") if value is not None]
    reasons = [int(value) for value in column("clock_reasons") if value is not None]
    figures = {
        "window.gpu_util": _mean(column("util_pct")),
        "window.sm_clock_share": _mean(map(_share, column("sm_clock_mhz"), column("sm_clock_max_mhz"))),
        "window.power_share": _mean(map(_share, column("power_w"), column("power_limit_w"))),
        "window.temperature": max(temperatures) if temperatures else None,
    }
    both = 0
    for bits in reasons:
        both |= bits
    return figures, both if reasons else None


def _mean(values: Any) -> Optional[float]:
    read = [value for value in values if value is not None]
    return sum(read) / len(read) if read else None


def _share(value: Optional[float], of: Optional[float]) -> Optional[float]:
    return value / of if value is not None and of else None


def _inodes(telemetry: Telemetry) -> Dict[str, float]:
    disks = (telemetry.checkpoints_disk, telemetry.results_disk, telemetry.scratch_disk)
    return {
        str(number): disk.total_inodes - disk.free_inodes
        for number, disk in enumerate(disks)
        if disk is not None and disk.total_inodes is not None and disk.free_inodes is not None
    }


def _means(samples: Sequence[_Sample]) -> Dict[str, float]:
    figures: Dict[str, float] = {}
    if len(samples) < 2:
        return figures
    for name in {name for sample in samples for name in sample.figures}:
        values = [sample.figures[name] for sample in samples if name in sample.figures]
        if len(values) >= MOST * len(samples):
            figures[name] = _rounded(sum(values) / len(values))
    first, last = samples[0], samples[-1]
    growth = [last.inodes[disk] - size for disk, size in first.inodes.items() if disk in last.inodes]
    if growth and last.at > first.at:
        figures["window.new_inodes_per_s"] = _rounded(max(0.0, *growth) / (last.at - first.at))
    return figures


def _often(samples: Sequence[_Sample]) -> Optional[int]:
    """The bits that are set in many samples; None where they were not read."""
    masks = [sample.reasons for sample in samples if sample.reasons is not None]
    if not masks or len(masks) < MOST * len(samples):
        return None
    bits = [1 << number for number in range(64) if any(mask >> number & 1 for mask in masks)]
    return sum(bit for bit in bits if sum(1 for mask in masks if mask & bit) >= OFTEN * len(masks))


def _done(before: Work, after: Work) -> Dict[str, float]:
    """A second of the time between two readings. A process that is new counts from 0."""
    seconds, row = after.at - before.at, {}
    if after.reads:
        none = (0.0, 0.0)
        pairs = [(before.reads.get(pid, none), now) for pid, now in after.reads.items()]
        row["window.reads_per_s"] = sum(max(0.0, now[0] - then[0]) for then, now in pairs) / seconds
        row[_READ_PER_S] = sum(max(0.0, now[1] - then[1]) for then, now in pairs) / seconds
    used = {pid: 100 * (now - before.cpu_s[pid]) / seconds for pid, now in after.cpu_s.items() if pid in before.cpu_s}
    workers = [used[pid] for pid in after.workers if pid in used]
    if workers and used.get(after.main or 0, 100.0) < WAITS_PCT:  # else more of them would not help
        row["window.loader_cpu"] = sum(workers) / len(workers)
    if before.periods is not None and after.periods is not None and after.periods[0] > before.periods[0]:
        throttled = after.periods[1] - before.periods[1]
        row["window.throttled_share"] = throttled / (after.periods[0] - before.periods[0])
    if after.others_bytes is not None:
        row["window.card_others_bytes"] = after.others_bytes
    if after.runnable is not None:
        row["window.threads"] = after.runnable
    return row


def _rounded(value: float) -> float:
    return float("%.4g" % value)

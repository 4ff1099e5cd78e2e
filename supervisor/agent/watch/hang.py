"""The watch over a command that may hang: a late step while nothing moves, or a silent command, and where it waits.

A step is late by the run's own rhythm (`rhythm`); a command that reports no steps is silent for `quiet_s`. Before that
moment its processes are looked at (`motion`), and only then: a healthy run costs one comparison a second. If all still,
the threads are dumped, and again GAP_S later. Two equal dumps of a command that is still are a hang; the last dump says
where it waits (`contract.thread_places`). Two kinds need LONGER: processes that only burn CPU inside a wait for other
ranks or for a card, and a wait for the network where its bytes cannot be counted.

The supervisor learns of it by the beat and looks again before it ends the attempt. A command whose steps are late but
that moves is not ended: the beat says what moves. A dump for the evidence is taken once per stall, after `stall_dump_s`
without progress (`first_dump_s` before the first step), also of a command that moves.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from supervisor.agent.machine.job import Job
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.motion import CPU, FILES, GPU, NET, OUTPUT, SIGNALS, Counters, Motion
from supervisor.agent.watch.rhythm import FLOOR_S, Rhythm
from supervisor.contract.heartbeat import TRAINING
from supervisor.contract.signs import Hang
from supervisor.contract.thread_places import COLLECTIVE, GPU_KERNEL, NETWORK, STOPPED, all_wait, fingerprint, place_of

CHECK_S = 1.0
GAP_S = 15.0  # between two dumps, and between two readings of what moves
QUIET_GAP_S = 60.0  # between two readings of a command without steps
QUIET_GAPS = 1.25
RECENT_S = 60.0  # what moved so recently is in the beat
WAIT_S = 60.0  # at most, beyond the gap, to the next dump after two that prove no hang
SLACK_S = 2.0  # of a minute: the second dump is there when the step is late, not after it
AGAIN = 2.0
LONGER, LONGER_MIN_S = 4.0, 600.0
ALL = (*SIGNALS, FILES, OUTPUT)

Dumps = List[Dict[str, Any]]


class Sources(NamedTuple):
    """What the watch reads and where it reports. `carried_s`: what was usual in the attempt before, read when a step of
    this one is late before its own rhythm is known. `keep` stores the evidence of a stall; `report` puts a hang, and
    what moves while a step is late (None: nothing is late, or it cannot be said), into the beat."""

    counters: Callable[[], Counters]
    dumps: Callable[[], Dumps]
    keep: Callable[[Dict[str, Any]], None]
    report: Callable[[Optional[Hang], Optional[Tuple[str, ...]]], None]
    carried_s: Callable[[], Optional[float]] = lambda: None


class _Pace(NamedTuple):
    """How one stall is judged. `due_s`: a hang, after so long without progress and without motion; `again_s`: the same
    where it has moved for longer than a step usually takes (`usual_s`), as with retries that pause; `watch_s`: the
    first reading, after so long without progress; `gap_s`: between two readings, and between two dumps."""

    due_s: float
    again_s: float
    usual_s: float
    watch_s: float
    gap_s: float
    signals: Tuple[str, ...] = ALL  # that count; the log and the folders count only for a command without a rhythm

    @property
    def but_cpu(self) -> Tuple[str, ...]:
        return tuple(signal for signal in self.signals if signal != CPU)

    @property
    def longer_s(self) -> float:
        return max(LONGER_MIN_S, LONGER * self.due_s)


class _Stall:
    """Since the last progress."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.motion = Motion()
        self.read_at: Optional[float] = None
        self.moves: Optional[Tuple[str, ...]] = None  # as the beat has it
        self.is_kept = False  # a dump is in the evidence
        self.first: Optional[Tuple[float, Dumps]] = None  # of the two dumps
        self.wait_s = 0.0  # beyond the gap, after dumps that differ
        self.hang: Optional[Hang] = None
        self.reported_at = 0.0


class HangWatch:
    """A loop's step."""

    def __init__(self, job: Job, beat_state: BeatState, sources: Sources, monotonic: Callable[[], float]) -> None:
        self._job, self._beat_state, self._sources, self._monotonic = job, beat_state, sources, monotonic
        dump_s = job.stall_dump_s if job.stall_dump_s is not None else FLOOR_S
        self._rhythm = Rhythm(min(FLOOR_S, dump_s))
        quiet_s = job.quiet_s if job.hang else None
        limits = [limit for limit in (job.stall_dump_s, job.first_dump_s, quiet_s) if limit is not None]
        limits += [FLOOR_S] if limits else []
        self._least_s = min(limits) / 4 if limits else None  # before this time nothing can be due
        self._progress: Tuple[Optional[int], Optional[int], str] = (None, None, "")
        self._stall = _Stall(monotonic())
        self._has_carried = False  # what was usual in the attempt before has been asked for

    def step(self) -> Optional[float]:
        """Seconds until the next check; None = never."""
        if self._least_s is None:
            return None
        self._follow(self._monotonic())
        now, beat = self._monotonic(), self._beat_state.now
        if beat.phase == TRAINING and now - self._stall.since >= self._least_s:
            self._keep_dump(beat.step, now)
            if self._job.hang or beat.step is not None:
                self._judge(beat.step, now)
        return min(CHECK_S, self._least_s)

    def _follow(self, now: float) -> None:
        beat = self._beat_state.now
        progress = (beat.step, beat.checkpoint_step, beat.phase)
        if progress == self._progress:
            return
        if beat.phase != TRAINING:
            self._rhythm.pause()
        elif beat.step is not None and beat.step != self._progress[0]:
            self._rhythm.add(now, beat.step)
        if self._stall.hang is not None or self._stall.moves is not None:
            self._sources.report(None, None)
        self._progress, self._stall = progress, _Stall(now)

    def _pace(self, step: Optional[int]) -> _Pace:
        job, dump_s = self._job, self._job.stall_dump_s
        late_s = None if step is None else self._late_s()
        if late_s is not None:
            due_s, usual_s = late_s - SLACK_S * late_s / FLOOR_S, late_s / 4
            watch_s = min(usual_s, (dump_s or late_s) / 2)
            return _Pace(due_s, AGAIN * due_s, usual_s, watch_s, min(GAP_S, usual_s), SIGNALS)
        gap_s = min(QUIET_GAP_S, job.quiet_s / 10)
        due_s = job.quiet_s - QUIET_GAPS * gap_s  # the last motion may be a gap older than the reading that shows it
        if step is None or dump_s is None:
            return _Pace(due_s, due_s, 0.0, job.quiet_s / 3, gap_s)
        return _Pace(due_s, due_s, 0.0, dump_s / 2, min(GAP_S, dump_s / 4))

    def _late_s(self) -> Optional[float]:
        if self._rhythm.usual_s is None and not self._has_carried:
            self._has_carried = True
            self._rhythm.carried_s = self._sources.carried_s()
        return self._rhythm.late_s()

    @property
    def usual_s(self) -> Optional[float]:
        return self._rhythm.usual_s

    def _keep_dump(self, step: Optional[int], now: float) -> None:
        """For the evidence of a stall that the supervisor may end soon, whether anything moves or not."""
        stall = self._stall
        limit_s = self._job.first_dump_s if step is None else self._job.stall_dump_s
        if limit_s is None or stall.is_kept or now - stall.since < limit_s:
            return
        dumps = self._sources.dumps()
        is_still = stall.motion.moving(stall.since + limit_s / 2, SIGNALS) == ()
        place = place_of(dumps) if is_still else ""  # what moves may wait here for a moment only
        if place == STOPPED and self._job.hang:
            self._report_hang(step, now, place, dumps)  # no rhythm is needed to judge a process that is stopped
            return
        stall.is_kept = True
        self._sources.keep(self._evidence(step, now, place, dumps))

    def _judge(self, step: Optional[int], now: float) -> None:
        stall, pace = self._stall, self._pace(step)
        if now - stall.since < pace.watch_s:
            return
        if stall.read_at is None or now - stall.read_at >= pace.gap_s:
            stall.read_at = now
            stall.motion.add(now, self._sources.counters())
            self._report_motion(now, pace)
        if not self._job.hang or stall.hang is not None:
            return
        if self._is_due(now, pace, pace.gap_s):
            self._compare_dumps(step, now, pace)
        else:
            stall.first = None

    def _report_motion(self, now: float, pace: _Pace) -> None:
        """What has moved in the last minute. A hang that moves again was none."""
        stall = self._stall
        moves = stall.motion.moving(now - RECENT_S, pace.signals)
        if stall.hang is not None and (stall.motion.moved_at(pace.but_cpu) or 0.0) > stall.reported_at:
            stall.hang = None
        elif moves == stall.moves:
            return
        stall.moves = moves
        self._sources.report(stall.hang, moves)

    def _is_due(self, now: float, pace: _Pace, ahead_s: float = 0.0) -> bool:
        """A hang, if nothing moves until `ahead_s` from now."""
        stall = self._stall
        if stall.motion.moving(now - 2 * pace.gap_s, pace.signals) is None:
            return False
        return self._is_still(now + ahead_s, pace) or self._spins(now, pace, ahead_s)

    def _is_still(self, until: float, pace: _Pace) -> bool:
        since, moved_at = self._stall.since, self._stall.motion.moved_at(pace.signals)
        if moved_at is None or moved_at - since <= pace.usual_s:
            return until - since >= pace.due_s
        return until - moved_at >= pace.again_s

    def _spins(self, now: float, pace: _Pace, ahead_s: float = 0.0) -> bool:
        """For the longer time nothing but the CPU has moved."""
        still_s = now - max(self._stall.since, self._stall.motion.moved_at(pace.but_cpu) or 0.0)
        return still_s + ahead_s >= pace.longer_s

    def _compare_dumps(self, step: Optional[int], now: float, pace: _Pace) -> None:
        stall = self._stall
        if stall.first is None:
            stall.first = (now, self._sources.dumps())
            return
        first_at, before = stall.first
        if now - first_at < pace.gap_s + stall.wait_s or not self._is_due(now, pace):
            return
        after = self._sources.dumps()
        place = place_of(after)
        if after and fingerprint(before) == fingerprint(after) and self._is_hang(place, after, now, pace):
            self._report_hang(step, now, place, after, before)
            return
        stall.first, stall.wait_s = (now, after), min(2 * stall.wait_s + pace.gap_s, WAIT_S)

    def _is_hang(self, place: str, dumps: Dumps, now: float, pace: _Pace) -> bool:
        """The two kinds that are judged later. Without figures of a card nobody knows that it does not compute: a
        training on the CPU alone is inside `backward` most of its time, and one on a card without NVML inside a
        synchronize."""
        if not self._is_still(now, pace):
            return all_wait(dumps, (COLLECTIVE, GPU_KERNEL) if self._stall.motion.reads(GPU) else (COLLECTIVE,))
        return place != NETWORK or self._stall.motion.reads(NET) or self._spins(now, pace)

    def _report_hang(
        self, step: Optional[int], now: float, place: str, dumps: Dumps, before: Optional[Dumps] = None
    ) -> None:
        stall = self._stall
        stall.is_kept = True
        stall.reported_at = now
        stall.hang = Hang(place, round(now - max(stall.since, stall.motion.moved_at(SIGNALS) or 0.0), 1), step)
        self._sources.report(stall.hang, stall.moves)
        evidence = self._evidence(step, now, place, dumps)
        self._sources.keep(evidence if before is None else {**evidence, "threads_before": before})

    def _evidence(self, step: Optional[int], now: float, place: str, dumps: Dumps) -> Dict[str, Any]:
        return {
            "step": step,
            "without_progress_s": round(now - self._stall.since, 1),
            "place": place,
            "moves": self._stall.moves,
            "late_s": self._rhythm.late_s(),
            "threads": dumps,
        }

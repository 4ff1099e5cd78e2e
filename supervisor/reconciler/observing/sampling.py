"""Samples: pulses move in memory and are written about once a minute, spread over the ticks of that minute.

An attempt that has just begun has a point every few seconds, so that a short run has a curve: one in each tick at most,
and those that its beat carries. In that time points lie where the agent made them, by its own count. So the line never
goes back, and after a restart of the supervisor the same point has the same time, which the series keeps once.

Samples of runs that go on are written beside the ticks (`SampleWriter`): they are a third of a tick's work, and no
decision depends on them. Those of a run that has changed its status are written in its tick, because a command of a
user may change that run at any time from then on.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from supervisor.contract import recent_points
from supervisor.contract.heartbeat import TRAINING
from supervisor.contract.recent_points import RecentPoint
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.run import Run
from supervisor.ports.store import Lease, Sample, Store, StoreDown
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

SAMPLE_S = 60.0
YOUNG_S = 300.0  # for so long after its machine was obtained an attempt is sampled every YOUNG_SAMPLE_S
YOUNG_SAMPLE_S = 5.0
COUNTED_S = 600.0  # of the agent's own count: for so long it says where a point lies
APART_S = 1.0  # carried points that are closer together are dropped, whatever a beat says
AT_ONCE = 0.0  # a time that is always over
SPREAD_S = 10.0  # the samples of a tick are written over so long, in parts
PART = 100
BATCHES_MAX = 2  # that wait to be written; a tick that finds more writes them itself


class Sampler:
    def __init__(self, store: Store, writer: SampleWriter | None = None) -> None:
        """`writer` None: all samples are written in their tick."""
        self._store, self._writer = store, writer
        self._next_at: dict[int, float] = {}
        self._newest: dict[int, tuple[str, float]] = {}  # key -> launch id and time of its newest counted point

    def due(self, key: int) -> None:
        """The run changed its status: sample it in this tick."""
        self._next_at[key] = AT_ONCE

    def forget(self, key: int) -> None:
        self._next_at.pop(key, None)
        self._newest.pop(key, None)

    def supersede(self, keys: Collection[int]) -> None:
        """These runs are about to be written with their pulses: no older pulse may follow."""
        if self._writer is not None:
            self._writer.supersede(keys)

    def flush(self) -> None:
        """Write what waits."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """The same, and end the thread."""
        if self._writer is not None:
            self._writer.close()

    def write(self, runs: Iterable[Run], now: float, lease: Lease) -> None:
        """Raises StoreDown, also where samples of an earlier tick could not be written."""
        samples: list[Sample] = []
        at_once: list[Sample] = []
        for run in runs:
            if run.pulse is None or run.attempt is None:
                continue
            at = self._next_at.get(run.key)
            if run.live_attempt is None and at != AT_ONCE:
                continue  # nothing moves any more
            young = now - run.attempt.started_at < YOUNG_S
            if at is None and not young:  # spread runs that are observed for the first time over the minute
                self._next_at[run.key] = now + (run.key * 7) % int(SAMPLE_S)
                continue
            if at is None or now >= at:
                self._next_at[run.key] = now + (YOUNG_SAMPLE_S if young else SAMPLE_S)
                points = self._points(run.key, run.attempt, run.pulse, now)
                if at == AT_ONCE or self._writer is None:
                    at_once += points
                else:
                    samples += points
        if at_once:
            self._store.write_pulses(at_once, lease)
        if self._writer is not None:
            self._writer.add(samples, lease)

    def _points(self, key: int, attempt: Attempt, pulse: Pulse, now: float) -> list[Sample]:
        """Points that the pulse carries and that are new, then the pulse itself."""
        # The last point of an ended attempt lies at its end, whenever the run moves on: a resume next week must not
        # extend its last figures until then. Writing the same point again adds none.
        point_at = now if attempt.ended_at is None else min(now, attempt.ended_at)
        agent_at, up_s = attempt.agent_at, pulse.up_s
        if agent_at is None or up_s is None or up_s >= COUNTED_S or pulse.launch_id != attempt.launch_id:
            self._newest.pop(key, None)
            return [Sample(key, point_at, attempt.number, pulse)]
        launch_id, newest = self._newest.get(key, ("", 0.0))
        if launch_id != pulse.launch_id:
            newest = -math.inf
        # Times are compared without the drift: a step of our clock makes no point a new one.
        self._newest[key] = pulse.launch_id, max(newest, agent_at + up_s)
        if attempt.ended_at is None:
            if agent_at + up_s <= newest:
                return []  # no beat has arrived since
            point_at = agent_at + up_s + attempt.drift_s
        carried = [
            Sample(key, at, attempt.number, _pulse_at(pulse, point), carried=True)
            for point in recent_points.decode(pulse.recent)
            if agent_at + point.up_s >= newest + APART_S
            and point.up_s < up_s
            and (at := agent_at + point.up_s + attempt.drift_s) < point_at
        ]
        return [*carried, Sample(key, point_at, attempt.number, pulse)]


def _pulse_at(pulse: Pulse, point: RecentPoint) -> Pulse:
    """The pulse as it was at that point, without the figures of the machine: the point does not contain them."""
    kept = pulse.checkpoint_step
    return replace(
        pulse,
        phase=TRAINING,
        step=point.step,
        steps_per_s=point.steps_per_s,
        metrics=point.metrics,
        checkpoint_step=kept if kept is not None and kept <= point.step else None,
        stall_polls=0,
        telemetry="",
        recent="",
    )


class SampleWriter:
    """Writes samples in a thread of its own, in parts with a rest after each, so that no other writer waits for long.

    Each part is a transaction that checks the lease. A failure is raised in the next tick, which then counts as failed.
    A process that is killed loses what waits: pulses are about a minute old anyway.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[tuple[list[Sample], Lease, float]] = deque()  # samples, lease, rest after each part
        self._changed = threading.Condition()
        self._writing = threading.Lock()  # held while a part is taken and written
        self._stopping = False
        self._failure: StoreDown | None = None
        self._thread: threading.Thread | None = None

    def add(self, samples: Sequence[Sample], lease: Lease) -> None:
        """Raises StoreDown when an earlier part could not be written."""
        failure, self._failure = self._failure, None
        if samples:
            if len(self._waiting) >= BATCHES_MAX:
                self.flush()
            rest_s = SPREAD_S * PART / max(len(samples), PART)
            with self._changed:
                self._waiting.append((list(samples), lease, rest_s))
                self._changed.notify()
            self._start()
        if failure is not None:
            raise failure

    def supersede(self, keys: Collection[int]) -> None:
        """Points of these runs that wait are written without the pulse. Waits for a part that is being written."""
        with self._writing:
            for samples, _, _ in self._waiting:
                for at, sample in enumerate(samples):
                    if sample.key in keys and not sample.carried:
                        samples[at] = replace(sample, carried=True)

    def flush(self) -> None:
        """Writes what waits, now. Raises nothing."""
        while self._waiting:
            self._write_part()

    def close(self) -> None:
        """Writes what waits, without rests, and ends. Raises nothing."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        rest_s = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or len(self._waiting) > 1, timeout=rest_s)
                self._changed.wait_for(lambda: self._stopping or self._waiting)
                if not self._waiting:
                    return
            rest_s = self._write_part()

    def _write_part(self) -> float:
        """The rest after it; none after the last part of a batch."""
        with self._writing:
            if not self._waiting:
                return 0.0
            samples, lease, rest_s = self._waiting[0]
            part, samples[:PART] = samples[:PART], []
            if not samples:
                self._waiting.popleft()
            try:
                self._store.write_pulses(part, lease)
            except StoreDown as error:
                self._waiting.clear()
                self._failure = error
            except Exception:  # a bug must not end the thread; the next samples of these runs follow in a minute
                log.exception("samples not written", extra={telemetry.ACTION: "sample"})
            return rest_s if samples else 0.0

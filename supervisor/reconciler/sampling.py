"""Pulses move in memory and are sampled into the database about once a minute, spread over the ticks of that minute.

An attempt that has just begun has a point every few seconds, at each tick at most: so a short run has a curve.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.domain.run import Run
from supervisor.ports.store import Lease, Sample, Store

SAMPLE_S = 60.0
YOUNG_S = 300.0  # so long after its machine was obtained an attempt is sampled at this pace
YOUNG_SAMPLE_S = 5.0
NOW = 0.0  # is always over


class Sampler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._next: dict[int, float] = {}

    def due(self, key: int) -> None:
        """Something of note happened: sample this run in this tick."""
        self._next[key] = NOW

    def forget(self, key: int) -> None:
        self._next.pop(key, None)

    def write(self, runs: Iterable[Run], now: float, lease: Lease) -> None:
        samples = []
        for run in runs:
            if run.pulse is None or run.attempt is None:
                continue
            at = self._next.get(run.key)
            if run.live_attempt is None and at != NOW:
                continue  # nothing moves any more
            young = now - run.attempt.started_at < YOUNG_S
            if at is None and not young:  # first seen: spread runs that are found together over the minute
                self._next[run.key] = now + (run.key * 7) % int(SAMPLE_S)
                continue
            if at is None or now >= at:
                self._next[run.key] = now + (YOUNG_SAMPLE_S if young else SAMPLE_S)
                # An attempt that is over has its last point at its end, whenever the run moves on: a resume next week
                # must not draw its last figures until then. The same point again is none.
                ended = run.attempt.ended_at
                heard_at = now if ended is None else min(now, ended)
                samples.append(Sample(run.key, heard_at, run.attempt.number, run.pulse))
        if samples:
            self._store.write_pulses(samples, lease)

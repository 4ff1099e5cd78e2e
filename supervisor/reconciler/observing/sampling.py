"""Pulses move in memory and are sampled into the database about once a minute, spread over the ticks of that minute.

An attempt that has just begun has a point every few seconds, so that a short run has a curve: one at each tick at most,
and those that its beat carries. In that time points lie where the agent made them, by its own count: the line never
goes back, and after a restart of the supervisor the same point has the same time, which the series keeps once.

Whose .stop marker is read in this tick: every active run once in ten minutes, in turn, never all at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from supervisor.contract import recent_points
from supervisor.contract.heartbeat import TRAINING
from supervisor.contract.recent_points import RecentPoint
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.run import Run
from supervisor.ports.store import Lease, Sample, Store


class Rotation:
    def __init__(self, poll_interval_s: float, round_s: float) -> None:
        self._share = min(1.0, poll_interval_s / round_s)
        self._last = 0

    def turn(self, keys: Iterable[int]) -> frozenset[int]:
        """At most ceil(active * poll interval / round) keys: those after the last turn's, then from the beginning."""
        ordered = sorted(keys)
        if not ordered:
            return frozenset()
        count = math.ceil(len(ordered) * self._share)
        after = [key for key in ordered if key > self._last]
        chosen = list(islice((*after, *ordered), count))
        self._last = chosen[-1]
        return frozenset(chosen)


SAMPLE_S = 60.0
YOUNG_S = 300.0  # so long after its machine was obtained an attempt is sampled at this pace
YOUNG_SAMPLE_S = 5.0
COUNTED_S = 600.0  # of the agent's life: so long its own count tells where a point lies
APART_S = 1.0  # carried points are not nearer, whatever a beat says
NOW = 0.0  # is always over


class Sampler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._next: dict[int, float] = {}
        self._newest: dict[int, tuple[str, float]] = {}  # key -> launch and time of its newest counted point

    def due(self, key: int) -> None:
        """Something of note happened: sample this run in this tick."""
        self._next[key] = NOW

    def forget(self, key: int) -> None:
        self._next.pop(key, None)
        self._newest.pop(key, None)

    def write(self, runs: Iterable[Run], now: float, lease: Lease) -> None:
        samples: list[Sample] = []
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
                samples += self._points(run.key, run.attempt, run.pulse, now)
        if samples:
            self._store.write_pulses(samples, lease)

    def _points(self, key: int, attempt: Attempt, pulse: Pulse, now: float) -> list[Sample]:
        """What the pulse carries that is newer than what is known, then the pulse itself."""
        # An attempt that is over has its last point at its end, whenever the run moves on: a resume next week must not
        # draw its last figures until then. The same point again is none.
        heard_at = now if attempt.ended_at is None else min(now, attempt.ended_at)
        agent_at, up_s = attempt.agent_at, pulse.up_s
        if agent_at is None or up_s is None or up_s >= COUNTED_S or pulse.launch_id != attempt.launch_id:
            self._newest.pop(key, None)
            return [Sample(key, heard_at, attempt.number, pulse)]
        launch, newest = self._newest.get(key, ("", 0.0))
        if launch != pulse.launch_id:
            newest = -math.inf
        # Times are compared without the drift: a step of our clock makes no point a new one.
        self._newest[key] = pulse.launch_id, max(newest, agent_at + up_s)
        if attempt.ended_at is None:
            if agent_at + up_s <= newest:
                return []  # no beat has come since
            heard_at = agent_at + up_s + attempt.drift_s
        carried = [
            Sample(key, at, attempt.number, _then(pulse, point), carried=True)
            for point in recent_points.decode(pulse.recent)
            if agent_at + point.up_s >= newest + APART_S
            and point.up_s < up_s
            and (at := agent_at + point.up_s + attempt.drift_s) < heard_at
        ]
        return [*carried, Sample(key, heard_at, attempt.number, pulse)]


def _then(pulse: Pulse, point: RecentPoint) -> Pulse:
    """The pulse as it was at that point; how the machine was then is not told."""
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

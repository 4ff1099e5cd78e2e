"""Samples: pulses move in memory and are written about once a minute, spread over the ticks of that minute.

An attempt that has just begun has a point every few seconds, so that a short run has a curve: one in each tick at most,
and those that its beat carries. In that time points lie where the agent made them, by its own count. So the line never
goes back, and after a restart of the supervisor the same point has the same time, which the series keeps once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from supervisor.contract import recent_points
from supervisor.contract.heartbeat import TRAINING
from supervisor.contract.recent_points import RecentPoint
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.run import Run
from supervisor.ports.store import Lease, Sample, Store

SAMPLE_S = 60.0
YOUNG_S = 300.0  # for so long after its machine was obtained an attempt is sampled every YOUNG_SAMPLE_S
YOUNG_SAMPLE_S = 5.0
COUNTED_S = 600.0  # of the agent's own count: for so long it says where a point lies
APART_S = 1.0  # carried points that are closer together are dropped, whatever a beat says
AT_ONCE = 0.0  # a time that is always over


class Sampler:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_at: dict[int, float] = {}
        self._newest: dict[int, tuple[str, float]] = {}  # key -> launch id and time of its newest counted point

    def due(self, key: int) -> None:
        """The run changed its status: sample it in this tick."""
        self._next_at[key] = AT_ONCE

    def forget(self, key: int) -> None:
        self._next_at.pop(key, None)
        self._newest.pop(key, None)

    def write(self, runs: Iterable[Run], now: float, lease: Lease) -> None:
        samples: list[Sample] = []
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
                samples += self._points(run.key, run.attempt, run.pulse, now)
        if samples:
            self._store.write_pulses(samples, lease)

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

"""Which runs have their turn in this tick, where all of them at once would be too many requests.

The `.stop` marker of each active run is read in one rotation. In another one, training runs show what a preemption
would lose, for platforms whose schedulers choose whom they preempt. It is derived from the rows in each tick, and
nothing is stored. A tick has at most ceil(training runs * poll interval / 600) such turns: the runs that waited longest
come first, and none waits longer than ten minutes. The provider compares a turn with what the platform shows already,
so most send no request. One without a clear response is repeated by the next turn of its run, and by nothing else: no
decision rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from itertools import islice

from supervisor.domain.actions import PublishCheckpoint
from supervisor.domain.attempt import Attempt
from supervisor.domain.run import Run
from supervisor.domain.status import Status

ROUND_S = 600.0  # of what is shown
TINY = 1e-6  # twenty times a twentieth is one


class Rotation:
    """Whose turn it is in this tick: never all runs at once."""

    def __init__(self, poll_interval_s: float, round_s: float) -> None:
        self._share = min(1.0, poll_interval_s / round_s)
        self._last = 0
        self._due = 0.0  # turns that are due in sparing ticks

    def next_keys(self, keys: Iterable[int], sparing: bool = False) -> frozenset[int]:
        """At most ceil(active * poll interval / round) keys: those after the last ones, then from the beginning.
        `sparing`: a turn costs money, so each of a few runs has one in a round, and not one of them in every tick."""
        ordered = sorted(keys)
        if not ordered:
            return frozenset()
        count = self._spared(len(ordered)) if sparing else math.ceil(len(ordered) * self._share)
        after = [key for key in ordered if key > self._last]
        chosen = list(islice((*after, *ordered), count))
        self._last = chosen[-1] if chosen else self._last
        return frozenset(chosen)

    def _spared(self, active: int) -> int:
        self._due += active * self._share
        count = int(self._due + TINY)
        self._due -= count
        return count


class Publishing:
    """`providers`: the names of those that publish."""

    def __init__(self, providers: Container[str], poll_interval_s: float) -> None:
        self._providers, self._rotation = providers, Rotation(poll_interval_s, ROUND_S)

    def turns(self, runs: Iterable[Run], now: float) -> Iterator[tuple[Run, PublishCheckpoint]]:
        """Of this tick."""
        ours = {
            run.key: run
            for run in runs
            if (attempt := _in_training(run)) is not None and attempt.placement.provider in self._providers
        }
        for key in sorted(self._rotation.next_keys(ours)):
            action = at_risk(ours[key], now)
            if action is not None:
                yield ours[key], action


def at_risk(run: Run, now: float) -> PublishCheckpoint | None:
    """None = it does not train. An agent may report the checkpoint that it restored: that one is not new."""
    attempt, pulse = _in_training(run), run.pulse
    if attempt is None or attempt.training_at is None:
        return None
    at = None
    if pulse is not None and pulse.launch_id == attempt.launch_id and pulse.checkpoint_step is not None:
        is_new = attempt.step_from is None or pulse.checkpoint_step > attempt.step_from
        at = pulse.checkpoint_at if is_new else None
    since = attempt.training_at if at is None else max(at, attempt.training_at)
    return PublishCheckpoint(attempt.ref, at, max(0.0, now - since))


def _in_training(run: Run) -> Attempt | None:
    attempt = run.live_attempt if run.status == Status.RUNNING and run.stop is None else None
    return None if attempt is None or attempt.training_at is None else attempt

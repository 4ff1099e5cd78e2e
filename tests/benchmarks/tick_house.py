"""One house whose ticks are run by hand, in a process of its own with the interpreter tuned as `serve` tunes it.

    python -m tests.benchmarks.tick_house DATA_DIR RUNS TICKS stored|pushed|received|still

Before each tick the beats of all runs move a step (`stored`: as objects in the folder, by another process; `pushed`:
into the inbox only; `received`: the same from their bytes, so that each has its own texts in memory; `still`: they do
not) and 30 seconds pass on the house's clock, wall and monotonic alike. The first tick, which reads every row, is told
apart. One JSON line tells what was seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from supervisor.contract.heartbeat import encode
from supervisor.domain.beat_decoding import parse_beat
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.providers.local import provider as local
from supervisor.reconciler.observing.observe import Observer, Snapshot
from supervisor.reconciler.system_clock import EventWake
from supervisor.storage.store import SqlStore
from supervisor.wiring import application as wired
from supervisor.wiring import bootstrap
from tests.benchmarks import beat_writer, scene
from tests.benchmarks.crowded import CrowdedProvider
from tests.benchmarks.house import rss_kib

POLL_S = 30.0
PUSHING = ("pushed", "received")


class MovedClock:
    """The computer's clock, and the time that was skipped."""

    skipped_s = 0.0

    def now(self) -> float:
        return time.time() + self.skipped_s

    def wall(self) -> float:
        return self.now()

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped_s


class Hand:
    """The hand that ticks."""

    def __init__(self, house: wired.Application, store: SqlStore, clock: MovedClock) -> None:
        self.tick, self.leader, self.inbox = house.loop.tick, house.loop.leader, house.services.inbox
        self._store, self._clock = store, clock
        self._looked_at = clock.monotonic()

    def run(self) -> dict[str, float]:
        """30 s after the last one."""
        self._clock.skipped_s += max(0.0, self._looked_at + POLL_S - self._clock.monotonic())
        self._looked_at = self._clock.monotonic()
        self.leader.renew()
        lease = self.leader.lease()
        assert lease is not None
        group = self._store.database.group
        assert group is not None
        group.longest_hold_s = 0.0
        began, cpu = time.perf_counter(), time.process_time()
        self.tick.run(lease)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        self.tick.sampler.flush()  # they are written beside the ticks
        all_s = time.process_time() - cpu
        return {"wall_s": wall_s, "cpu_s": cpu_s, "all_cpu_s": all_s, "hold_ms": group.longest_hold_s * 1000}

    def push(self, names: list[str], number: int, how: str) -> None:
        for place, name in enumerate(names):
            if place % 1000 == 0:
                self.leader.renew()
            beat = scene.beat(name, number)
            self.inbox.accept(beat if how == "pushed" else parse_beat(encode(beat)))

    def steps(self) -> set[int | None]:
        return {run.pulse.step if run.pulse is not None else None for run in self.tick.runs.values()}


def _requests(seen: list[int]) -> None:
    """Without the snapshots: these hold all beats."""
    observe = Observer.observe

    def noted(self: Observer) -> Snapshot:
        snapshot = observe(self)
        seen.append(snapshot.requests)
        return snapshot

    Observer.observe = noted  # type: ignore[method-assign]


def measure(data_dir: Path, count: int, ticks: int, how: str) -> dict[str, Any]:
    settings = scene.settings_for(data_dir, **scene.FULL_UP)
    clock, seen = MovedClock(), list[int]()
    wired.SystemClock = lambda: clock  # type: ignore[misc,assignment]
    local.LocalProvider = CrowdedProvider  # type: ignore[misc]
    bootstrap.tune_interpreter()
    _requests(seen)
    objects = FilesystemStore.at(settings.store_url).folder
    names, found = scene.names(count), []
    with contextlib.ExitStack() as opened:
        store = opened.enter_context(scene.opened(settings))
        writer = opened.enter_context(beat_writer.writer(objects, count)) if how == "stored" else None
        hand = Hand(wired.build(settings, store, wired.Wakes(EventWake(), EventWake())), store, clock)
        before_kib = rss_kib(os.getpid())
        if how in PUSHING:
            hand.inbox.active = count
            for name in names:
                hand.inbox.learn(scene.beat(name, 1))
        for number in range(2, ticks + 3):
            if writer is not None:
                writer.write(number)
            if how in PUSHING:
                hand.push(names, number, how)
            found.append(hand.run())
            moved = {scene.beat("any", number).step} if how != "still" else {1}
            assert not count or hand.steps() == moved, f"the steps are {hand.steps()}, not {moved}"
        kib = rss_kib(os.getpid()) - before_kib
        hand.tick.actor.close()
        hand.tick.readers.close()
    return {"first": found[0], "ticks": found[1:], "requests": seen[-1], "kib": kib}


if __name__ == "__main__":
    told = measure(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    print(json.dumps(told))

"""One house with runs in a Kubernetes cluster, whose ticks are run by hand: one for each line on its input.

    python -m tests.benchmarks.kubernetes_tick_house DATA_DIR RUNS     (with the environment of a cluster)

Before each tick the beats of all runs move a step, and 30 seconds pass on the house's clock. One JSON line after each.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from pathlib import Path

from supervisor.ports.store import RunFilter
from supervisor.reconciler.system_clock import EventWake
from supervisor.wiring import application as wired
from supervisor.wiring import bootstrap
from tests.benchmarks import scene
from tests.benchmarks.tick_house import Hand, MovedClock


def run(data_dir: Path, count: int) -> None:
    settings = scene.settings_for(data_dir, **os.environ)
    logging.basicConfig(level=logging.ERROR)
    clock = MovedClock()
    wired.SystemClock = lambda: clock  # type: ignore[misc,assignment]
    bootstrap.tune_interpreter()
    with contextlib.ExitStack() as opened:
        store = opened.enter_context(scene.opened(settings))
        house = wired.build(settings, store, wired.Wakes(EventWake(), EventWake()))
        hand = Hand(house, store, clock)
        house.adapters.warm()
        hand.inbox.active = count
        ids = {
            run.run_id: run.attempt.machine_id
            for run in store.page(RunFilter(), None, 10_000).runs
            if run.attempt is not None
        }
        for number, _ in enumerate(sys.stdin, 2):
            hand.leader.renew()
            for name, machine_id in ids.items():
                beat = scene.beat(name, number)._replace(machine_id=machine_id)
                if number == 2:
                    hand.inbox.learn(beat)
                hand.inbox.accept(beat)
            print(json.dumps(hand.run()), flush=True)
            statuses = {str(run.status) for run in hand.tick.runs.values()}
            assert statuses == {"running"}, f"runs did not stay as they were: {statuses}"
            assert len(hand.tick.runs) == count
            assert hand.steps() == {scene.beat("any", number).step}, "not every beat has arrived"


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))

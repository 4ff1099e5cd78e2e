"""One house on the tests' Google Cloud whose ticks are run by hand, with the interpreter tuned as `serve` tunes it.

    python -m tests.benchmarks.cloud_tick_house DATA_DIR RUNS TICKS CONTROL     (with a cloud's environment)

Before each tick half of the beats move a step, some machines of other people are preempted, and 30 seconds pass on
the house's clock. Ticks that read everything for the first time are told apart: the first of all, and those in which
some beat is new to the supervisor. One JSON line tells what was seen.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.domain import machines
from supervisor.domain.machines import Placement
from supervisor.domain.run import Run
from supervisor.providers.gce.config import region_of
from supervisor.reconciler.system_clock import EventWake
from supervisor.settings.loading import Settings
from supervisor.storage.store import SqlStore
from supervisor.wiring import application as wired
from supervisor.wiring import bootstrap
from tests.benchmarks import scene
from tests.benchmarks.cloud_bed import FarCloud
from tests.benchmarks.tick_house import Hand, MovedClock
from tests.cloud.cloud import PROJECT, ZONES

WARM_TICKS = 2  # the first reads every row and beat; the second writes the first pulses of all
PREEMPTED = 3  # machines of other people, in each zone, from one tick to the next


def crowd(settings: Settings, store: SqlStore, count: int, cloud: FarCloud) -> None:
    """`count` running runs whose machines and beats the cloud has."""
    now, ours = time.time(), store.supervisor_id
    cell = machines.cell("gce", PROJECT, settings.store_url)
    runs = [
        _on_google(scene.running(name, cell, ours, ZONES[n % len(ZONES)], now, provider="gce"))
        for n, name in enumerate(scene.names(count))
    ]
    named = [(run.run_id, run.try_.machine_name) for run in runs if run.try_ is not None]
    ids = cloud.call("crowd", ours, named)
    runs = [replace(run, attempt=_with_id(run, machine_id)) for run, machine_id in zip(runs, ids, strict=True)]
    scene.insert(store, runs, [{"team": f"t{n % 10}"} for n in range(count)])


def _on_google(run: Run) -> Run:
    assert run.try_ is not None
    assert run.attempt is not None
    zone = run.try_.placement.zone
    place = Placement("gce", region_of(zone), zone, "t4", True)
    return replace(run, try_=replace(run.try_, placement=place), attempt=replace(run.attempt, placement=place))


def _with_id(run: Run, machine_id: str) -> Any:
    assert run.attempt is not None
    return replace(run.attempt, machine_id=machine_id)


def measure(data_dir: Path, count: int, ticks: int, cloud: FarCloud) -> dict[str, Any]:
    settings = scene.settings_for(data_dir, **os.environ)
    logging.basicConfig(level=logging.ERROR)  # machines of other people are told of at each sweep
    clock = MovedClock()
    wired.SystemClock = lambda: clock  # type: ignore[misc,assignment]
    bootstrap.tune_interpreter()
    found = []
    with contextlib.ExitStack() as opened:
        store = opened.enter_context(scene.opened(settings))
        crowd(settings, store, count, cloud)
        house = wired.build(settings, store, wired.Wakes(EventWake(), EventWake()))
        hand = Hand(house, store, clock)
        house.adapters.warm()
        for number in range(2, ticks + WARM_TICKS + 2):
            cloud.call("move", number)
            cloud.call("end_others", PREEMPTED)
            cloud.call("asked")
            found.append(hand.run() | cloud.call("asked"))
        runs = hand.tick.runs.values()
        assert {str(run.status) for run in runs} == {"running"}, "runs did not stay as they were"
        assert len(runs) == count
        hand.tick.actor.close()
        hand.tick.readers.close()
        house.adapters.close()
    return {"first": found[0], "ticks": found[WARM_TICKS:]}


def main(data_dir: str, count: str, ticks: str, control: str) -> None:
    print(json.dumps(measure(Path(data_dir), int(count), int(ticks), FarCloud({}, control))))


if __name__ == "__main__":
    main(*sys.argv[1:])

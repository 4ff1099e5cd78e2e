"""How long the forecast of one run takes: ten thousand futures of two days of training with a deadline, on one core."""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random

from supervisor.lifecycle.rungs.futures import Course, Lifetimes, SpotPlace, Spread, outlook
from tests.benchmarks.row import Bench, Figure, Row, Size

HOUR_S = 3600.0
COURSE = Course(
    now=0.0,
    left_s=Spread(48 * HOUR_S, 0.05),
    changeover_s=Spread(400.0, 0.3),
    save_every_s=600.0,
    lifetimes=Lifetimes(),
    return_per_s=2.3e-4,
    tick_s=30.0,
    places=[SpotPlace(3.0, 0.77), SpotPlace(3.2, 0.77), SpotPlace(3.4, 0.77)],
    on_demand_usd_per_h=10.0,
    deadline=60 * HOUR_S,
    hazard_sigma=0.5,
)


def measure(size: Size) -> Mapping[str, Figure]:
    """The median of several, in seconds of CPU."""
    times, futures = [], 0
    for number in range(size.times):
        begin = time.process_time()
        futures = outlook(COURSE, Random(number).random).futures
        times.append(time.process_time() - begin)
    return {"forecast_10k_s": Figure(sorted(times)[len(times) // 2], note={"futures": futures})}


BENCHES = (Bench(measure, (Row("forecast_10k_s", "s", target=2.0),)),)

"""What a scrape of the metrics reads beside the counters: the state of each part, all parts at once, within a deadline.

A part that is slow or unavailable leaves its series out and sets `spot_scrape_part_up` to 0; the others are read.
"""

from __future__ import annotations

import heapq
import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter

from supervisor.domain.run import Run, run_cost_usd
from supervisor.ports.store import StoreDown
from supervisor.services.parts import Parts, ask_together
from supervisor.services.reading.about import version
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import Reading

LOG = logging.getLogger(__name__)
WITHIN_S = 3.0  # Prometheus gives up a scrape after ten seconds

Readings = Callable[[], Iterable[Reading]]


def read(parts: Mapping[str, Readings], within_s: float = WITHIN_S) -> list[Reading]:
    """The readings of all parts, and which of them responded, after at most `within_s` seconds. Raises nothing."""
    answers = ask_together({name: partial(_all_of, part) for name, part in parts.items()}, within_s)
    readings: list[Reading] = []
    for name, answer in answers.items():
        readings.append(metrics.PART_UP.reading(float(answer.good), name))
        if answer.good:
            readings += answer.value
        elif answer.error is not None and not isinstance(answer.error, StoreDown):
            extra = {telemetry.ACTION: "metrics", telemetry.DETAIL: name}
            LOG.error("A part could not be read for the metrics.", exc_info=answer.error, extra=extra)
    return readings


def _all_of(part: Readings) -> list[Reading]:
    return list(part())


def database(parts: Parts) -> Iterator[Reading]:
    """One query with a bound. Raises StoreDown."""
    now, waits = parts.clock.now(), parts.store.backlog()
    yield metrics.OUTBOX_PENDING.reading(waits.outbox_pending)
    yield metrics.OUTBOX_OVERDUE_S.reading(_overdue_s(waits.outbox_due_at, now))
    yield metrics.DELIVERIES_PENDING.reading(waits.deliveries_pending)
    yield metrics.DELIVERIES_OVERDUE_S.reading(_overdue_s(waits.deliveries_due_at, now))
    yield metrics.ENDPOINTS_DISABLED.reading(waits.endpoints_disabled)
    yield metrics.CONNECTIONS.reading(waits.connections)


def _overdue_s(due_at: float | None, now: float) -> float:
    return 0.0 if due_at is None else max(0.0, now - due_at)


def runs(active: Iterable[Run], most: int, now: float) -> Iterator[Reading]:
    """Series of single runs, of the `most` oldest: as runs start and end, the same runs stay in the metrics."""
    for run in heapq.nsmallest(most, active, key=attrgetter("key")):
        pulse = run.pulse
        if pulse is not None and pulse.step is not None:
            yield metrics.RUN_STEP.reading(pulse.step, run.run_id)
            if pulse.total:
                yield metrics.RUN_PROGRESS.reading(min(1.0, pulse.step / pulse.total), run.run_id)
        yield metrics.RUN_USD.reading(run_cost_usd(run, now), run.run_id)


def build(parts: Parts, kind_of_database: str) -> Iterator[Reading]:
    labels = (version(), platform.python_version(), kind_of_database, parts.own_provider)
    yield metrics.BUILD.reading(1.0, *labels)

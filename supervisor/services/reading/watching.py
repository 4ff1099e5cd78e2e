"""What a scrape reads beside the counters: the state of each part, asked side by side, none waited for in vain.

A part that is away or slow leaves its series out and says so by `spot_scrape_part_up`; the others are told.
"""

from __future__ import annotations

import heapq
import logging
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from supervisor.domain.run import Run
from supervisor.domain.spending import run_cost_usd
from supervisor.ports.store import StoreDown
from supervisor.services.parts import Parts
from supervisor.services.reading.health import version
from supervisor.services.together import ask_together
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics
from supervisor.telemetry.counting import Reading

log = logging.getLogger(__name__)

Readings = Callable[[], Iterable[Reading]]

WITHIN_S = 3.0  # a scrape that takes ten is given up by its reader


def read(parts: Mapping[str, Readings], within_s: float = WITHIN_S) -> list[Reading]:
    """All parts' readings and which of them answered. May take `within_s` seconds; raises nothing."""
    answers = ask_together({name: _all_of(one) for name, one in parts.items()}, within_s)
    found: list[Reading] = []
    for name, answer in answers.items():
        found.append(metrics.PART_UP.reading(float(answer.good), name))
        if answer.good:
            found += answer.value
        elif answer.error is not None and not isinstance(answer.error, StoreDown):
            log.error(
                "a part could not be read for metrics",
                exc_info=answer.error,
                extra={telemetry.ACTION: "metrics", telemetry.DETAIL: name},
            )
    return found


def _all_of(part: Readings) -> Callable[[], list[Reading]]:
    return lambda: list(part())


def database(parts: Parts) -> Iterator[Reading]:
    """One question with a bound. Raises StoreDown."""
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
    """Series of single runs, of the `most` oldest: as runs come and go, those that are shown stay the same ones."""
    for run in heapq.nsmallest(most, active, key=attrgetter("key")):
        pulse = run.pulse
        if pulse is not None and pulse.step is not None:
            yield metrics.RUN_STEP.reading(pulse.step, run.run_id)
            if pulse.total:
                yield metrics.RUN_PROGRESS.reading(min(1.0, pulse.step / pulse.total), run.run_id)
        yield metrics.RUN_USD.reading(run_cost_usd(run, now), run.run_id)


def build(parts: Parts, kind_of_database: str) -> Iterator[Reading]:
    told = (version(), platform.python_version(), kind_of_database, parts.own_provider)
    yield metrics.BUILD.reading(1.0, *told)

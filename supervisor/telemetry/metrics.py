"""Metrics: first the objects that count, then every series, each defined once; docs/metrics.md has the same table.

The unit is a base unit and is part of the name; a name that ends in `_total` only increases, until the process starts
again. Label values are words from short lists: never a run, a path, a host or an address (`spot_run_…` are enabled by a
setting, and limited). Only the leading replica shows a series marked `leads`.

No metrics library is needed to count: prometheus-client takes a fifth of a second to load, and a beat costs one lock
and one addition. A process has one object of each series. If an unexpected label value gets in, no series has more than
LABELS_MAX sets of them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from supervisor.domain.causes import Cause
from supervisor.domain.observation import BEATS, MACHINES
from supervisor.domain.status import TERMINAL

LABELS_MAX = 1000
OTHER = "other"  # stands for all sets of labels beyond that
COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"
# Upper bounds of the buckets, in seconds.
_QUICK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_REQUEST_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TICK_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAUNCH_S = (5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one series, taken at the moment of a scrape."""

    series: Series
    value: float
    labels: Labels = ()


class Series:
    """`text`: one sentence for people; `labels`: their names; `leads`: only the leading process shows it."""

    kind = GAUGE

    def __init__(self, name: str, text: str, *labels: str, leads: bool = False) -> None:
        self.name, self.text, self.labels, self.leads = name, text, labels, leads
        self._lock = threading.Lock()

    def reading(self, value: float, *labels: str) -> Reading:
        return Reading(self, value, labels)

    def _slot(self, values: Mapping[Labels, object], labels: Labels) -> Labels:
        """Where to count these labels. Must be called under the lock."""
        return labels if labels in values or len(values) < LABELS_MAX else (OTHER,) * len(labels)


class Gauge(Series):
    """Read at the scrape, from memory or by one cheap query; it stores nothing."""


class Info(Series):
    """A 1 whose labels carry the information."""

    kind = INFO


class Counter(Series):
    """`initial`: sets of labels that exist with 0 from the start; a series without labels always does. A reader cannot
    see growth in a series that appears with its first count."""

    kind = COUNTER

    def __init__(self, name: str, text: str, *labels: str, initial: Iterable[Labels] = (), leads: bool = False) -> None:
        super().__init__(name, text, *labels, leads=leads)
        self._values: dict[Labels, float] = dict.fromkeys(initial if labels else [()], 0.0)

    def add(self, *labels: str, by: float = 1.0) -> None:
        with self._lock:
            try:
                self._values[labels] += by
            except KeyError:
                slot = self._slot(self._values, labels)
                self._values[slot] = self._values.get(slot, 0.0) + by

    def values(self) -> dict[Labels, float]:
        with self._lock:
            return dict(self._values)


class Level(Counter):
    """A gauge that is counted up and down where it happens, such as open streams."""

    kind = GAUGE


@dataclass(slots=True)
class Spread:
    """A distribution: `counts[i]` values are at most the i-th bound; the last count is of values beyond all bounds."""

    counts: list[int]
    total: float = 0.0

    def cumulative(self) -> Sequence[int]:
        return list(accumulate(self.counts))


class Histogram(Series):
    """`bounds`: upper bounds of the buckets, ascending, in the unit of the name."""

    kind = HISTOGRAM

    def __init__(self, name: str, text: str, *labels: str, bounds: Sequence[float], leads: bool = False) -> None:
        super().__init__(name, text, *labels, leads=leads)
        self.bounds = tuple(bounds)
        self._spreads: dict[Labels, Spread] = {} if labels else {(): self._empty()}

    def observe(self, value: float, *labels: str) -> None:
        at = bisect_left(self.bounds, value)
        with self._lock:
            spread = self._spreads.get(labels)
            if spread is None:
                spread = self._spreads.setdefault(self._slot(self._spreads, labels), self._empty())
            spread.counts[at] += 1
            spread.total += value

    def spreads(self) -> dict[Labels, Spread]:
        with self._lock:
            return {labels: Spread(list(spread.counts), spread.total) for labels, spread in self._spreads.items()}

    def _empty(self) -> Spread:
        return Spread([0] * (len(self.bounds) + 1))


# --- runs and cost
RUNS = Gauge("spot_runs", "Runs that are not over, or still have something to clean up.", "status", leads=True)
RUNS_ASKING = Gauge(
    "spot_runs_asking", "Runs that wait for a person to decide what follows the end of an attempt.", leads=True
)
ATTEMPTS_ACTIVE = Gauge("spot_attempts_active", "Attempts that have a machine.", "provider", leads=True)
MACHINES_RETIRING = Gauge(
    "spot_machines_retiring", "Machines whose attempt is over and that may still exist.", "provider", leads=True
)
RETIRING_OVERDUE_S = Gauge(
    "spot_machines_retiring_overdue_seconds", "How long the oldest of them is overdue.", "provider", leads=True
)
USD_PER_HOUR = Gauge(
    "spot_spend_usd_per_hour", "The price of all machines now; an unknown price counts as 0.", "provider", leads=True
)
USD_TOTAL = Counter(
    "spot_spend_usd_total", "The cost while this process led, summed tick by tick.", "provider", leads=True
)
RUNS_ENDED = Counter(
    "spot_runs_ended_total", "Runs that ended, by status.", "status",
    initial=[(str(status),) for status in sorted(TERMINAL)], leads=True,
)  # fmt: skip
LAUNCHES = Counter("spot_launches_total", "Machines that the supervisor decided to request.", "provider", leads=True)
TRIES = Counter("spot_tries_total", "Requests for machines: obtained, or the cause of failure.", "outcome", leads=True)
ATTEMPTS_ENDED = Counter(
    "spot_attempts_ended_total", "Attempts that ended, by cause.", "cause",
    initial=[(str(cause),) for cause in Cause], leads=True,
)  # fmt: skip
FIRST_BEAT_S = Histogram(
    "spot_first_beat_seconds", "From the request for a machine to the first beat of its training.", "provider",
    bounds=_LAUNCH_S, leads=True,
)  # fmt: skip
RECOVERY_S = Histogram(
    "spot_recovery_seconds", "From the end of an attempt to the first beat of the next one.", "cause",
    bounds=_LAUNCH_S, leads=True,
)  # fmt: skip
PREEMPTIONS_SAVED = Counter(
    "spot_preemptions_saved_total",
    "Preemptions after which a run trains again, by whether its last step was saved on notice.", "saved",
    initial=[("yes",), ("no",)], leads=True,
)  # fmt: skip
RUN_STEP = Gauge("spot_run_step", "The last step of a run that is not over (metrics_per_run).", "run", leads=True)
RUN_PROGRESS = Gauge("spot_run_progress_ratio", "The share of its steps that a run has completed.", "run", leads=True)
RUN_USD = Gauge("spot_run_cost_usd", "The cost of a run so far.", "run", leads=True)

# --- the loop
LEADER = Gauge("spot_leader", "1 where this process holds the lease: of its cell, or of a task.", "lease")
POLL_S = Gauge("spot_poll_interval_seconds", "The poll interval: the time between two ticks.")
TICK_AGE_S = Gauge("spot_tick_age_seconds", "The time since the end of the last tick.", leads=True)
TICK_LAG_S = Gauge("spot_tick_lag_seconds", "How late the last tick began.", leads=True)
TICK_S = Histogram("spot_tick_duration_seconds", "How long a tick took.", bounds=_TICK_S, leads=True)
TICKS_FAILED = Counter("spot_ticks_failed_total", "Ticks that were aborted.", leads=True)
OBSERVE_ERRORS = Counter(
    "spot_observe_errors_total", "Bulk reads that failed: machines or beats.", "source",
    initial=[(MACHINES,), (BEATS,)], leads=True,
)  # fmt: skip
BREAKER_OPEN = Gauge("spot_breaker_open", "1 while nothing is ended because of this source.", "source", leads=True)
INCIDENTS_OPEN = Gauge("spot_incidents_open", "Incidents that are open: several runs failed alike.", leads=True)
SWEEPS = Counter("spot_sweeps_total", "Sweeps for machines that serve no run.", leads=True)
MACHINES_LEAKED = Counter("spot_machines_leaked_total", "Our machines that served no run.", "provider", leads=True)
MACHINES_RELEASED = Counter(
    "spot_machine_releases_total", "Release requests; one machine may need several.", "provider", leads=True
)
ACTIONS_PENDING = Gauge("spot_actions_pending", "Actions that are running or queued.", leads=True)
ACTIONS = Counter(
    "spot_actions_total", "Actions: done, unclear (retried), or failed (a bug).", "action", "outcome", leads=True
)

# --- beats
BEATS_PUSHED = Counter(
    "spot_beats_pushed_total", "Beats sent by HTTP: accepted, refused, or away (503: use the store).", "outcome",
    initial=[("accepted",), ("refused",), ("away",)],
)  # fmt: skip
BEATS_IGNORED = Counter("spot_stored_beats_ignored_total", "Stored beats that were not trusted.", leads=True)

# --- announcements and live events
OUTBOX_PENDING = Gauge("spot_outbox_pending", "Announcements not yet passed on; counted up to 10000.")
OUTBOX_OVERDUE_S = Gauge("spot_outbox_overdue_seconds", "How long the oldest of them has been due.")
DELIVERIES_PENDING = Gauge("spot_deliveries_pending", "Pending deliveries to webhooks; counted up to 10000.")
DELIVERIES_OVERDUE_S = Gauge("spot_deliveries_overdue_seconds", "How long the oldest of them has been due.")
ENDPOINTS_DISABLED = Gauge("spot_webhooks_disabled", "Webhooks that were switched off because they failed.")
DELIVERIES = Counter(
    "spot_deliveries_total", "Tries of deliveries: delivered, failed (retried), or given_up.", "form", "outcome",
    initial=[
        (form, outcome)
        for form in ("log", "standard", "slack", "discord")
        for outcome in ("delivered", "failed", "given_up")
    ],
)  # fmt: skip
STREAMS_OPEN = Level("spot_event_streams", "Open streams of live events.")
STREAMS_DROPPED = Counter("spot_event_streams_dropped_total", "Streams that the server closed, and why.", "reason")

# --- requests
REQUESTS = Counter(
    "spot_http_requests_total", "Requests by operation (never by path), method and class of the response.",
    "operation", "method", "status",
)  # fmt: skip
REQUEST_S = Histogram(
    "spot_http_request_duration_seconds", "From the request to the start of the response.", "operation",
    bounds=_REQUEST_S,
)  # fmt: skip
REFUSALS = Counter(
    "spot_http_refusals_total", "Refusals by code: UNAUTHORIZED (401), SCOPE_MISSING (403), RATE_LIMITED (429)…",
    "code",
)  # fmt: skip

# --- dependencies
WRITE_WAIT_S = Histogram("spot_database_write_wait_seconds", "How long a writer waited.", bounds=_QUICK_S)
COMMIT_S = Histogram("spot_database_commit_seconds", "How long commits took.", bounds=_QUICK_S)
CONNECTIONS = Gauge("spot_database_connections_in_use", "Connections in use now.")
STORE_CALLS = Counter(
    "spot_object_store_calls_total",
    "Calls by method: ok, answered (the store refused: missing, changed), or unavailable.",
    "method",
    "outcome",
)
STORE_S = Histogram("spot_object_store_call_seconds", "How long a call took.", "method", bounds=_REQUEST_S)
BUILD = Info("spot_build_info", "The version and its environment.", "version", "python", "database", "provider")
PART_UP = Gauge("spot_scrape_part_up", "0 where a part of this scrape could not be read.", "part")

ALL: tuple[Series, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Series))

"""Metrics: plain objects that count, and the names, each defined once; docs/metrics.md has the same table.

Base units, and the unit in the name; a name that ends in `_total` goes up only, until the process starts anew. Labels
are words out of short lists: never a run, a path, a host or an address (`spot_run_…` are asked for by a setting, and
are capped). What is marked `leads` is known to the replica that leads alone: the others do not show it.

The objects know no library of metrics: the rooms that count load nothing for it (prometheus-client takes a fifth of a
second), and a beat pays for one lock and one addition. A process has one of each, as it has one log; they begin at zero
with it. Should an unforeseen label value get in, no series has more than LABELS_MAX sets of them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from supervisor.domain.causes import Cause
from supervisor.domain.observation import BEATS, MACHINES
from supervisor.domain.status import TERMINAL

LABELS_MAX = 1000
OTHER = "other"  # stands for all sets of labels beyond that
COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one series, taken at the moment of a scrape."""

    series: Series
    value: float
    labels: Labels = ()


class Series:
    """`name`, `kind`, `text` (one sentence for people) and the names of the labels. `leads`: only the process that
    leads has it."""

    def __init__(self, name: str, kind: str, text: str, *labels: str, leads: bool = False) -> None:
        self.name, self.kind, self.text, self.labels, self.leads = name, kind, text, labels, leads

    def reading(self, value: float, *labels: str) -> Reading:
        return Reading(self, value, labels)


class Gauge(Series):
    """Read at the scrape, from memory or by one cheap question; it keeps nothing."""

    def __init__(self, name: str, text: str, *labels: str, leads: bool = False) -> None:
        super().__init__(name, GAUGE, text, *labels, leads=leads)


class Info(Series):
    """A 1 whose labels are what there is to tell."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, INFO, text, *labels)


class _Counted(Series):
    def __init__(self, name: str, kind: str, text: str, *labels: str, leads: bool = False) -> None:
        super().__init__(name, kind, text, *labels, leads=leads)
        self._lock = threading.Lock()

    def _room(self, known: Mapping[Labels, object], labels: Labels) -> Labels:
        """To be called under the lock."""
        return labels if labels in known or len(known) < LABELS_MAX else (OTHER,) * len(labels)


class Counter(_Counted):
    """Goes up only. `known`: sets of labels that are there at 0 from the start, all where there are no labels: a reader
    sees no growth in a series that appears with its first count."""

    def __init__(self, name: str, text: str, *labels: str, known: Iterable[Labels] = (), leads: bool = False) -> None:
        super().__init__(name, COUNTER, text, *labels, leads=leads)
        self._values: dict[Labels, float] = dict.fromkeys(known if labels else [()], 0.0)

    def add(self, *labels: str, by: float = 1.0) -> None:
        with self._lock:
            try:
                self._values[labels] += by
            except KeyError:
                room = self._room(self._values, labels)
                self._values[room] = self._values.get(room, 0.0) + by

    def values(self) -> dict[Labels, float]:
        with self._lock:
            return dict(self._values)


class Level(Counter):
    """A gauge that is counted up and down where it happens, such as what is open now."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, text, *labels)
        self.kind = GAUGE


@dataclass(slots=True)
class Spread:
    """How values lie: `counts[i]` of them are at most the i-th bound, the last count is of those beyond all."""

    counts: list[int]
    total: float = 0.0

    def cumulative(self) -> Sequence[int]:
        found, so_far = [], 0
        for count in self.counts:
            so_far += count
            found.append(so_far)
        return found


class Histogram(_Counted):
    """`bounds`: upper ends of the buckets, going up, in the unit that the name ends in."""

    def __init__(self, name: str, text: str, *labels: str, bounds: Sequence[float], leads: bool = False) -> None:
        super().__init__(name, HISTOGRAM, text, *labels, leads=leads)
        self.bounds = tuple(bounds)
        self._spreads: dict[Labels, Spread] = {}
        if not labels:
            self._spreads[()] = self._empty()

    def observe(self, value: float, *labels: str) -> None:
        at = bisect_left(self.bounds, value)
        with self._lock:
            spread = self._spreads.get(labels)
            if spread is None:
                spread = self._spreads.setdefault(self._room(self._spreads, labels), self._empty())
            spread.counts[at] += 1
            spread.total += value

    def spreads(self) -> dict[Labels, Spread]:
        with self._lock:
            return {labels: Spread(list(one.counts), one.total) for labels, one in self._spreads.items()}

    def _empty(self) -> Spread:
        return Spread([0] * (len(self.bounds) + 1))


_TOLD = ("delivered", "failed", "given_up")
_QUICK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_REQUEST_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TICK_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LAUNCH_S = (5.0, 10.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)

# --- runs and what they cost
RUNS = Gauge("spot_runs", "Runs that are not over, or still have something to clean up.", "status", leads=True)
ATTEMPTS_ACTIVE = Gauge("spot_attempts_active", "Attempts that live on a machine.", "provider", leads=True)
MACHINES_RETIRING = Gauge(
    "spot_machines_retiring", "Machines whose attempt is over and that are not known gone.", "provider", leads=True
)
RETIRING_OVERDUE_S = Gauge(
    "spot_machines_retiring_overdue_seconds",
    "How long the oldest of them should have been gone.",
    "provider",
    leads=True,
)
USD_PER_HOUR = Gauge(
    "spot_spend_usd_per_hour", "What all machines bill now; one of unknown price counts as 0.", "provider", leads=True
)
USD_TOTAL = Counter(
    "spot_spend_usd_total", "What was billed while this process led, look by look.", "provider", leads=True
)
RUNS_ENDED = Counter(
    "spot_runs_ended_total", "Runs that came to an end, by what it was.", "status",
    known=[(str(status),) for status in sorted(TERMINAL)], leads=True,
)  # fmt: skip
LAUNCHES = Counter("spot_launches_total", "Machines that were decided to be asked for.", "provider", leads=True)
TRIES = Counter(
    "spot_tries_total", "Asked-for machines that were obtained, or why not (a cause).", "outcome", leads=True
)
ATTEMPTS_ENDED = Counter(
    "spot_attempts_ended_total", "Attempts that ended, by cause.", "cause",
    known=[(str(cause),) for cause in Cause], leads=True,
)  # fmt: skip
FIRST_BEAT_S = Histogram(
    "spot_first_beat_seconds", "From asking for a machine to the first beat of its training.", "provider",
    bounds=_LAUNCH_S, leads=True,
)  # fmt: skip
RECOVERY_S = Histogram(
    "spot_recovery_seconds", "From the end of an attempt to the first beat of the next one.", "cause",
    bounds=_LAUNCH_S, leads=True,
)  # fmt: skip
RUN_STEP = Gauge("spot_run_step", "Last step of a run that is not over (metrics_per_run).", "run", leads=True)
RUN_PROGRESS = Gauge("spot_run_progress_ratio", "The share of its steps that a run has done.", "run", leads=True)
RUN_USD = Gauge("spot_run_cost_usd", "What a run has cost so far.", "run", leads=True)

# --- the loop
LEADER = Gauge("spot_leader", "1 where this process holds the lease: of its cell, or of a task of the house.", "lease")
POLL_S = Gauge("spot_poll_interval_seconds", "How often the world is looked at.")
TICK_AGE_S = Gauge("spot_tick_age_seconds", "Since the end of the last look.", leads=True)
TICK_LAG_S = Gauge("spot_tick_lag_seconds", "How late the last look began.", leads=True)
TICK_S = Histogram("spot_tick_duration_seconds", "How long a look and its decisions took.", bounds=_TICK_S, leads=True)
TICKS_FAILED = Counter("spot_ticks_failed_total", "Looks that were broken off.", leads=True)
OBSERVE_ERRORS = Counter(
    "spot_observe_errors_total", "Bulk reads that failed: machines or beats.", "source",
    known=[(MACHINES,), (BEATS,)], leads=True,
)  # fmt: skip
BREAKER_OPEN = Gauge("spot_breaker_open", "1 while nothing is ended on the word of this source.", "source", leads=True)
SWEEPS = Counter("spot_sweeps_total", "Sweeps for machines that serve nobody.", leads=True)
MACHINES_LEAKED = Counter("spot_machines_leaked_total", "Machines of ours that served nobody.", "provider", leads=True)
MACHINES_RELEASED = Counter(
    "spot_machine_releases_total", "Releases that were sent; one machine may take several.", "provider", leads=True
)
ACTIONS_PENDING = Gauge("spot_actions_pending", "Actions that are under way or stand in line.", leads=True)
ACTIONS = Counter(
    "spot_actions_total", "Actions: done, unclear (tried again), or failed (a fault of ours).", "action", "outcome",
    leads=True,
)  # fmt: skip

# --- beats
BEATS_PUSHED = Counter(
    "spot_beats_pushed_total", "Beats that came by HTTP: accepted, refused, or away (503: use the store).", "outcome",
    known=[("accepted",), ("refused",), ("away",)],
)  # fmt: skip
BEATS_IGNORED = Counter("spot_stored_beats_ignored_total", "Stored beats that were not believed.", leads=True)

# --- announcements and live events
OUTBOX_PENDING = Gauge("spot_outbox_pending", "Announcements not handed on yet; counted up to 10000.")
OUTBOX_OVERDUE_S = Gauge("spot_outbox_overdue_seconds", "How long the oldest of them has been due.")
DELIVERIES_PENDING = Gauge("spot_deliveries_pending", "Deliveries to webhooks that wait; counted up to 10000.")
DELIVERIES_OVERDUE_S = Gauge("spot_deliveries_overdue_seconds", "How long the oldest of them has been due.")
ENDPOINTS_DISABLED = Gauge("spot_webhooks_disabled", "Webhooks that were switched off because they failed.")
DELIVERIES = Counter(
    "spot_deliveries_total", "Tries to tell somebody: delivered, failed (tried again), or given_up.", "form", "outcome",
    known=[(form, how) for form in ("log", "standard", "slack", "discord") for how in _TOLD],
)  # fmt: skip
STREAMS_OPEN = Level("spot_event_streams", "Streams of live events that are open.")
STREAMS_DROPPED = Counter("spot_event_streams_dropped_total", "Streams that were cut off, and why.", "reason")

# --- the doors
REQUESTS = Counter(
    "spot_http_requests_total", "Requests by operation (never by path), method and class of the answer.",
    "operation", "method", "status",
)  # fmt: skip
REQUEST_S = Histogram("spot_http_request_duration_seconds", "Until the answer began.", "operation", bounds=_REQUEST_S)
REFUSALS = Counter(
    "spot_http_refusals_total", "Refusals by code: UNAUTHORIZED (401), SCOPE_MISSING (403), RATE_LIMITED (429)…",
    "code",
)  # fmt: skip

# --- what we stand on
WRITE_WAIT_S = Histogram("spot_database_write_wait_seconds", "Until a writer had its turn.", bounds=_QUICK_S)
COMMIT_S = Histogram("spot_database_commit_seconds", "How long commits took.", bounds=_QUICK_S)
CONNECTIONS = Gauge("spot_database_connections_in_use", "Connections that are in use now.")
STORE_CALLS = Counter(
    "spot_object_store_calls_total", "Calls by method: ok, answered (missing, changed), or unavailable.",
    "method", "outcome",
)  # fmt: skip
STORE_S = Histogram("spot_object_store_call_seconds", "How long a call took.", "method", bounds=_REQUEST_S)
BUILD = Info("spot_build_info", "This version, and what it runs on.", "version", "python", "database", "provider")
PART_UP = Gauge("spot_scrape_part_up", "0 where a part of this scrape could not be read.", "part")


def _all() -> Iterable[Series]:
    return (value for value in globals().values() if isinstance(value, Series))


ALL: tuple[Series, ...] = tuple(_all())

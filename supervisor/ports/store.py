"""The database: runs, their history, and all that must survive kill -9.

Status, events and outbox are written in one transaction. A change of a run is guarded by its row version and, in the
loop, by the epoch of the lease: a row that does not match drops its events too. All calls may raise StoreDown: nothing
was changed, or the response was lost; read again before a retry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.bases import Base
from supervisor.domain.events import Event
from supervisor.domain.figures import NOTHING, MachineFigures
from supervisor.domain.incidents import Incident
from supervisor.domain.machines import Call, OfferKey, ZoneRecord
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.accounts import Accounts, Tokens
from supervisor.ports.history import History, Patrols, StoredEvent
from supervisor.ports.notifier import Deliveries, Endpoints

COUNTED_TO = 10_000  # counts stop here: the cost of a count must not grow with what it counts
LINE_PARTS = 22  # parts of a run's line of steps: 23 points at most


class StoreDown(Exception):
    """The database did not respond, is full, or is locked beyond its deadline."""


class RowUnreadable(StoreDown):
    """The row of this run cannot be parsed. Other runs are not affected."""


class DuplicateRun(Exception):
    """Another run has this run_id."""


class KeyHeld(Exception):
    """Another transaction has taken this Idempotency-Key and does not end."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """`…_pending`: neither delivered nor given up, counted up to COUNTED_TO, without deliveries to disabled endpoints.
    `…_due_at`: when the oldest of them became due (epoch seconds), or will; None = there is none. `endpoints_disabled`:
    after failures. `connections`: to the database, in use now."""

    outbox_pending: int
    outbox_due_at: float | None
    deliveries_pending: int
    deliveries_due_at: float | None
    endpoints_disabled: int
    connections: int


@dataclass(frozen=True, slots=True)
class RunPage:
    """In the order of the filter. `counts`: status -> number of runs under the same filter, without its `statuses`."""

    runs: tuple[Run, ...]
    labels: Mapping[int, Mapping[str, str]]
    next_key: int | None  # the `before_key` of the next page
    counts: Mapping[str, int] = field(default_factory=dict)
    usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A point of a run's line of steps. `step` None: the attempt had not reported one by then."""

    at: float
    attempt: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Lease:
    """Leadership of one cell. Each guarded UPDATE has the `epoch`. The holder stops acting at `deadline`, on this
    process's monotonic clock."""

    name: str
    owner: str
    epoch: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Change:
    """One decided step of one run. Rows of the attempt and the try are written where `after` differs from `before`.
    `parted`: rows of earlier attempts that are written with it."""

    before: Run
    after: Run
    events: tuple[Event, ...] = ()
    parted: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of a run's series, about once a minute. `carried`: a point only, not the run's newest pulse."""

    key: int
    at: float
    attempt: int
    pulse: Pulse
    figures: MachineFigures = NOTHING  # as read; a written sample has those of the pulse's telemetry
    carried: bool = False


@dataclass(frozen=True, slots=True)
class PushedBeat:
    """A beat for the leader from the replica that received it, which has checked and removed its nonce. `age_s`: since
    its receipt."""

    beat: Beat
    age_s: float


@dataclass(frozen=True, slots=True)
class OutboxItem:
    id: int
    channel: str
    tries: int
    sequence: int  # of this run, counted from 1
    stored: StoredEvent


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """The response to the request with an Idempotency-Key. status 0 = that request is still in progress."""

    fingerprint: str
    status: int
    body: str
    location: str


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list shows, and in which order; its counts have the same WHERE."""

    statuses: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    zone: str | None = None
    group: str | None = None
    owner: str | None = None
    created_after: float | None = None
    text: str | None = None  # part of the run id
    run_ids: tuple[str, ...] = ()  # only these; an unknown one matches nothing
    oldest_first: bool = False


class Incidents(Protocol):
    """Of all cells. An incident is open until it is closed, once; of two open ones of a cell the first thing that their
    ends have in common differs. All calls may raise StoreDown."""

    def current(self, cell: str, closed_after: float) -> list[Incident]:
        """The open ones, and those that were closed after this time."""

    def newest(self, limit: int, only_open: bool) -> list[Incident]: ...

    def find(self, incident_id: int) -> Incident | None: ...

    def ended(self, cell: str, since: float, faults_since: float, limit: int) -> list[tuple[Run, Attempt]]:
        """Attempts that ended after `since`, and after `faults_since` with a fault of their GPU, the newest first; the
        run as it is now. Without preempted ones."""

    def write(
        self, incident: Incident, announce: Callable[[Incident], Event] | None, lease: Lease, now: float
    ) -> Incident | None:
        """Store a new incident (id 0) of the lease's cell, or one that has grown, and the event of it in the same
        transaction. None, and nothing is written: the lease is lost, there is an open one already, or it was closed,
        for an owner too."""

    def close(
        self, incident_id: int, by: str, reason: str, event: Event, now: float, *, owner: str | None = None
    ) -> Incident | None:
        """Close an open one, with the event. `owner`: for the runs of this owner alone (`Incident.closed_for`). None,
        and nothing is written: there is none, or it was closed before."""


class Bases(Protocol):
    """Deleted ones are not among them: only their names are kept. All calls may raise StoreDown."""

    def all(self) -> list[Base]:
        """The newest first."""

    def find(self, name: str) -> Base | None:
        """By its own name, with the version; a deleted one too."""

    def family(self, family: str) -> list[Base]: ...

    def create(self, family: str, base: Base, event: Event, now: float) -> Base:
        """A new one of this family, with its event: it gets the next free name, which no other base ever had."""

    def change(self, base: Base, event: Event | None, now: float) -> Base | None:
        """`base`: as it becomes, with the version that was read. None, and nothing is written: another was faster."""


class Transaction(Accounts, Protocol):
    """One write transaction (SQLite: BEGIN IMMEDIATE behind the process-wide FIFO lock). Commits when the block ends,
    rolls back when it raises. Keep it short: no I/O but the database inside."""

    def find(self, run_id: str) -> Run | None: ...

    def spec(self, key: int) -> dict[str, Any]:
        """The newest spec of this run, as it was submitted."""

    def active_of(self, owner: str, most: int) -> int:
        """The number of this owner's active runs, counted up to `most`. For one owner such transactions run one after
        the other, so each counts the runs that the one before has inserted."""

    def insert(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str], events: Sequence[Event]) -> Run:
        """The run with its new `key`. DuplicateRun when the id is taken."""

    def put_spec(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        """Another spec and labels from this generation on."""

    def apply(self, change: Change, now: float) -> Run | None:
        """Guarded by the row version. The run with its new version; None = the row has another version."""

    def take_key(self, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
        """None = the key is ours now; else its response (perhaps still in progress). Waits for another transaction that
        takes the same key; raises KeyHeld after a timeout."""

    def keep_response(self, scope: str, key: str, response: KeptResponse) -> None: ...


class Store(Protocol):
    supervisor_id: str  # made with the database; our machines carry it
    secret: str  # 32 random bytes in hex, made with the database; never shown

    @property
    def tokens(self) -> Tokens: ...

    @property
    def endpoints(self) -> Endpoints: ...

    @property
    def deliveries(self) -> Deliveries: ...

    @property
    def patrols(self) -> Patrols: ...

    @property
    def history(self) -> History: ...

    @property
    def incidents(self) -> Incidents: ...

    @property
    def bases(self) -> Bases: ...

    def begin(self, now: float) -> AbstractContextManager[Transaction]: ...

    # --- the loop -------------------------------------------------------------------------------------------------

    def active(self, cell: str, seen: Mapping[int, int]) -> tuple[list[Run], set[int]]:
        """The runs of this cell that are not settled: (those whose version differs from `seen[key]`, the keys of all).
        Each run has its attempt, open or last try, and last written pulse."""

    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        """Commit changes, each guarded by row version and lease epoch; returns the runs that matched, by key, with
        their new version. After the loss of the lease none match. The write lock is held for ≤ 20 ms + one commit:
        a longer page is committed in parts."""

    def set_nonce_hash(self, key: int, launch_id: str, nonce_hash: str, lease: Lease) -> bool:
        """Guarded by the epoch; False = the try is not the run's open one, or the lease is lost. Does not change the
        row version."""

    def nonce_hash(self, run_id: str, launch_id: str) -> str | None:
        """Of a try of this run; None = there is no such try."""

    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        """The newest pulse of each run, and one point of its series. Does not change row versions."""

    def put_beats(self, beats: Sequence[PushedBeat]) -> dict[str, str]:
        """Store beats for the leaders of their runs' cells; for each run the newest (launch, sequence) stays. Returns
        the status of each run that is not settled; beats of other runs are dropped."""

    def take_beats(self, lease: Lease) -> list[PushedBeat]:
        """The beats that other replicas stored for the leader of this cell, at most one per run, each returned once.
        Ages follow the database's clock. Empty after the loss of the lease."""

    def zones(self, cell: str) -> dict[OfferKey, ZoneRecord]: ...

    def past_calls(self, cell: str, most: int) -> list[Call]:
        """Create calls that brought a machine, and calls that were refused for a lack of capacity: of the newest runs
        of this cell, up to `most` of each."""

    def machines(self, cell: str, owner: str | None = None) -> dict[OfferKey, int]:
        """The number of machines per offer that the runs of this cell (and owner) have now, by their rows."""

    def put_zone(self, cell: str, key: OfferKey, record: ZoneRecord | None) -> None: ...

    def take_lease(self, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool = False) -> Lease | None:
        """Take a free or expired lease (epoch + 1) or renew our own (same epoch), by the database's clock. `alone`: an
        exclusive lock of the data folder proves that no other holder lives, so the lease is taken at once."""

    def drop_lease(self, lease: Lease) -> None: ...

    def take_over(self, theirs: Lease, ours: Lease, most: int) -> int:
        """Move up to `most` runs of their cell, with its zone records, to ours; returns their number. 0 = one of the
        leases is lost, or there are no more."""

    def leaderless(self) -> dict[str, int]:
        """Cell -> number of its runs that are not settled, for cells whose lease has no holder now."""

    def lease_names(self) -> list[str]:
        """Of all leases that ever had a holder. The lease of a cell has the cell's name."""

    def due_outbox(self, now: float, limit: int) -> list[OutboxItem]:
        """Oldest first, without the channel `webhooks`, which `deliveries.fan_out` takes. Unreadable rows are given up,
        so they do not block the others."""

    def settle_outbox(self, item_id: int, delivered: bool, next_at: float | None, detail: str, now: float) -> None:
        """Delivered; or to be retried at `next_at`; or (None) given up."""

    def prune(self, now: float, limit: int) -> int:
        """Delete at most `limit` rows at the end of their retention (RULES section 8); returns their number."""

    def add_events(self, key: int | None, events: Sequence[Event], now: float) -> None: ...

    # --- readers --------------------------------------------------------------------------------------------------

    def find(self, run_id: str) -> Run | None: ...

    def statuses(self, run_ids: Collection[str]) -> dict[str, Status]:
        """The status of each of these runs; an unknown run id is left out. One query."""

    def labels(self, key: int) -> dict[str, str]: ...

    def spec(self, key: int) -> dict[str, Any]: ...

    def page(self, where: RunFilter, before_key: int | None, limit: int) -> RunPage: ...

    def attempts(self, key: int) -> list[Attempt]: ...

    def attempts_of(self, keys: Collection[int]) -> dict[int, list[Attempt]]:
        """Of each of these runs, in no order; a run without attempts is left out. One query."""

    def tries(self, key: int) -> list[Try]: ...

    def events(
        self,
        run_id: str | None,
        after_id: int,
        limit: int,
        newest_first: bool = False,
        *,
        owner: str | None = None,
        actor: str | None = None,
        before_id: int | None = None,
    ) -> list[StoredEvent]:
        """None: events of all runs and of the supervisor itself; of all owners; of all actors; up to the newest."""

    def kept_response(self, scope: str, key: str) -> KeptResponse | None:
        """None: there was no request with this key, within the retention of responses."""

    def payer(self, run: Run) -> str:
        """The token whose cap the present generation of this run counts for; "" = none."""

    def counted_micro(self, token_id: str, now: float) -> int:
        """As in `Transaction`, for a reader, who waits for nobody."""

    def samples(self, key: int, since: float, limit: int) -> list[Sample]: ...

    def lines(self, keys: Sequence[int]) -> dict[int, list[Step]]:
        """For each run its first and newest point and evenly spaced ones in between, 24 at most, in order of time. The
        cost does not depend on the length of the runs. Runs without points are left out."""

    def check(self) -> None:
        """StoreDown unless a write transaction commits; SchemaMismatch unless the schema is the one of this version."""

    def backlog(self) -> Backlog:
        """What waits for delivery, at a bounded cost."""

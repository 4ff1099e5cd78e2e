"""The database: runs, their history, and everything that must survive kill -9.

Status, events and outbox are written in one transaction. A change of a run is guarded by its row version and, where
it comes from the loop, by the lease's epoch: a row that is not hit drops its events with it. Every call may raise
StoreDown (nothing was changed, or the answer was lost: read again before repeating).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.callers import Token
from supervisor.domain.events import Event
from supervisor.domain.figures import NOTHING, MachineFigures
from supervisor.domain.machines import OfferKey, ZoneRecord
from supervisor.domain.run import Run
from supervisor.ports.history import History, Patrols, StoredEvent
from supervisor.ports.notifier import Deliveries, Endpoints


class StoreDown(Exception):
    """The database did not answer, is full, or is locked beyond its deadline."""


class RowUnreadable(StoreDown):
    """The database answered, and what it holds of this run cannot be understood. Other runs are not touched by it."""


class DuplicateRun(Exception):
    """Another run has this run_id."""


class KeyHeld(Exception):
    """Another transaction has taken this Idempotency-Key and does not end."""


COUNTED_TO = 10_000  # more is told as this many: a number that grows must not make its own question dear


@dataclass(frozen=True, slots=True)
class Backlog:
    """`…_pending`: how many are neither delivered nor given up, at most COUNTED_TO; what is kept for an endpoint that
    is switched off does not count. `…_due_at`: epoch seconds since which the oldest of them has been due, which may lie
    ahead; None = there is none. `endpoints_disabled`: because they failed. `connections`: to the database, in use
    now."""

    outbox_pending: int
    outbox_due_at: float | None
    deliveries_pending: int
    deliveries_due_at: float | None
    endpoints_disabled: int
    connections: int


LINE_PARTS = 22  # into which a run's line of steps is cut: 23 points at most


@dataclass(frozen=True, slots=True)
class RunPage:
    """In the order of the filter. `counts`: status -> number of runs under the same filter, without its `statuses`."""

    runs: tuple[Run, ...]
    labels: Mapping[int, Mapping[str, str]]
    next_key: int | None  # give it back as `before_key` for the next page
    counts: Mapping[str, int] = field(default_factory=dict)
    usd_per_h: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A point of a run's line of steps. `step` None: the attempt had told none by then."""

    at: float
    attempt: int
    step: int | None


class Tokens(Protocol):
    """What each token stands for, and the HMAC by which it is found again, never the token itself. Making and revoking
    one writes its event in the same transaction. Every call may raise StoreDown."""

    def add(self, token: Token, digest: str, event: Event) -> None:
        """A new row, with the event that tells of it, at the token's own time."""
        ...

    def find(self, digest: str) -> Token | None:
        """Also one that has expired or was revoked; None = nobody made such a token."""
        ...

    def get(self, token_id: str) -> Token | None: ...

    def newest(self, limit: int) -> list[Token]:
        """Those that were not revoked first, in each part the newest first."""
        ...

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        """False = there is none, or it was revoked before: nothing is written, the event neither."""
        ...

    def note_used(self, used: Mapping[str, float]) -> None:
        """id -> when it was used last. An earlier time than the one on record changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """Leadership of one cell. `epoch` stands in every guarded UPDATE; `deadline` is on this process's monotonic
    clock, and whoever holds the lease stops acting when it has passed."""

    name: str
    owner: str
    epoch: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Change:
    """One decided step of one run. Attempt and try rows are written where `after` holds another value than `before`;
    `parted` are rows of earlier attempts to be written with it."""

    before: Run
    after: Run
    events: tuple[Event, ...] = ()
    parted: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of a run's series, about once a minute. `carried`: only a point; the run's newest pulse is another."""

    key: int
    at: float
    attempt: int
    pulse: Pulse
    figures: MachineFigures = NOTHING  # as read; what is written comes from the pulse's telemetry
    carried: bool = False


@dataclass(frozen=True, slots=True)
class PushedBeat:
    """A beat on its way from the replica that received it, which has checked its nonce and left it out, to the leader.
    `age_s`: since its receipt."""

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
    """What an Idempotency-Key was answered with. status 0 = the first request is still in flight."""

    fingerprint: str
    status: int
    body: str
    location: str


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a list shows, and in which order; counts come from the same WHERE."""

    statuses: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    zone: str | None = None
    owner: str | None = None
    created_after: float | None = None
    text: str | None = None  # part of the run id
    run_ids: tuple[str, ...] = ()  # these only; those that do not exist match nothing
    oldest_first: bool = False


class Transaction(Protocol):
    """One write transaction (SQLite: BEGIN IMMEDIATE behind the process-wide FIFO lock). Commits when the block ends,
    rolls back when it raises. Keep it short: no I/O but the database inside."""

    def find(self, run_id: str) -> Run | None: ...

    def spec(self, key: int) -> dict[str, Any]:
        """The newest spec of this run, as it was submitted."""
        ...

    def active_of(self, owner: str, most: int) -> int:
        """How many of this owner's runs are not over, counted up to `most`. Of transactions that ask this of the same
        owner, one goes on at a time: what one of them inserts, the next has counted."""
        ...

    def insert(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str], events: Sequence[Event]) -> Run:
        """The run with its new `key`. DuplicateRun when the id is taken."""
        ...

    def put_spec(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        """Another spec and labels from this generation on."""
        ...

    def apply(self, change: Change, now: float) -> Run | None:
        """Guarded by the row version. The run with its new version, or None when the row was not hit."""
        ...

    def take_key(self, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
        """None = the key is ours now; else what is kept for it (perhaps still in flight). Waits for another transaction
        that has just taken it; raises KeyHeld where that takes too long."""
        ...

    def keep_response(self, scope: str, key: str, answer: KeptResponse) -> None: ...


class Store(Protocol):
    supervisor_id: str  # made once, when the database is made; machines of ours carry it
    secret: str  # 32 random bytes in hex, made with the database; told to nobody

    @property
    def tokens(self) -> Tokens: ...

    @property
    def endpoints(self) -> Endpoints: ...

    @property
    def deliveries(self) -> Deliveries: ...

    @property
    def patrols(self) -> Patrols: ...

    @property
    def history(self) -> History:
        """The events, to be followed."""
        ...

    def begin(self, now: float) -> AbstractContextManager[Transaction]: ...

    # --- the loop -------------------------------------------------------------------------------------------------

    def active(self, cell: str, seen: Mapping[int, int]) -> tuple[list[Run], set[int]]:
        """Runs of this cell that are not settled: (those whose version differs from `known[key]`, the keys of all).
        Each run carries its attempt, open or last try, and last written pulse."""
        ...

    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        """Commit a page of changes in one transaction, each guarded by row version and lease epoch: the runs that were
        hit, by key, with their new version. A lost lease hits none. The write lock is held ≤ 20 ms + one commit: a
        longer page is committed in parts."""
        ...

    def set_nonce_hash(self, key: int, launch_id: str, nonce_hash: str, lease: Lease) -> bool:
        """Guarded by the epoch; False when the try is not the run's open one or the lease is lost. Does not change
        the row version."""
        ...

    def nonce_hash(self, run_id: str, launch_id: str) -> str | None:
        """Of a try of this run; None when there is no such try."""
        ...

    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        """The newest pulse of each run, and one point of its series. Does not change row versions."""
        ...

    def put_beats(self, beats: Sequence[PushedBeat]) -> dict[str, str]:
        """Leave beats for the leaders of their runs' cells; of each run the newest (launch, sequence) stays. The status
        of each run that is not settled; for any other run nothing is kept and nothing told."""
        ...

    def take_beats(self, lease: Lease) -> list[PushedBeat]:
        """What other replicas have left for the leader of this cell, at most one for each run; each is given once. Ages
        are told by the database's clock. Nothing when the lease is lost."""
        ...

    def zones(self, cell: str) -> dict[OfferKey, ZoneRecord]: ...

    def machines(self, cell: str, owner: str | None = None) -> dict[OfferKey, int]:
        """How many machines of each offer the runs of this cell (and owner) have now, as far as their rows know."""
        ...

    def put_zone(self, cell: str, key: OfferKey, record: ZoneRecord | None) -> None: ...

    def take_lease(self, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool = False) -> Lease | None:
        """Take a free or expired lease (epoch + 1) or renew our own (same epoch), judged by the database's clock.
        `alone`: an exclusive lock of the data folder already proves that no other holder lives: take it at once."""
        ...

    def drop_lease(self, lease: Lease) -> None: ...

    def take_over(self, theirs: Lease, ours: Lease, most: int) -> int:
        """Up to so many runs of their cell become ours, with what its zones have taught; how many did. 0 where one of
        the leases is not held any more."""
        ...

    def leaderless(self) -> dict[str, int]:
        """Cells with runs that are not settled and whose lease nobody holds now: cell -> number of such runs."""
        ...

    def lease_names(self) -> list[str]:
        """The names of all leases that were ever taken; those of cells are the cells' names."""

    def due_outbox(self, now: float, limit: int) -> list[OutboxItem]:
        """Oldest first; without those of the channel `webhooks`, which `deliveries.fan_out` takes. Rows that cannot be
        read are given up, and hold back none behind them."""
        ...

    def settle_outbox(self, item_id: int, delivered: bool, next_at: float | None, detail: str, now: float) -> None:
        """Delivered; or to be tried again at `next_at`; or (None) given up."""
        ...

    def prune(self, now: float, limit: int) -> int:
        """Delete at most `limit` rows that retention no longer keeps (RULES section 8); how many were deleted."""
        ...

    def add_events(self, key: int | None, events: Sequence[Event], now: float) -> None: ...

    # --- readers --------------------------------------------------------------------------------------------------

    def find(self, run_id: str) -> Run | None: ...

    def labels(self, key: int) -> dict[str, str]: ...

    def spec(self, key: int) -> dict[str, Any]: ...

    def page(self, where: RunFilter, before_key: int | None, limit: int) -> RunPage: ...

    def attempts(self, key: int) -> list[Attempt]: ...

    def tries(self, key: int) -> list[Try]: ...

    def events(
        self,
        run_id: str | None,
        after_id: int,
        limit: int,
        newest_first: bool = False,
        owner: str | None = None,
        actor: str | None = None,
        before_id: int | None = None,
    ) -> list[StoredEvent]:
        """None: of every run and of the supervisor itself; of every owner; of every actor; up to the newest."""
        ...

    def kept_response(self, scope: str, key: str) -> KeptResponse | None:
        """None: no request with this key was answered, within the time for which answers are kept."""
        ...

    def samples(self, key: int, since: float, limit: int) -> list[Sample]: ...

    def lines(self, keys: Sequence[int]) -> dict[int, list[Step]]:
        """Of each run its first and its newest point and some evenly spaced ones in between, 24 at most, in order of
        time. Costs the same however long the runs are. Runs without points are left out."""
        ...

    def check(self) -> None:
        """StoreDown unless a write transaction commits; SchemaMismatch unless the schema is the one this version
        knows."""
        ...

    def backlog(self) -> Backlog:
        """What waits to be told, as cheap to ask however much it is."""
        ...

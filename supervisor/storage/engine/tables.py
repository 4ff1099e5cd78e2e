"""The tables, the same on SQLite and Postgres. The migrations make exactly these tables; a test compares them.

A `doc` column has a domain value as JSON and is authoritative; other columns are copies for WHERE and ORDER BY. Times
are epoch seconds unless the name says otherwise, money is integer micro-USD, flags are 0 or 1.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, SmallInteger, Table, Text, text

metadata = sa.MetaData()

# SQLite generates keys only in a column of type INTEGER.
Key = BigInteger().with_variant(sa.Integer(), "sqlite")


def _only(condition: str) -> dict[str, Any]:
    """The condition of a partial index; `for_postgres` sets it on Postgres."""
    return {"sqlite_where": text(condition)}


def for_postgres() -> None:
    """Call it before these tables are created on Postgres. The argument for Postgres in `_only` would load its dialect,
    a tenth of a second, at each start on SQLite."""
    for table in metadata.tables.values():
        for index in table.indexes:
            index.dialect_options["postgresql"]["where"] = index.dialect_options["sqlite"]["where"]


meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

runs = Table(
    "runs",
    metadata,
    Column("key", Key, primary_key=True),
    Column("run_id", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),
    Column("cell", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("zone", Text, nullable=False),  # of the last try, '' before the first
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),  # None while the run is live
    Column("settled", SmallInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("usd_per_h_micro", BigInteger, nullable=False),  # of the machine that is billed now; 0 = none, or unknown
    Column("attempt", BigInteger, nullable=False),  # the current one, 0 = none
    Column("try_attempt", BigInteger, nullable=False),  # the current try, 0 = none
    Column("try_number", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),  # the number of the run's events so far
    Column("doc", Text, nullable=False),
    # Without finished runs: their number does not matter to the tick.
    Index("runs_active", "cell", "key", "version", "settled", **_only("settled = 0")),
    # With what a list may filter by: a row is as wide as a hundred entries of this index.
    Index("runs_status", "status", "key", "created_at", "run_id"),
    Index("runs_zone", "zone", "status", "key"),
    Index("runs_owner", "owner", "status", "key"),
    Index("runs_billing", "usd_per_h_micro", **_only("usd_per_h_micro > 0")),
)

specs = Table(
    "specs",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("spec", Text, nullable=False),
)

labels = Table(
    "labels",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("status", Text, nullable=False),  # of the run, so the index alone can count the runs of a label
    Index("labels_value", "key", "value", "status", "run"),
    sqlite_with_rowid=False,
)

attempts = Table(
    "attempts",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("doc", Text, nullable=False),
)

tries = Table(
    "tries",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("launch_id", Text, nullable=False),
    Column("nonce_hash", Text, nullable=False),
    Column("open", SmallInteger, nullable=False),
    Column("doc", Text, nullable=False),
)

pulses = Table(
    "pulses",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True, autoincrement=False),
    Column("doc", Text, nullable=False),
)

# Beats that were pushed to another replica than the leader, for the leader.
pushed_beats = Table(
    "pushed_beats",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True, autoincrement=False),
    Column("generation", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("try_number", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("received_at", Double, nullable=False),  # by the database's clock
    Column("doc", Text, nullable=False),
)

samples = Table(
    "samples",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True),
    Column("at_ms", BigInteger, primary_key=True),
    Column("coarse", SmallInteger, nullable=False),  # 1: the first in its 10 minutes, kept longer
    Column("attempt", BigInteger, nullable=False),
    Column("doc", Text, nullable=False),
    Index("samples_age", "coarse", "at_ms"),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    Column("id", Key, primary_key=True),
    Column("run", Key, ForeignKey("runs.key")),  # None: about the supervisor itself
    Column("sequence", BigInteger, nullable=False),  # of its run, from 1
    Column("at", Double, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("owner", Text, nullable=False),  # of its runs; '' = about the supervisor itself, or of several
    Index("events_run", "run", "sequence", unique=True),
    Index("events_age", "at"),
    Index("events_owner", "owner", "id"),
    Index("events_actor", "actor", "id", **_only("actor <> 'supervisor'")),  # actions of people and programs
    sqlite_autoincrement=True,  # an id is never reused: readers continue after the last one they have seen
)

outbox = Table(
    "outbox",
    metadata,
    Column("id", Key, primary_key=True),
    Column("event", Key, ForeignKey("events.id", ondelete="CASCADE"), nullable=False),
    Column("channel", Text, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("next_at", Double),  # None: delivered, or given up
    Column("delivered_at", Double),
    Column("detail", Text, nullable=False),
    Index("outbox_due", "next_at", **_only("next_at IS NOT NULL")),
    Index("outbox_event", "event"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", Double, nullable=False),  # by the database's clock
    Column("epoch", BigInteger, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("status", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Index("idempotency_age", "created_at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False, unique=True),  # HMAC-SHA256; the token itself is not stored
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("scopes", Text, nullable=False),  # JSON list
    Column("max_active_runs", BigInteger),  # None = no limit
    Column("created_at", Double, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at", Double),  # None = never
    Column("last_used_at", Double),  # None = never; written once a minute at most
    Column("revoked_at", Double),  # None = valid
    Column("usd_per_day_micro", BigInteger),  # None = no cap
    Column("usd_per_run_micro", BigInteger),
    Column("plans_only", SmallInteger, nullable=False, server_default=text("0")),  # 1: a run starts with a plan only
)

# What a token with a cap has let one generation of a run spend.
allowances = Table(
    "allowances",
    metadata,
    Column("run", Key, ForeignKey("runs.key"), primary_key=True),
    Column("generation", BigInteger, primary_key=True),
    Column("token", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("most_micro", BigInteger, nullable=False),  # the budget of the generation
    Column("spent_micro", BigInteger),  # None = it may still spend
    Column("closed_at", Double),  # no machine of it was billed after that; None = open
    Index("allowances_token", "token", "closed_at"),
)

# Receivers of announcements, beside the log.
endpoints = Table(
    "endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("everything", SmallInteger, nullable=False),  # 1: for all owners, and for the supervisor itself
    Column("form", Text, nullable=False),  # standard, slack or discord
    Column("url", Text, nullable=False),
    Column("secrets", Text, nullable=False),  # JSON list of [secret, valid until or null], the newest first
    Column("kinds", Text, nullable=False),  # JSON list of announced kinds; [] = the default ones of its form
    Column("note", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("failing_since", Double),  # None: the last delivery succeeded, or there was none
    Column("disabled_at", Double),  # None = enabled
    Column("disabled_why", Text, nullable=False),
    Column("next_message_at", Double, nullable=False),  # not before, as the receiver asks
)

# One announcement for one endpoint, and the log of its delivery.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Key, primary_key=True),
    Column("endpoint", Text, ForeignKey("endpoints.id", ondelete="CASCADE"), nullable=False),
    Column("event", Key, ForeignKey("events.id", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False),  # of the announcement
    Column("tries", BigInteger, nullable=False),
    Column("next_at", Double),  # None: delivered, or given up
    Column("delivered_at", Double),
    Column("last_at", Double),
    Column("status", BigInteger),  # of the last HTTP response; None = there was none
    Column("detail", Text, nullable=False),
    Index("deliveries_once", "endpoint", "event", unique=True),
    Index("deliveries_due", "endpoint", "next_at", **_only("next_at IS NOT NULL")),
    Index("deliveries_event", "event"),
)

zones = Table(
    "zones",
    metadata,
    Column("cell", Text, primary_key=True),
    Column("provider", Text, primary_key=True),
    Column("zone", Text, primary_key=True),
    Column("shape", Text, primary_key=True),
    Column("spot", SmallInteger, primary_key=True),
    Column("failures", BigInteger, nullable=False),
    Column("cool_until", Double, nullable=False),
    Column("cause", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("lost_at", Text, nullable=False),  # JSON list of epoch seconds
    Column("stocked_out_at", Double, nullable=False),  # 0 = never
)

# Ends of several runs with something in common: one record, one alert.
incidents = Table(
    "incidents",
    metadata,
    Column("id", Key, primary_key=True),
    Column("cell", Text, nullable=False),
    Column("kind", Text, nullable=False),  # the first of what they have in common, and its value
    Column("value", Text, nullable=False),
    Column("closed_at", Double),  # None = open
    Column("doc", Text, nullable=False),
    Index("incidents_open", "cell", "kind", "value", unique=True, **_only("closed_at IS NULL")),
    Index("incidents_closed", "closed_at"),
    sqlite_autoincrement=True,  # an id that a person knows is never used again
)

# Scripts with a name that prepare machines, and the images of their disks.
bases = Table(
    "bases",
    metadata,
    Column("id", Key, primary_key=True),
    Column("name", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("doc", Text, nullable=False),
    Index("bases_name", "name", unique=True),
    Index("bases_family", "family"),
    sqlite_autoincrement=True,
)

"""What the databases can do with nothing of ours around them: commits per second of one table, one row each.

Rows of a submit's size (1 KB); SQLite with WAL and synchronous=FULL, Postgres with fsync on. One writer each: that is
what the disk gives to somebody who waits for every commit.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.benchmarks.row import percentile

ROW = "x" * 1000


@dataclass(frozen=True, slots=True)
class Commits:
    per_s: float
    p95_ms: float
    longest_ms: float


def sqlite_commits(folder: Path, seconds: float) -> Commits:
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("CREATE TABLE bare (key INTEGER PRIMARY KEY, value TEXT)")

        def commit() -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO bare (value) VALUES (?)", (ROW,))
            connection.execute("COMMIT")

        return _measured(commit, seconds)
    finally:
        connection.close()


def postgres_commits(url: str, seconds: float) -> Commits:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("CREATE TABLE bare (key BIGSERIAL PRIMARY KEY, value TEXT)")

        def commit() -> None:
            connection.execute("INSERT INTO bare (value) VALUES (%s)", (ROW,))

        return _measured(commit, seconds)


def _measured(commit: Callable[[], None], seconds: float) -> Commits:
    took: list[float] = []
    began = time.perf_counter()
    while (at := time.perf_counter()) - began < seconds:
        commit()
        took.append(time.perf_counter() - at)
    return Commits(len(took) / (time.perf_counter() - began), percentile(took, 0.95) * 1000, max(took) * 1000)

"""Streams on PostgreSQL with many writers: ids are committed out of order, and sent in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.storage.store import SqlStore, open_store
from tests.api.listening import QUICK, listed, patrol, serving
from tests.services.bed import Bed, make_bed

pytestmark = pytest.mark.xdist_group("postgres")
WRITERS, COMMITS = 4, 60


@pytest.fixture
def beds(postgres_database: str, tmp_path: Path) -> Iterator[tuple[Bed, Bed]]:
    """Two supervisors on one database."""
    with (
        closing(open_store(postgres_database, migrate=True)) as one,
        closing(open_store(postgres_database, migrate=True)) as other,
    ):
        yield make_bed(one, tmp_path), make_bed(other, tmp_path)


def tell(store: SqlStore, other: SqlStore) -> None:
    """As NOTIFY does."""
    store.history.wake_others = other.history.written_elsewhere


def test_replicas_send_everything_once_in_one_order_while_many_write(beds: tuple[Bed, Bed]) -> None:
    for one, other in (beds, beds[::-1]):
        assert isinstance(one.store, SqlStore)
        assert isinstance(other.store, SqlStore)
        tell(one.store, other.store)
    with (
        serving(replace(beds[0].services, streams=QUICK)) as first,
        serving(replace(beds[1].services, streams=QUICK)) as second,
    ):
        streams = [served.listen("/v1/events?after=0") for served in (first, second)]

        def write(number: int) -> None:
            for _ in range(COMMITS):
                patrol(beds[number % 2], 2)

        writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        streams[0].wait(100)
        moved = second.listen(Last_Event_ID=str(streams[0].ids[99]))
        for writer in writers:
            writer.join()
        everything = listed(beds[0])
        assert len(everything) == WRITERS * COMMITS * 2
        for stream in streams:
            assert stream.wait(len(everything)) == everything
        assert moved.wait(len(everything) - 100) == everything[100:]

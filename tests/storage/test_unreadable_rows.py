"""An unreadable row hides only itself: not the list, the other runs of the loop, or its own machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from supervisor.ports.history import EventFilter
from supervisor.ports.notifier import WEBHOOKS
from supervisor.ports.store import RowUnreadable, RunFilter
from supervisor.reconciler.tick import Tick
from supervisor.storage.engine.tables import attempts, deliveries, endpoints, events, outbox, runs
from supervisor.storage.rows import rows
from supervisor.storage.rows.history import SqlHistory
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_endpoints import add, an_endpoint
from tests.contracts.store_values import NOW, STARTED, a_run, changed, insert, running

TORN = ["{", '{"status": "running"}', '{"run_id": 7}', "[1]", '{"status":"of a newer version"', "null"]


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_hidden", set())


def damage(store: SqlStore, run_id: str, doc: str) -> None:
    with store.database.writing() as session:
        session.connection.execute(sa.update(runs).where(runs.c.run_id == run_id).values(doc=doc))


@pytest.mark.parametrize("doc", TORN)
def test_the_others_are_listed_and_looked_after(store: SqlStore, doc: str, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"digits-{n}" for n in range(1, 12)]
    insert(store, *(a_run(name) for name in names))
    damage(store, "digits-5", doc)
    left = [name for name in names if name != "digits-5"]
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            page = store.page(RunFilter(), None, 50)
            assert sorted(run.run_id for run in page.runs) == sorted(left)
            cell = page.runs[0].cell
            found, keys = store.active(cell, {})
            assert sorted(run.run_id for run in found) == sorted(left)
            assert len(keys) == len(names), "it is not gone"
    assert [record.getMessage().partition(" cannot")[0] for record in caplog.records] == ["a row of runs"]
    with pytest.raises(RowUnreadable, match="digits-5"):
        store.find("digits-5")


def test_its_machine_is_not_taken_for_forgotten(store: SqlStore) -> None:
    insert(store, a_run("digits-5"))
    damage(store, "digits-5", "{")
    tick = cast(Any, SimpleNamespace(store=store, cell="local"))
    assert Tick._led_elsewhere(tick, "digits-5"), "could not read is not absent"


def test_an_event_of_a_newer_version_hides_no_other(store: SqlStore) -> None:
    insert(store, a_run("digits-1"))
    insert(store, a_run("digits-2"))
    before = store.events(None, 0, 50)
    with store.database.writing() as session:
        session.connection.execute(
            sa.update(events).where(events.c.id == before[0].id).values(kind="of_a_newer_version")
        )
    assert store.events(None, 0, 50) == before[1:]


def damage_events(store: SqlStore, ids: list[int]) -> None:
    with store.database.writing() as session:
        session.connection.execute(sa.update(events).where(events.c.id.in_(ids)).values(kind="of_a_newer_version"))


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_with_unreadable_events_is_as_long_as_any_other(store: SqlStore, newest_first: bool) -> None:
    """A short page means the end to a reader that reads page by page."""
    insert(store, *(a_run(f"digits-{n}") for n in range(1, 10)))
    every = store.events(None, 0, 50, newest_first)
    damage_events(store, [stored.id for stored in every[1:4]])
    left = [every[0], *every[4:]]
    assert store.events(None, 0, 3, newest_first) == left[:3]
    assert store.events(None, 0, 50, newest_first) == left


def test_a_stream_passes_over_no_event_behind_an_unreadable_one(store: SqlStore) -> None:
    insert(store, *(a_run(f"digits-{n}") for n in range(1, 10)))
    every = store.events(None, 0, 50)
    damage_events(store, [every[1].id])
    history, told, position = SqlHistory(store.database), [], 0
    while position < every[-1].id:
        found, position = history.between(EventFilter(), position, every[-1].id, 3)
        told += found
    assert told == [every[0], *every[2:]]


def test_the_log_names_an_unreadable_attempt_by_its_number(store: SqlStore, caplog: pytest.LogCaptureFixture) -> None:
    [run] = insert(store, a_run("digits-1"))
    after = changed(store, run, running(run), STARTED)
    with store.database.writing() as session:
        session.connection.execute(sa.update(attempts).values(doc='{"command": "long and private"}'))
    with caplog.at_level(logging.ERROR):
        assert store.attempts(after.key) == []
    [record] = caplog.records
    assert record.getMessage().startswith(f"a row of attempts of run {after.key} cannot be read")
    assert "private" not in record.getMessage()


@pytest.fixture
def telling(url: str) -> Iterator[SqlStore]:
    with closing(open_store(url, True, ("log", WEBHOOKS))) as opened:
        yield opened


def announced(store: SqlStore, count: int) -> list[int]:
    """The event ids of `count` announcements of one run."""
    (run,) = insert(store, a_run("digits-1"))
    store.add_events(run.key, [STARTED] * count, NOW)
    return [stored.id for stored in store.events("digits-1", 0, 99) if stored.event == STARTED]


def tear_data(store: SqlStore, ids: list[int]) -> None:
    with store.database.writing() as session:
        session.connection.execute(sa.update(events).where(events.c.id.in_(ids)).values(data="{"))


def test_a_page_of_unreadable_announcements_blocks_none_behind_it(
    telling: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    ids = announced(telling, 4)
    tear_data(telling, ids[:2])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert [item.stored.id for item in telling.due_outbox(NOW, 2)] == ids[2:]
    assert [record.getMessage().partition(" cannot")[0] for record in caplog.records] == ["a row of outbox"] * 2
    with telling.database.reading() as session:
        kept = session.connection.execute(
            sa.select(outbox.c.next_at, outbox.c.delivered_at, outbox.c.detail).where(
                outbox.c.event.in_(ids[:2]), outbox.c.channel == "log"
            )
        )
        assert [tuple(row) for row in kept] == [(None, None, "put aside: it cannot be read")] * 2


def test_a_page_of_unreadable_deliveries_blocks_none_behind_it(
    telling: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    add(telling, an_endpoint())
    ids = announced(telling, 4)
    assert telling.deliveries.fan_out(NOW, 99)
    tear_data(telling, ids[:2])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            ((_, due),) = telling.deliveries.due(NOW, 2)
            assert [one.event_id for one in due] == ids[2:]
    assert [record.getMessage().partition(" cannot")[0] for record in caplog.records] == ["a row of deliveries"] * 2
    with telling.database.reading() as session:
        columns = (deliveries.c.tries, deliveries.c.next_at, deliveries.c.delivered_at, deliveries.c.detail)
        kept = session.connection.execute(sa.select(*columns).where(deliveries.c.event.in_(ids[:2])))
        assert [tuple(row) for row in kept] == [(1, None, None, "put aside: it cannot be read")] * 2


def test_an_unreadable_endpoint_blocks_no_other_and_its_messages_wait(telling: SqlStore) -> None:
    add(telling, an_endpoint("wh-1"), an_endpoint("wh-2"))
    (event_id,) = announced(telling, 1)
    assert telling.deliveries.fan_out(NOW, 99)
    of_the_first = sa.update(endpoints).where(endpoints.c.id == "wh-1")
    with telling.database.writing() as session:
        session.connection.execute(of_the_first.values(kinds="["))
    ((endpoint, (one,)),) = telling.deliveries.due(NOW, 9)
    assert (endpoint.id, one.event_id) == ("wh-2", event_id)
    with telling.database.writing() as session:
        session.connection.execute(of_the_first.values(kinds="[]"))
    assert [endpoint.id for endpoint, _ in telling.deliveries.due(NOW, 9)] == ["wh-1", "wh-2"]

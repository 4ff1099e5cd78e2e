"""One row that cannot be read hides itself: not the list, not the other runs of the loop, and not its own machine."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from supervisor.ports.history import EventFilter
from supervisor.ports.store import RowUnreadable, RunFilter
from supervisor.reconciler.tick import Tick
from supervisor.storage.engine.tables import attempts, events, runs
from supervisor.storage.rows import rows
from supervisor.storage.rows.history import SqlHistory
from supervisor.storage.store import SqlStore
from tests.contracts.store_values import STARTED, a_run, changed, insert, running

TORN = ["{", '{"status": "running"}', '{"run_id": 7}', "[1]", '{"status":"of a newer version"', "null"]


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_hidden", set())


def damage(store: SqlStore, run_id: str, doc: str) -> None:
    with store.database.writing() as session:
        session.connection.execute(sa.update(runs).where(runs.c.run_id == run_id).values(doc=doc))


@pytest.mark.parametrize("doc", TORN)
def test_the_others_are_listed_and_looked_after(
    store: SqlStore, doc: str, caplog: pytest.LogCaptureFixture
) -> None:
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
        session.connection.execute(
            sa.update(events).where(events.c.id.in_(ids)).values(kind="of_a_newer_version")
        )


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_with_unreadable_events_is_as_long_as_any_other(store: SqlStore, newest_first: bool) -> None:
    """A short page means the end: whoever reads page by page would stop there."""
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


def test_the_log_names_an_unreadable_attempt_by_its_number(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    [run] = insert(store, a_run("digits-1"))
    after = changed(store, run, running(run), STARTED)
    with store.database.writing() as session:
        session.connection.execute(sa.update(attempts).values(doc='{"command": "long and private"}'))
    with caplog.at_level(logging.ERROR):
        assert store.attempts(after.key) == []
    [record] = caplog.records
    assert record.getMessage().startswith(f"a row of attempts of run {after.key} cannot be read")
    assert "private" not in record.getMessage()

"""One row that cannot be read hides itself: not the list, not the other runs of the loop, and not its own machine."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from supervisor.ports.store import RowUnreadable, RunFilter
from supervisor.reconciler.tick import Tick
from supervisor.storage import rows
from supervisor.storage.store import SqlStore
from supervisor.storage.tables import events, runs
from tests.contracts.store_values import a_run, insert

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

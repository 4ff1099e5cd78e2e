"""Events with their owner: an index finds them, also the events from before the column existed."""

from contextlib import closing

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.ports.notifier import SETTINGS_ID, Endpoint, Form
from supervisor.storage.engine import schema, tables
from supervisor.storage.engine.statements import Statement
from supervisor.storage.rows import history, pages, runs
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_values import NOW, a_run, insert
from tests.storage.test_queries import plan
from tests.storage.test_schema import to_revision

PEOPLE = Event(EventKind.STOP_REQUESTED, "stop", "ops")


def test_older_events_get_the_owner_of_their_run(url: str) -> None:
    check_older_events(url)


def test_on_postgres_too(postgres_database: str) -> None:
    check_older_events(postgres_database)


def check_older_events(url: str) -> None:
    store = open_store(url, migrate=True)
    mine, hers = insert(store, a_run("mine"), a_run("hers", owner="her"))
    store.add_events(None, [Event(EventKind.BREAKER_OPENED, "opened")], NOW)
    store.add_events(hers.key, [PEOPLE], NOW)
    last = store.events(None, 0, 9)[-1].id
    with store.database.writing() as session:
        session.run(Statement(lambda _: tables.events.delete().where(tables.events.c.id == last)), {})
    store.close()
    to_revision(url, "0002")
    schema.migrate(url)
    again = open_store(url, migrate=False)
    assert [(kept.run_id, kept.owner) for kept in again.events(None, 0, 9)] == [
        (mine.run_id, "local"), ("hers", "her"), ("", ""),
    ]  # fmt: skip
    again.add_events(mine.key, [PEOPLE], NOW)
    assert again.events(None, 0, 9)[-1].id > last
    again.close()


def test_what_waited_for_the_address_of_the_settings_is_told_after_an_update(url: str) -> None:
    with closing(open_store(url, True, ("log", "alerts"))) as store:
        run = insert(store, a_run("mine"))[0]
        store.add_events(run.key, [Event(EventKind.COMPLETED, "over")] * 2, NOW)
        first = next(item for item in store.due_outbox(NOW, 9) if item.channel == "alerts")
        store.settle_outbox(first.id, True, None, "", NOW)
    to_revision(url, "0002")
    schema.migrate(url)
    with closing(open_store(url, False, ("log", "webhooks"))) as store:
        own = Endpoint(SETTINGS_ID, "local", True, Form.STANDARD, "https://h/***", (), (), "", NOW, "settings")
        store.endpoints.put_settings(own, NOW)
        assert store.deliveries.fan_out(NOW, 9) == 1
        assert [one.kind for one in store.deliveries.page(SETTINGS_ID, None, 9)] == ["completed"]
        assert {item.channel for item in store.due_outbox(NOW, 9)} == {"log"}


@pytest.mark.parametrize(
    ("given", "index"),
    [
        ({"owner": "her"}, "events_owner"),
        ({"actor": "ops"}, "events_actor"),
        ({"owner": "her", "actor": "ops"}, "events_"),
        ({"run_id": "hers", "owner": "her"}, "events_run"),
    ],
)
@pytest.mark.parametrize("newest_first", [True, False])
def test_no_list_reads_the_events_of_strangers(
    store: SqlStore, given: dict[str, str], index: str, newest_first: bool
) -> None:
    found = plan(store, history._page(tuple(given), 0, newest_first, False), after=0, limit_=9, **given)
    assert f"events USING INDEX {index}" in found
    assert "TEMP B-TREE" not in found


MANY = 20_000  # copies, of a hundred owners


def _many(store: SqlStore) -> None:
    """One run with one event, copied inside the database."""
    (run,) = insert(store, a_run())
    store.add_events(run.key, [PEOPLE], NOW)
    for table, new, source in (
        (tables.runs, {"key": "n + 9", "run_id": "'run-' || n", "owner": "'o-' || mod(n, 100)"}, f"key = {run.key}"),
        (tables.events, {"id": "n + 99", "run": "n + 9", "owner": "'o-' || mod(n, 100)"}, "actor = 'ops'"),
    ):
        names = [column.name for column in table.c]
        values = ", ".join(new.get(name, name) for name in names)
        copies = f"SELECT {values} FROM {table.name}, generate_series(1, {MANY}) n WHERE {source}"  # noqa: S608
        with store.database.defining() as connection:
            connection.exec_driver_sql(f"INSERT INTO {table.name} ({', '.join(names)}) {copies}")
            connection.exec_driver_sql(f"ANALYZE {table.name}")


def test_on_postgres_an_owners_list_reads_no_strangers_rows(postgres_database: str) -> None:
    given = {"owner": "o-7", "status_0": "pending", "status_1": "running", "more": 51, "most": 5}
    asked: list[tuple[Statement, str]] = [
        (pages._keys(pages.Shape(2, 0, ("owner",), False)), "runs_owner"),
        (pages._counts(0, ("owner",)), "runs_owner"),
        (runs.ACTIVE_OF, "runs_owner"),
        (pages._usd_per_h(0, ("owner",)), "runs_billing"),
        (history._page(("owner",), 0, True, False), "events_owner"),
        (history._page(("actor",), 0, False, False), "events_actor"),
    ]
    with closing(open_store(postgres_database, migrate=True)) as store:
        _many(store)
        with store.database.reading() as session:
            for statement, index in asked:
                text, constants = statement.compiled("postgresql")
                params = {**constants, **given, "after": 0, "limit_": 9, "actor": "nobody"}
                rows = session.connection.exec_driver_sql(f"EXPLAIN {text}", params)
                found = "\n".join(row[0] for row in rows)
                assert index in found, found
                assert "Seq Scan" not in found, found

"""Events that tell their owner: found by an index, also those that were written before the column was there."""

import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.storage import events, schema
from supervisor.storage.statements import Statement
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
        session.run(Statement(lambda _: events.events.delete().where(events.events.c.id == last)), {})
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
    found = plan(store, events._page(tuple(given), newest_first, False), after=0, limit_=9, **given)
    assert f"events USING INDEX {index}" in found
    assert "TEMP B-TREE" not in found

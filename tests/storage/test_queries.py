"""Bounded costs: the index of a query, how long the lock is held, how many rows a minute makes."""

import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from supervisor.domain.attempt import Try
from supervisor.domain.run import Counters
from supervisor.domain.status import Status
from supervisor.ports.store import Change, DuplicateRun, RunFilter, Sample
from supervisor.storage.engine import retention, tables
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import LISTED, Counts, Rows, Session, Statement
from supervisor.storage.rows import beats, pages, rows, runs
from supervisor.storage.store import PART_MAX, SqlStore, open_store
from tests.contracts.store_values import CELL, NOW, SPEC, a_pulse, a_run, an_attempt, insert, lease_of

EVERYTHING = RunFilter()


def plan(store: SqlStore, statement: Statement, **params: object) -> str:
    text, constants = statement.compiled("sqlite")
    with store.database.reading() as session:
        rows = session.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", {**constants, **params})
        return "\n".join(row[3] for row in rows)


def test_runs_in_memory_share_what_they_repeat(store: SqlStore) -> None:
    """Among each other the few values that all have, and each attempt the values of its try, while they are equal."""
    try_ = Try(1, 1, "1.1.1", "spot-1", an_attempt().placement, NOW - 9.5, 0.25, 0.75)
    same = an_attempt(1, machine_name="spot-1", requested_at=NOW - 9.5, price_usd_per_h=0.25, on_demand_usd_per_h=0.75)
    other = replace(same, machine_name="spot-2", requested_at=NOW - 9.25, price_usd_per_h=0.5, on_demand_usd_per_h=None)
    counters = Counters(attempts=1, tries=1, preempted_at=(7.5,))
    inserted = insert(
        store,
        *(a_run(f"run-{n}", attempt=life, try_=try_, counters=counters) for n, life in enumerate((same, same, other))),
    )
    read, _ = store.active(CELL, {})
    assert sorted(read, key=lambda run: run.key) == inserted
    assert len({id(run.counters) for run in read}) == len({id(run.owner) for run in read}) == 1
    for run in read:
        assert run.attempt is not None
        assert run.try_ is not None
        assert run.attempt.launch_id is run.try_.launch_id
        for name in rows._OF_TRY:
            values = getattr(run.attempt, name), getattr(run.try_, name)
            assert (values[0] is values[1]) == (values[0] == values[1]) == (run.attempt != other)


def test_the_loop_never_looks_at_finished_runs(store: SqlStore) -> None:
    found = plan(store, runs.VERSIONS, cell=CELL)
    assert "COVERING INDEX runs_active" in found
    many = insert(store, *(a_run(f"run-{n}") for n in range(50)))
    lease = lease_of(store)
    store.apply_all([Change(run, replace(run, status=Status.STOPPED, settled=True)) for run in many], NOW, lease)
    with store.database.reading() as session:
        in_index = session.connection.exec_driver_sql(
            "SELECT count(*) FROM runs INDEXED BY runs_active WHERE settled = 0"
        ).scalar()
    assert in_index == 0
    assert store.active(CELL, {}) == ([], set())


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (RunFilter(), "runs_status"),
        (RunFilter(labels=(("a", "b"),)), "labels_value"),
        (RunFilter(owner="local"), "runs_owner"),
    ],
)
def test_counts_and_keys_come_from_an_index_alone(store: SqlStore, where: RunFilter, index: str) -> None:
    columns = ("owner",) if where.owner else ()
    values = {"name_0": "a", "value_0": "b", "owner": "local", "status_0": "running", "more": 5}
    count = plan(store, pages._counts(len(where.labels), columns), **values)
    assert f"COVERING INDEX {index}" in count
    assert "TEMP B-TREE" not in count
    for ascending in (False, True):
        shape = pages.Shape(1, len(where.labels), columns, True, ascending)
        keys = plan(store, pages._keys(shape), before_key=3, **values)
        assert f"COVERING INDEX {index}" in keys
        assert "TEMP B-TREE" not in keys.split("COVERING INDEX")[0]


# The index that alone answers a list by this column, its pages and its counts.
INDEXES = {"zone": "runs_zone", "created_after": "runs_status", "part": "runs_status"}
FILTERS = {"zone": "local-7", "created_after": NOW + 1, "part": "run-1"}
# A row of `runs` again; n is its number.
COPIED = {
    "key": "key + n", "run_id": "'run-' || n", "zone": "'local-' || n %% 20", "created_at": "created_at + n - 9000",
    "doc": "doc || repeat(' ', 900)",
}  # fmt: skip


def _of_a_list(column: str) -> list[Statement]:
    """The keys of a page of each order, and the counts."""
    orders = [(further, ascending) for further in (False, True) for ascending in (False, True)]
    return [*(pages._keys(pages.Shape(2, 0, (column,), *order)) for order in orders), pages._counts(0, (column,))]


@pytest.mark.parametrize("column", INDEXES)
def test_a_list_by_zone_date_or_text_is_read_in_an_index_alone(store: SqlStore, column: str) -> None:
    values = {**FILTERS, "status_0": "running", "status_1": "failed", "more": 5, "before_key": 9}
    for statement in _of_a_list(column):
        steps = [line for line in plan(store, statement, **values).splitlines() if "runs" in line]
        assert steps
        assert all(f"COVERING INDEX {INDEXES[column]}" in step for step in steps)


@pytest.mark.parametrize("column", INDEXES)
def test_a_list_on_postgres_is_read_in_an_index_alone(postgres_database: str, column: str) -> None:
    """Of ten thousand runs: a table of a few pages is read as a whole, whatever its indexes are. Which index gives the
    keys of a page is for the planner, by its statistics."""
    names = [cell.name for cell in tables.runs.c]
    copies = f"SELECT {', '.join(COPIED.get(name, name) for name in names)} FROM runs, generate_series(1, 10000) n"  # noqa: S608
    values = {**FILTERS, "status_0": "pending", "status_1": "failed", "more": 5, "before_key": 9000}
    with closing(open_store(postgres_database, migrate=True)) as store:
        insert(store, a_run("run-0"))
        with store.database.defining() as connection:
            connection.exec_driver_sql(f"INSERT INTO runs ({', '.join(names)}) {copies}")
        with psycopg.connect(postgres_database.replace("+psycopg", ""), autocommit=True) as raw:
            raw.execute("CHECKPOINT")  # the tests' server commits late, and VACUUM then does not know who sees the rows
            raw.execute("VACUUM ANALYZE runs")
            *keys, counts = [_postgres_plan(store, statement, values) for statement in _of_a_list(column)]
    assert all("Index" in step and "Bitmap" not in step for steps in keys for step in steps), keys
    assert [f"Index Only Scan using {INDEXES[column]} on runs" in step for step in counts] == [True], counts


def _postgres_plan(store: SqlStore, statement: Statement, values: dict[str, object]) -> list[str]:
    """How `runs` is read."""
    text, constants = statement.compiled("postgresql")
    with store.database.reading() as session:
        rows = session.connection.exec_driver_sql(f"EXPLAIN {text}", {**constants, **values})
        return [row[0] for row in rows if " on runs" in row[0]]


def test_old_samples_are_found_without_reading_the_others(store: SqlStore) -> None:
    """Two ways to be too old: long ago, and ahead, by a wrong clock."""
    for statement, condition in (
        (retention.FINE, "at_ms<?"),
        (retention.FINE_AHEAD, "at_ms>?"),
        (retention.COARSE, "at_ms<?"),
        (retention.COARSE_AHEAD, "at_ms>?"),
    ):
        steps = plan(store, statement, before=1, ahead=9, limit_=5)
        assert f"SEARCH samples USING COVERING INDEX samples_age (coarse=? AND {condition})" in steps
        assert "SEARCH samples USING PRIMARY KEY" in steps


def test_runs_that_are_named_are_looked_up(store: SqlStore) -> None:
    values = {"keys": "[[1]]", "owner": "x", "name_0": "a", "value_0": "b", "status_0": "running", "more": 5}
    for statement in (pages.BY_ID, pages.BY_PART):
        assert "COVERING INDEX sqlite_autoindex_runs_1" in plan(store, statement, rows="[]", part="a")
    for columns in (("keys",), ("owner", "keys")):
        shape = pages.Shape(1, 1, columns, False)
        for statement in (pages._keys(shape), pages._counts(1, columns)):
            found = plan(store, statement, **values)
            assert "runs USING INTEGER PRIMARY KEY" in found
            assert "SCAN runs" not in found


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_few_and_many_with_a_part_of_an_id_are_found_alike(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    store = request.getfixturevalue("store") if database == "sqlite" else None
    opened = store or open_store(request.getfixturevalue("postgres_database"), migrate=True)
    made = insert(opened, *(a_run(f"{team}-{n}") for n in range(4) for team in "ab"))
    pending = (str(Status.PENDING),)
    asked = [
        (RunFilter(text="a-", oldest_first=oldest, statuses=statuses), before)
        for oldest in (False, True)
        for statuses in ((), pending, (str(Status.RUNNING), *pending))
        for before in (None, made[2].key, made[5].key)
    ]
    named = [opened.page(where, before, 2) for where, before in asked]
    monkeypatch.setattr(pages, "FEW", 0)
    assert [opened.page(where, before, 2) for where, before in asked] == named
    assert [[run.run_id for run in page.runs] for page in named[:3]] == [["a-3", "a-2"], ["a-0"], ["a-2", "a-1"]]
    assert named[0].counts == {"pending": 4}
    if store is None:
        opened.close()


def test_lines_of_steps_are_seeks_in_the_key(store: SqlStore) -> None:
    found = plan(store, beats.LINES, rows="[[1]]", parts=22).splitlines()
    of_samples = [line for line in found if "samples" in line]
    assert len(of_samples) == 4
    assert all(line.startswith("SEARCH samples USING PRIMARY KEY (run=?") for line in of_samples)


def test_active_runs_of_an_owner_are_counted_in_an_index_alone(store: SqlStore) -> None:
    found = plan(store, runs.ACTIVE_OF, owner="local", most=5)
    assert "COVERING INDEX runs_owner (owner=? AND status=?)" in found
    assert "SCAN runs" not in found


def test_the_cost_per_hour_looks_at_what_bills_only(store: SqlStore) -> None:
    for columns in ((), ("owner",), ("zone", "created_after")):
        found = plan(store, pages._usd_per_h(1, columns), name_0="a", value_0="b", owner="x", zone="x", created_after=1)
        assert "runs_billing" in found.splitlines()[0]


def test_changed_rows_are_found_by_their_keys(store: SqlStore) -> None:
    for statement in (runs.HIT, runs.UPDATE, runs.LOAD):
        found = plan(store, statement, rows="[]")
        assert "runs USING INTEGER PRIMARY KEY" in found
        assert "SCAN runs" not in found


def test_a_long_page_lets_others_in_between(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    many = insert(store, *(a_run(f"run-{n}") for n in range(2 * PART_MAX + 10)))
    lease = lease_of(store)
    turns: list[int] = []
    begun = store.database._begun
    monkeypatch.setattr(store.database, "_begun", lambda: (turns.append(1), begun())[1])
    hit = store.apply_all([Change(run, replace(run, hold="x")) for run in many], NOW, lease)
    assert len(hit) == len(many)
    assert len(turns) >= 4
    turns.clear()
    store.write_pulses([Sample(run.key, NOW, 1, a_pulse()) for run in many], lease)
    assert len(turns) >= 4


def test_statements_are_compiled_once(store: SqlStore) -> None:
    insert(store, a_run("a-1"))
    before = runs.INSERT.compiled("sqlite")
    insert(store, a_run("a-2"))
    assert runs.INSERT.compiled("sqlite") is before


def test_everything_read_together_is_of_one_instant(store: SqlStore) -> None:
    check_one_instant(store)


def test_on_postgres_too(postgres_database: str) -> None:
    store = open_store(postgres_database, migrate=True)
    check_one_instant(store)
    store.close()


def check_one_instant(store: SqlStore) -> None:
    """A variant where each statement sees the newest rows shows a run in the counts and not in the list."""
    (run,) = insert(store, a_run("a-1"))
    with store.database.reading() as session:
        assert pages.page(session, RunFilter(), None, 9).counts == {"pending": 1}
        insert(store, a_run("a-2"))
        assert pages.page(session, RunFilter(), None, 9).runs == (run,)
    assert len(store.page(RunFilter(), None, 9).runs) == 2


def test_kept_counts_are_those_of_the_page(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted once, and again after each change of a run or of its labels, from the moment of its commit."""
    asked: list[tuple[str, ...]] = []
    statement = pages._counts

    def spy(label_count: int, columns: tuple[str, ...]) -> Statement:
        asked.append(columns)
        return statement(label_count, columns)

    monkeypatch.setattr(pages, "_counts", spy)

    def listed(where: RunFilter = EVERYTHING) -> tuple[dict[str, int], int]:
        page = store.page(where, None, 10)
        return dict(page.counts), len(page.runs)

    def counted(where: RunFilter = EVERYTHING) -> int:
        """How often one more list counts."""
        asked.clear()
        listed(where)
        return len(asked)

    labelled = RunFilter(labels=(("team", "a"),))
    first, _ = insert(store, a_run("run-1"), a_run("run-2"))
    assert listed() == ({"pending": 2}, 2)
    assert counted() == 0
    assert listed(labelled) == ({}, 0)
    with store.begin(NOW) as tx:
        tx.insert(a_run("run-3"), {}, {}, ())
        assert listed() == ({"pending": 2}, 2)
        assert counted() == 1  # the transaction may be committed at any moment
    assert listed() == ({"pending": 3}, 3)
    with pytest.raises(DuplicateRun), store.begin(NOW) as tx:
        [tx.insert(a_run("run-4"), {}, {}, ()) for _ in range(2)]
    assert listed() == ({"pending": 3}, 3)
    store.apply_all([Change(first, replace(first, status=Status.STOPPED))], NOW, lease_of(store))
    assert listed() == ({"pending": 2, "stopped": 1}, 3)
    with store.begin(NOW) as tx:
        tx.put_spec(first, {}, {"team": "a"})
    assert listed(labelled)[1] == 1
    assert counted() + counted(labelled) == 1
    assert counted() + counted(labelled) == 0


def test_a_count_is_not_kept_beside_a_commit() -> None:
    counts = Counts()
    assert counts.of("all", counts.changes, lambda: 1) == 1
    assert counts.of("all", counts.changes, lambda: 2) == 1
    assert counts.of("few", counts.changes, lambda: 7) == 7
    noted = counts.changes
    counts.begin()
    assert counts.of("all", noted, lambda: 3) == 3  # it may be committed before the snapshot
    assert counts.of("all", counts.changes, lambda: 4) == 4
    counts.end()
    assert counts.of("all", noted, lambda: 5) == 5
    assert counts.of("all", counts.changes, lambda: 6) == 6
    counts.end()  # of a transaction that changed no run
    assert counts.of("all", counts.changes, lambda: 8) == 6


def test_every_statement_that_changes_a_list_is_recognized() -> None:
    from supervisor.storage.rows import access, cells, deliveries, endpoints, events, history, incidents

    modules = (access, beats, cells, deliveries, endpoints, events, history, incidents, pages, retention, rows, runs)
    found = [item for module in modules for item in vars(module).values()]
    texts = [item.compiled("sqlite")[0] for item in found if isinstance(item, Statement)]
    writes = [text for text in texts if re.search(r"(INSERT INTO|UPDATE|DELETE FROM) \"?(runs|labels)\b", text)]
    assert len(writes) >= 7
    assert [text for text in writes if not text.startswith(LISTED)] == []


def test_reads_without_a_transaction_are_one_statement(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them would not see one instant."""
    asked: list[list[Statement]] = []
    read_one, run = Database.read_one, Session.run

    def read(database: Database, *args: Any, **named: Any) -> Any:
        asked.append([])
        return read_one(database, *args, **named)

    def spy(session: Session, statement: Statement, *args: Any, **named: Any) -> Rows:
        asked[-1].append(statement)
        return run(session, statement, *args, **named)

    try_ = Try(1, 1, "1.1.1", "spot-1", an_attempt().placement, NOW, 0.25, 0.75)
    (one,) = insert(store, a_run("run-1", attempt=an_attempt(), try_=try_))
    monkeypatch.setattr(Database, "read_one", read)
    monkeypatch.setattr(Session, "run", spy)
    assert store.find("run-1") == one
    assert store.statuses(["run-1", "run-2"]) == {"run-1": one.status}
    assert store.spec(one.key) == SPEC
    assert (len(store.attempts(one.key)), len(store.tries(one.key)), len(store.labels(one.key))) == (1, 1, 0)
    assert store.nonce_hash("run-1", "1.1.1") == ""
    assert store.kept_response("scope", "key") is None
    assert (store.tokens.find("none"), store.tokens.get("none")) == (None, None)
    assert [len(statements) for statements in asked] == [1] * 10

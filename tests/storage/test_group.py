"""Writers that share a commit: each sees its own transaction, and none returns before the commit."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from supervisor.ports.store import RunFilter, StoreDown
from supervisor.storage.engine.database import WAL_PAGES
from supervisor.storage.engine.group import CHECKPOINT_COMMITS, COMMIT, Checkpointer, Group
from supervisor.storage.store import SqlStore
from tests.contracts.store_values import NOW, SPEC, SUBMITTED, a_run, insert
from tests.services.fresh import open_fresh
from tests.waiting import wait_for


class Crowd:
    """Writers that are queued behind an open transaction, and then continue together."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.answers: dict[str, object] = {}
        self._go = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, name: str, work: Callable[[], object] = lambda: None) -> None:
        inside = threading.Event()

        def write() -> None:
            try:
                with self.store.begin(NOW) as tx:
                    inside.set()
                    assert self._go.wait(30)
                    tx.insert(a_run(name), SPEC, {}, [SUBMITTED])
                    work()
                self.answers[name] = "written"
            except (StoreDown, ZeroDivisionError) as error:
                self.answers[name] = error

        thread = threading.Thread(target=write)
        thread.start()
        self._threads.append(thread)
        assert self.store.database.group is not None
        line = self.store.database.group._lock._queue
        place = len(self._threads) - 1
        wait_for(lambda: inside.is_set() if place == 0 else len(line) == place, what="it is inside or in line")

    def go(self) -> None:
        self._go.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits, and a transaction that accepts all queued writers."""
    made: list[str] = []
    run = Group.run

    def counted(group: Group, statement: str) -> None:
        run(group, statement)
        if statement == COMMIT:
            made.append(statement)

    monkeypatch.setattr(Group, "run", counted)
    monkeypatch.setattr("supervisor.storage.engine.group.GROUP_AGE_S", 3600.0)
    return made


def test_who_stands_in_line_shares_one_commit(store: SqlStore, commits: list[str]) -> None:
    crowd = Crowd(store)
    names = [f"run-{n}" for n in range(6)]
    for name in names:
        crowd.add(name)
    crowd.go()
    assert crowd.answers == dict.fromkeys(names, "written")
    assert len(commits) == 1
    assert all(store.find(name) for name in names)


def test_one_that_fails_takes_only_its_own_work_back(store: SqlStore, commits: list[str]) -> None:
    crowd = Crowd(store)
    for n in range(6):
        crowd.add(f"run-{n}", (lambda: 1 / 0) if n in (0, 3, 5) else (lambda: None))
    crowd.go()
    assert [name for name, answer in sorted(crowd.answers.items()) if answer == "written"] == [
        "run-1", "run-2", "run-4",
    ]  # fmt: skip
    assert [bool(store.find(f"run-{n}")) for n in range(6)] == [False, True, True, False, True, False]
    assert len(store.events(None, 0, 9)) == 3
    assert len(commits) == 1


def test_a_commit_that_fails_is_told_to_everybody(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.storage.engine.group.GROUP_AGE_S", 3600.0)
    run, broken = Group.run, [True]

    def failing(group: Group, statement: str) -> None:
        if statement == COMMIT and broken.pop():
            raise OperationalError(None, None, Exception("disk I/O error"))
        run(group, statement)

    monkeypatch.setattr(Group, "run", failing)
    crowd = Crowd(store)
    for n in range(4):
        crowd.add(f"run-{n}")
    crowd.go()
    assert [str(answer) for answer in crowd.answers.values()] == [
        "the database failed: disk I/O error; nothing was changed"
    ] * 4
    assert store.events(None, 0, 9) == []
    broken.append(False)
    insert(store, a_run("after"))
    assert store.find("after") is not None


def test_what_the_database_took_back_is_told_to_everybody(store: SqlStore, commits: list[str]) -> None:
    """A full disk can make SQLite roll back the whole transaction, with the changes of earlier writers."""
    crowd = Crowd(store)

    def fill_the_disk() -> None:
        assert store.database.group is not None
        assert store.database.group._open is not None
        store.database.group._open.run("ROLLBACK")
        raise OperationalError(None, None, Exception("database or disk is full"))

    crowd.add("first")
    crowd.add("second", fill_the_disk)
    crowd.add("third")
    crowd.go()
    assert "full" in str(crowd.answers["first"])
    assert "full" in str(crowd.answers["second"])
    assert crowd.answers["third"] == "written"
    assert [bool(store.find(name)) for name in ("first", "second", "third")] == [False, False, True]


def test_nobody_returns_before_the_commit(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant returns when its own block ends, and so acknowledges a run that a crash loses."""
    monkeypatch.setattr("supervisor.storage.engine.group.GROUP_AGE_S", 3600.0)
    crowd = Crowd(store)
    crowd.add("early")
    seen: list[dict[str, object]] = []

    def look() -> None:
        crowd._threads[0].join(0.2)  # it must not end, however long we give it
        seen.append(dict(crowd.answers))

    crowd.add("late", look)
    crowd.go()
    assert seen == [{}]
    assert len(crowd.answers) == 2


def test_an_old_transaction_takes_nobody_in(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, commits: list[str]
) -> None:
    monkeypatch.setattr("supervisor.storage.engine.group.GROUP_AGE_S", 0.0)
    crowd = Crowd(store)
    for n in range(3):
        crowd.add(f"run-{n}")
    crowd.go()
    assert len(commits) == 3


def test_the_wal_is_moved_beside_the_commits(tmp_path: Path) -> None:
    """By a connection of its own: no commit holds the write lock for it."""
    with closing(open_fresh(tmp_path / "x.db")) as store:
        file = tmp_path / "x.db"
        before = file.stat().st_size
        for n in range(3 * CHECKPOINT_COMMITS):
            insert(store, a_run(f"run-{n}"))
        wait_for(lambda: file.stat().st_size > before, 20, "a checkpoint")
        group = store.database.group
        assert group is not None
        assert group._connection is not None
        (pages,) = group._connection.exec_driver_sql("PRAGMA wal_autocheckpoint").one()
        assert pages == WAL_PAGES
    assert not any(thread.name == "checkpoint" for thread in threading.enumerate())


def test_a_checkpoint_that_fails_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.storage.engine.group.CHECKPOINT", "PRAGMA nonsense(")
    with closing(open_fresh(tmp_path / "x.db")) as store:
        for n in range(3 * CHECKPOINT_COMMITS):
            insert(store, a_run(f"run-{n}"))
        assert len(store.page(RunFilter(), None, 100).runs) == 3 * CHECKPOINT_COMMITS


def test_the_thread_of_checkpoints_ends_when_it_is_closed_in_any_moment() -> None:
    """The wake of the close comes just before the thread forgets the wake of a commit."""
    checkpoints = Checkpointer(create_engine("sqlite://"))

    class ClosedBeforeTheWakeIsTaken(threading.Event):
        def clear(self) -> None:
            checkpoints._stopping.set()
            super().set()
            super().clear()

    checkpoints._woken = ClosedBeforeTheWakeIsTaken()
    for _ in range(CHECKPOINT_COMMITS):
        checkpoints.committed()
    thread = checkpoints._thread
    assert thread is not None
    wait_for(lambda: not thread.is_alive(), what="the end of the thread")

"""Incidents in the loop, on a real database: one alert over restarts and leaders; healthy runs cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.contract.heartbeat import Exit
from supervisor.domain.callers import LOCAL
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.incidents import Blocked, Common
from supervisor.domain.run import Run
from supervisor.lifecycle.incidents import failing_incident
from supervisor.ports.store import Change, Lease, StoreDown
from supervisor.reconciler import incidents as watching
from supervisor.reconciler.incidents import IncidentWatch
from supervisor.services.machines.incidents import close_incident
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.storage.store import SqlStore
from tests.contracts.store_values import CELL, NOW, a_run, an_attempt, changed, insert, running
from tests.scenarios.stage import Settings, Stage
from tests.services.fresh import open_fresh

CODE = "c" * 64
ENDED = Event(EventKind.ATTEMPT_ENDED, "Ended.", data={"cause": "user_error"})
HOURS = 3600.0


@dataclass
class Bed:
    """A leader of the cell on this database. `owner`: of the lease."""

    store: Any
    owner: str = "me"

    def __post_init__(self) -> None:
        providers: Any = {}
        self.watch = IncidentWatch(self.store, CELL, SimpleNamespace(providers=providers))  # type: ignore[arg-type]
        lease = self.store.take_lease(CELL, self.owner, 1e6, 0.0, alone=True)
        assert lease is not None
        self.lease: Lease = lease

    def fail(self, name: str, at: float = NOW, owner: str = "local", told: bool = True) -> Run:
        """A run whose command fails at once; `told` False: the supervisor dies behind the commit."""
        (run,) = insert(self.store, a_run(name, owner=owner, policy=replace(a_run().policy, code=CODE)))
        live = changed(self.store, run, running(run))
        life = an_attempt(
            ended_at=at, cause=Cause.USER_ERROR, code=CODE, exit=Exit(1, None, False, 5.0, "KeyError: 'loss'")
        )
        with self.store.begin(at) as tx:
            over = tx.apply(Change(live, replace(live, attempt=life), (ENDED,)), at)
        assert over is not None
        if told:
            self.watch.noted(over, (ENDED,))
        return over

    def tick(self, now: float = NOW + 1, runs: tuple[Run, ...] = ()) -> Blocked | None:
        """What is blocked in this tick."""
        self.watch.refresh(now)
        blocked = self.watch.blocked
        self.watch.settle(runs, self.lease, now)
        return blocked

    @property
    def alerts(self) -> list[str]:
        events = self.store.events(None, 0, 1000)
        return [each.event.text for each in events if each.event.kind == EventKind.INCIDENT]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    with closing(open_fresh(tmp_path / "x.db", ("log",))) as opened:
        yield opened


def three_failures(bed: Bed, told: bool = True) -> list[Run]:
    bed.tick()
    return [bed.fail(name, told=told) for name in ("one", "two", "three")]


def test_three_runs_are_one_alert_and_stop_the_fourth(store: SqlStore) -> None:
    bed = Bed(store)
    runs = three_failures(bed)
    for _ in range(3):
        blocked = bed.tick()
    assert blocked is not None
    assert len(bed.alerts) == 1
    assert failing_incident(runs[0], blocked) is not None
    bed.fail("four")
    bed.tick()
    assert (len(bed.alerts), bed.watch.open) == (1, 1)
    assert len(store.incidents.newest(9, only_open=True)[0].runs) == 4


@pytest.mark.parametrize("told", [True, False], ids=["stored", "died behind the commit"])
def test_a_restart_and_another_leader_change_nothing(store: SqlStore, told: bool) -> None:
    three_failures(Bed(store), told)
    for n in range(3):
        bed = Bed(store, f"leader-{n}")
        bed.tick()
        blocked = bed.tick()
        assert blocked is not None
        assert (len(bed.alerts), len(blocked.failing)) == (1, 1)
    bed.watch.restart()
    bed.tick()
    assert (len(bed.alerts), bed.watch.open) == (1, 1)


def test_two_before_a_restart_and_one_after_it(store: SqlStore) -> None:
    first = Bed(store)
    first.fail("one")
    first.fail("two")
    first.tick()
    second = Bed(store, "other")
    second.tick()
    second.fail("three", NOW + HOURS - 1)
    second.tick(NOW + HOURS - 1)
    assert len(second.alerts) == 1


def test_an_hour_between_them_is_too_long_also_over_a_restart(store: SqlStore) -> None:
    first = Bed(store)
    first.fail("one")
    first.fail("two")
    first.tick()
    second = Bed(store, "other")
    second.fail("three", NOW + HOURS + 1)
    second.tick(NOW + HOURS + 1)
    assert (second.alerts, second.watch.open) == ([], 0)


def test_a_former_leader_writes_nothing(store: SqlStore) -> None:
    former = Bed(store)
    three_failures(former)
    Bed(store, "new")
    former.tick()
    assert former.alerts == []


def test_a_person_closes_it_in_any_process_and_the_runs_start_again(store: SqlStore) -> None:
    bed = Bed(store)
    three_failures(bed)
    bed.tick()
    store.incidents.close(1, "ops", "", Event(EventKind.INCIDENT_CLOSED, "Closed."), NOW + 5)
    assert bed.tick(NOW + 6) == Blocked()
    assert bed.watch.open == 0
    again = Bed(store, "other")
    assert again.tick(NOW + 7) == Blocked(), "the ends before the closing open no other one"
    assert len(again.alerts) == 1


def test_one_that_stops_nothing_is_closed_after_a_quiet_day(store: SqlStore) -> None:
    bed = Bed(store)
    worker = replace(running(a_run("works", policy=replace(a_run().policy, code=CODE))), reported=True)
    bed.tick()
    for name in ("one", "two", "three"):
        bed.fail(name)
    bed.tick(runs=(worker,))
    assert (bed.watch.open, bed.watch.blocked) == (1, Blocked())
    bed.tick(NOW + 86_000)
    assert bed.watch.open == 1
    bed.tick(NOW + 86_400)
    bed.tick(NOW + 86_430)
    closed = [each for each in store.events(None, 0, 99) if each.event.kind == EventKind.INCIDENT_CLOSED]
    assert (bed.watch.open, len(closed)) == (0, 1)


class Unread:
    """The incidents of a store that cannot be read or written; everything else works."""

    def __init__(self, real: SqlStore, *broken: str) -> None:
        self.real, self.broken = real, broken

    def __getattr__(self, name: str) -> Any:
        return self if name == "incidents" else getattr(self.real, name)

    def _call(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if name in self.broken:
                raise StoreDown("no")
            return getattr(self.real.incidents, name)(*args)

        return call

    ended = property(lambda self: self._call("ended"))
    current = property(lambda self: self._call("current"))
    write = property(lambda self: self._call("write"))
    close = property(lambda self: self._call("close"))


@pytest.mark.parametrize("broken", ["ended", "current", "write"])
def test_what_cannot_be_read_blocks_nothing_and_opens_nothing_twice(store: SqlStore, broken: str) -> None:
    unread = Unread(store)
    bed = Bed(unread)
    three_failures(bed)
    unread.broken = (broken,)
    bed.watch.restart()
    for _ in range(3):
        assert not bed.tick()
        assert bed.alerts == []
    unread.broken = ()
    bed.tick()
    assert len(bed.alerts) == 1
    unread.broken = (broken,)
    bed.fail("four")
    bed.tick()
    unread.broken = ()
    bed.tick()
    assert bed.tick()
    assert len(bed.alerts) == 1
    assert len(store.incidents.newest(9, only_open=True)[0].runs) == 4


@pytest.mark.parametrize("name", ["ended_of", "grouped", "blocked_by"])
def test_a_bug_in_the_rules_stops_no_tick(
    store: SqlStore, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(*_: object) -> None:
        raise ZeroDivisionError(name)

    bed = Bed(store)
    bed.tick()
    monkeypatch.setattr(watching, name, raises)
    for run in ("one", "two", "three"):
        bed.fail(run)
    bed.tick()
    bed.watch.restart()
    assert not bed.tick(), "nothing is blocked"
    assert "ZeroDivisionError" in caplog.text


def test_healthy_runs_cost_nothing(store: SqlStore) -> None:
    bed = Bed(store)
    bed.tick()
    bed.watch.store = None  # type: ignore[assignment]
    run = running(a_run())
    bed.watch.noted(run, (Event(EventKind.STARTED, "Training."),))
    lost = replace(run, attempt=an_attempt(ended_at=NOW, cause=Cause.PREEMPTED))
    bed.watch.noted(lost, (Event(EventKind.ATTEMPT_ENDED, "Lost."),))
    for n in range(3):
        assert bed.tick(NOW + 30 * n) == Blocked()


def test_a_host_gives_its_name_and_a_cloud_none(store: SqlStore) -> None:
    bed = Bed(store)
    for host, kinds in ((object(), {Common.MACHINE, Common.ZONE}), (None, {Common.ZONE})):
        profile = SimpleNamespace(host=host)
        bed.watch.worldview.providers = {"local": SimpleNamespace(profile=lambda zone, it=profile: it)}  # type: ignore[assignment]
        life = an_attempt(ended_at=NOW, cause=Cause.GPU_FAULT)
        bed.watch.noted(replace(running(a_run()), attempt=life), (Event(EventKind.ATTEMPT_ENDED, ""),))
        (end,) = bed.watch._ends.values()
        assert {each.kind for each in end.signatures} == kinds


def nothing_is_read_again(self: IncidentWatch, now: float) -> None:
    if self.blocked is None:
        self._take([])


@pytest.mark.parametrize(
    ("name", "broken", "caught_by"),
    [
        ("refresh", nothing_is_read_again, test_a_person_closes_it_in_any_process_and_the_runs_start_again),
        ("refresh", nothing_is_read_again, test_two_before_a_restart_and_one_after_it),
        ("restart", lambda self: None, lambda store: test_what_cannot_be_read_blocks_nothing_and_opens_nothing_twice(
            store, "current")),
        ("_close_those_over", lambda self, now: None, test_one_that_stops_nothing_is_closed_after_a_quiet_day),
    ],
)  # fmt: skip
def test_a_broken_watch_is_caught(
    name: str, broken: object, caught_by: Callable[[SqlStore], None], store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IncidentWatch, name, broken)
    with pytest.raises(AssertionError):
        caught_by(store)


def test_a_node_whose_gpus_failed_twice_is_named_to_every_later_launch(tmp_path: Path) -> None:
    """Two runs of a cluster had their fault on one node; the launch of a third one is told to avoid it."""
    stage = Stage(tmp_path, Settings())
    try:
        submit(stage.parts, SubmitRequest({"command": ["train"]}, run_id="digits"), LOCAL)
        watch, place = stage.supervisor.tick.incidents, stage.provider.offers()[0].placement
        stage.run_for(31.0)
        assert stage.provider.launches[-1].avoid == ()
        for name in ("one", "two"):
            life = an_attempt(ended_at=stage.clock.now(), cause=Cause.GPU_FAULT, placement=place, node="node-1")
            watch.noted(replace(running(a_run(name)), attempt=life), (Event(EventKind.ATTEMPT_ENDED, "Ended."),))
        stage.run_for(31.0)
        assert watch.open == 1
        submit(stage.parts, SubmitRequest({"command": ["train"]}, run_id="other"), LOCAL)
        stage.run_for(31.0)
        assert stage.provider.launches[-1].avoid == ("node-1",)
        close_incident(stage.parts, 1, "its card was replaced", LOCAL)
        submit(stage.parts, SubmitRequest({"command": ["train"]}, run_id="last"), LOCAL)
        stage.run_for(61.0)
        assert stage.provider.launches[-1].avoid == ()
    finally:
        stage.close()

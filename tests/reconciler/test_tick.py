"""What the tick adds to decisions: the breaker's share, and state in memory that ends with a run."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.actions import CloseBaton
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import BEATS, Observation
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision
from supervisor.ports.store import Lease
from supervisor.reconciler import tick as tick_module
from supervisor.reconciler.observing.beats import RejectedBeats
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.reconciler.tick import Tick
from tests.fakes.clock import FakeClock
from tests.lifecycle.sample_runs import NOW, WORLD, attempt, failed_try, pulse, run_in

LEASE = Lease("cell", "me", 1, float("inf"))


class Bench:
    """A tick in which only the part under test is real."""

    def __init__(self, *runs: Run) -> None:
        self.runs, self.recorded = list(runs), list[str]()
        store: Any = SimpleNamespace(
            active=lambda cell, held: (self.runs, {run.key for run in self.runs}),
            nonce_hash=lambda run_id, launch_id: nonce_hash(f"nonce of {launch_id}"),
            add_events=lambda key, events, now: self.recorded.extend(event.kind for event in events),
        )
        idle: Any = SimpleNamespace(forget=lambda key: None, meters={}, resting=None)
        self.tick = Tick(store, "cell", idle, idle, idle, idle, idle, idle, idle, idle, FakeClock())
        self.tick.load()


def keyed(key: int, status: Status, life: Attempt | None) -> Run:
    return replace(run_in(status, attempt=life), key=key, run_id=f"run-{key}")


def test_a_breakers_share_is_of_the_runs_that_have_a_machine_not_of_those_that_wait_for_one() -> None:
    training = [keyed(key, Status.RUNNING, attempt()) for key in range(1, 6)]
    waiting = [keyed(key, Status.WAITING, None) for key in range(6, 106)]
    view = Worldview(Knobs("s"), {}, {run.key: run for run in [*training, *waiting]})
    kept, events = view.admit([Decision(run, inferred=BEATS) for run in training], 0.0)
    assert (kept, [event.kind for event in events]) == ([], [EventKind.BREAKER_OPENED])
    assert view.admit([Decision(training[0])], 0.0) == ([Decision(training[0])], [])


def test_an_ignored_beat_is_one_event_in_ten_minutes() -> None:
    run = run_in(Status.RUNNING, attempt=attempt())
    bench = Bench(run)
    rejected = RejectedBeats(bench.tick.store)
    for after_s in (0.0, 1.0, 599.0, 600.0):
        rejected.record([(run.run_id, "it does not carry the nonce of its try")], bench.tick.runs, 1e9 + after_s)
    assert bench.recorded == [EventKind.BEAT_REJECTED] * 2
    rejected.record([(f"run-{number}", "forged") for number in range(500)], bench.tick.runs, 2e9)
    assert len(bench.recorded) == 2 + 20, "few in a tick: their number is untrusted too"


def test_state_in_memory_ends_with_its_run() -> None:
    run = run_in(Status.RUNNING, attempt=attempt(), try_=replace(failed_try(Cause.QUOTA, 1), launch_id="1.4.1"))
    bench = Bench(run)
    beat = Beat("digits-7", 4, "1.4.1", "m", "b", 9, "training", nonce="nonce of 1.4.1")
    assert bench.tick._nonces.hash_of(run, beat.launch_id) == nonce_hash(beat.nonce)
    assert bench.tick._nonces._hashes
    bench.runs = []
    bench.tick.load()
    assert not bench.tick.runs
    assert not bench.tick._nonces._hashes


def test_the_owners_that_are_remembered_are_bounded_and_the_longest_unused_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tick_module, "OWNERS_KEPT", 3)
    bench = Bench()
    for number in (2, 1, 3, 4, 5):
        requested = replace(failed_try(Cause.QUOTA, 1), requested_at=float(number))
        bench.tick._keep(replace(keyed(number, Status.WAITING, None), owner=f"owner-{number}", try_=requested))
    assert bench.tick._used_at == {"owner-3": 3.0, "owner-4": 4.0, "owner-5": 5.0}


class Settled:
    """What a tick makes of these decisions, each run's first and, after `again`, its second."""

    def __init__(
        self, runs: list[Run], decisions: Mapping[int, list[Decision]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.submitted: list[tuple[Run, Any]] = []
        self.written: list[tuple[Run, tuple[Any, ...]]] = []
        self.superseded: list[set[int]] = []
        self.undecided = {key: list(several) for key, several in decisions.items()}
        self.seen_before: list[Run] = []
        self.tick = Bench(*runs).tick
        self.tick.store.apply_all = self._apply_all
        self.tick.store.zones = lambda cell: {}
        self.tick.worldview = Worldview(Knobs("s"), {}, self.tick.runs)
        idle: Any = SimpleNamespace(
            resting=None,
            supersede=lambda keys: self.superseded.append(set(keys)),
            moved=lambda key: None,
            due=lambda key: None,
            forget=lambda key: None,
            submit=lambda run, action, lease: self.submitted.append((run, action)),
        )
        self.tick.sampler = self.tick.outcomes = self.tick.actor = idle
        monkeypatch.setattr("supervisor.reconciler.tick.decide", self._decide)
        snapshot: Any = SimpleNamespace(
            capacities=dict, machines=lambda zones: (), lists=lambda try_: False, monotonic=0.0
        )
        observations: Any = SimpleNamespace(snapshot=snapshot, now=NOW, of=lambda run: Observation())
        self.due = self.tick._settle(list(self.tick.runs), observations, WORLD, LEASE)
        self.all = (dict(self.tick.runs), self.submitted, self.written, self.superseded, self.undecided, self.due)

    def _decide(self, run: Run, *_: Any) -> Decision:
        self.seen_before += [self.tick.runs[run.key - 1]] if run.key > 1 else []
        return self.undecided[run.key].pop(0)

    def _apply_all(self, changes: list[Any], now: float, lease: Lease) -> dict[int, Run]:
        self.written += [(change.after, change.events) for change in changes]
        return {change.after.key: replace(change.after, version=change.after.version + 1) for change in changes}


def random_decisions(seed: int) -> tuple[list[Run], dict[int, list[Decision]]]:
    chance = random.Random(seed)

    def decision(run: Run) -> Decision:
        after = replace(run, pulse=pulse(sequence=chance.randint(10, 99)))
        return Decision(
            chance.choice([run, after, after, after, replace(after, hold="it waits")]),
            events=chance.choice([(), (), (Event(EventKind.STARTED, "It trains."),)]),
            actions=chance.choice([(), (), (CloseBaton(Status.COMPLETED),)]),
            check_after=chance.choice([None, NOW - 1.0, NOW + chance.randint(1, 99)]),
            inferred=chance.choice(["", "", "", BEATS]),
        )

    runs = [keyed(key, Status.RUNNING, attempt()) for key in range(1, 41)]
    several = {run.key: [decision(run)] for run in runs}
    for first in several.values():
        if chance.random() < 0.2:
            first[0] = replace(first[0], again=True)
            first.append(decision(first[0].run))
    return runs, several


def test_a_step_that_stands_at_once_changes_nothing_of_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the plain way: all decisions are made before the first one stands. And each condition of the short cut
    is needed: without it some tick is another."""
    is_step = tick_module._is_step
    conditions = {"events": (), "actions": (), "inferred": "", "again": False}
    missed = set(conditions) | {"row"}
    for seed in range(40):
        situation = random_decisions(seed)
        at_once = Settled(*situation, monkeypatch).all
        with monkeypatch.context() as patch:
            patch.setattr(tick_module, "_is_step", lambda run, decision: False)
            plain = Settled(*situation, patch).all
            assert at_once == plain
            for name, default in conditions.items():
                patch.setattr(
                    tick_module,
                    "_is_step",
                    lambda run, decision, plain={name: default}: is_step(run, replace(decision, **plain)),
                )
                if Settled(*situation, patch).all != plain:
                    missed.discard(name)
            patch.setattr(tick_module, "_is_step", lambda run, decision: is_step(run, replace(decision, run=run)))
            if Settled(*situation, patch).all != plain:
                missed.discard("row")
    assert not missed


def test_a_step_stands_before_the_next_run_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no tick holds all runs twice: as they were, and as they are."""
    runs = [keyed(key, Status.RUNNING, attempt()) for key in range(1, 11)]
    after = [replace(run, pulse=pulse(sequence=10)) for run in runs]
    settled = Settled(runs, {run.key: [Decision(run)] for run in after}, monkeypatch)
    assert settled.seen_before == after[:-1]

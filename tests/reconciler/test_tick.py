"""What the tick adds to decisions: whose word counts, what a breaker's share is of, what is forgotten with a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.observation import BEATS, Absent, Part, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision
from supervisor.ports.store import Lease
from supervisor.reconciler.tick import Tick
from tests.fakes.clock import FakeClock
from tests.lifecycle.sample_runs import H, attempt, ended, failed_try, run_in

LEASE = Lease("cell", "me", 1, float("inf"))


class Bench:
    """A tick of which only the part under test is real."""

    def __init__(self, *runs: Run) -> None:
        self.runs, self.actives, self.told = list(runs), list[int](), list[str]()
        store: Any = SimpleNamespace(
            active=lambda cell, known: (self.runs, {run.key for run in self.runs}),
            zones=lambda cell: {},
            nonce_hash=lambda run_id, launch_id: nonce_hash(f"nonce of {launch_id}"),
            add_events=lambda key, events, now: self.told.extend(event.kind for event in events),
        )
        idle: Any = SimpleNamespace(
            look=lambda: SimpleNamespace(rejected=(), capacities=dict, lists=None, monotonic=0.0),
            turn=lambda keys: frozenset(),
            world=lambda *given: None, prove=lambda snapshot: (), admit=self._admit,
            write=lambda runs, now, lease: None, sweep=lambda *given, **named: (), forget=lambda key: None,
        )  # fmt: skip
        self.tick = Tick(store, "cell", idle, idle, idle, idle, idle, idle, idle, idle, FakeClock())
        self.tick.load()

    def _admit(self, decisions: Sequence[Decision], active: int, now: float) -> tuple[list[Decision], list[Any]]:
        self.actives.append(active)
        return [], []

    def hears(self, run: Run, beat: Beat) -> Part[Beat]:
        part = Seen(beat, 0.0, "store")
        return part if self.tick._believed(run, 1e9, part) else Absent()


def keyed(key: int, status: Status, life: Attempt | None) -> Run:
    return replace(run_in(status, attempt=life), key=key, run_id=f"run-{key}")


def test_a_breakers_share_is_of_the_runs_that_have_a_machine_not_of_those_that_wait_for_one(monkeypatch: Any) -> None:
    training = [keyed(key, Status.RUNNING, attempt()) for key in range(1, 6)]
    waiting = [keyed(key, Status.WAITING, None) for key in range(6, 106)]
    bench = Bench(*training, *waiting)
    ends = [Decision(run, inferred=BEATS) for run in training]
    monkeypatch.setattr(bench.tick, "_decide", lambda *given: ends)
    bench.tick.run(LEASE)
    assert bench.actives == [5]


def test_a_late_beat_of_the_last_attempt_needs_its_nonce_too() -> None:
    run = run_in(Status.WAITING, attempt=ended(Cause.PREEMPTED, H), try_=failed_try(Cause.NO_CAPACITY, 1))
    bench = Bench(run)
    beat = Beat("digits-7", 4, "1.4.1", "m", "b", 9, "training", nonce="nonce of 1.4.1", checkpoint_step=12290)
    assert bench.hears(run, beat) == Seen(beat, 0.0, "store")
    assert bench.hears(run, replace(beat, nonce="guessed")) == Absent()
    assert bench.told == ["beat_rejected"]


def test_what_is_known_of_a_run_goes_with_it() -> None:
    run = run_in(Status.RUNNING, attempt=attempt(), try_=replace(failed_try(Cause.QUOTA, 1), launch_id="1.4.1"))
    bench = Bench(run)
    bench.hears(run, Beat("digits-7", 4, "1.4.1", "m", "b", 9, "training", nonce="nonce of 1.4.1"))
    assert bench.tick._nonces
    bench.runs = []
    bench.tick.load()
    assert not bench.tick.runs
    assert not bench.tick._nonces

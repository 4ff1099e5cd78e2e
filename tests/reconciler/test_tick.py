"""What the tick adds to decisions: the breaker's share, and state in memory that ends with a run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.observation import BEATS
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision
from supervisor.ports.store import Lease
from supervisor.reconciler.observing.beats import RejectedBeats
from supervisor.reconciler.observing.worldview import Worldview
from supervisor.reconciler.tick import Tick
from tests.fakes.clock import FakeClock
from tests.lifecycle.sample_runs import attempt, failed_try, run_in

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
        idle: Any = SimpleNamespace(forget=lambda key: None)
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

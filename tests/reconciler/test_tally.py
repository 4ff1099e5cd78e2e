"""What the loop counts: from committed events, over the observed time, and shown by the leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import BEATS, MACHINES
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.breaker import Breaker
from supervisor.reconciler import gauges
from supervisor.reconciler.tally import Tally
from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import Counter
from tests.fakes.clock import FakeClock
from tests.lifecycle.sample_runs import NOW, attempt, run_in


def events_of(kind: EventKind, **data: object) -> tuple[Event, ...]:
    return (Event(kind, "", data=data),)


def grown(counter: Counter, act: Callable[[], object]) -> dict[tuple[str, ...], float]:
    before = counter.values()
    act()
    after = counter.values()
    return {
        labels: count - before.get(labels, 0.0) for labels, count in after.items() if count != before.get(labels, 0.0)
    }


def running(key: int = 1, price: float | None = 2.0, **fields: Any) -> Run:
    life: Attempt = attempt(price_usd_per_h=price)
    return replace(run_in(Status.RUNNING, attempt=life), key=key, run_id=f"run-{key}", provider="gce", **fields)


@pytest.mark.parametrize(
    ("counter", "event", "labels"),
    [
        (metrics.LAUNCHES, events_of(EventKind.LAUNCHING), ("gce",)),
        (metrics.TRIES, events_of(EventKind.OBTAINED), ("obtained",)),
        (metrics.TRIES, events_of(EventKind.TRY_FAILED, cause="quota"), ("quota",)),
        (metrics.ATTEMPTS_ENDED, events_of(EventKind.ATTEMPT_ENDED, cause="preempted"), ("preempted",)),
        (metrics.PREEMPTIONS_SAVED, events_of(EventKind.RECOVERED, saved_on_notice=True), ("yes",)),
        (metrics.PREEMPTIONS_SAVED, events_of(EventKind.RECOVERED, saved_on_notice=False), ("no",)),
    ],
)
def test_each_event_counts_once_in_its_series(
    counter: Counter, event: tuple[Event, ...], labels: tuple[str, ...]
) -> None:
    tally, run = Tally(), running()
    assert grown(counter, lambda: tally.committed(run, run, event, NOW)) == {labels: 1}
    others = events_of(EventKind.WAITING, cause="quota") + events_of(EventKind.RECOVERED, saved_on_notice=None)
    assert grown(counter, lambda: tally.committed(run, run, others, NOW)) == {}


def test_a_run_ends_once() -> None:
    tally, run = Tally(), running()
    over = replace(run, status=Status.FAILED)
    assert grown(metrics.RUNS_ENDED, lambda: tally.committed(run, over, (), NOW)) == {("failed",): 1}
    assert grown(metrics.RUNS_ENDED, lambda: tally.committed(over, replace(over, settled=True), (), NOW)) == {}


def test_a_recovery_lasts_from_the_end_of_an_attempt_to_the_next_ones_first_beat() -> None:
    tally, run = Tally(), running()
    tally.committed(run, run, events_of(EventKind.ATTEMPT_ENDED, cause="host_error"), NOW)
    before = metrics.RECOVERY_S.spreads().get(("host_error",))
    tally.committed(run, run, events_of(EventKind.RECOVERED), NOW + 130)
    after = metrics.RECOVERY_S.spreads()["host_error",]
    assert after.total - (before.total if before else 0.0) == pytest.approx(130)
    tally.committed(run, run, events_of(EventKind.RECOVERED), NOW + 500)
    assert metrics.RECOVERY_S.spreads()["host_error",].total == after.total, "it is over"


def test_an_end_that_another_leader_saw_makes_no_recovery() -> None:
    for forget in (Tally.restart, lambda tally: tally.forget(1)):
        tally, run = Tally(), running()
        tally.committed(run, run, events_of(EventKind.ATTEMPT_ENDED, cause="gpu_fault"), NOW)
        forget(tally)
        tally.committed(run, run, events_of(EventKind.RECOVERED), NOW + 130)
        assert ("gpu_fault",) not in metrics.RECOVERY_S.spreads()


def test_money_adds_up_over_the_observed_time() -> None:
    tally = Tally()
    runs = [running(1, 2.0), running(2, 1.0), running(3, None), run_in(Status.WAITING, attempt=None)]
    assert grown(metrics.USD_TOTAL, lambda: tally.ticked(runs, 0.0)) == {}
    assert grown(metrics.USD_TOTAL, lambda: tally.ticked(runs, 1800.0)) == {("gce",): pytest.approx(1.5)}
    tally.restart()
    assert grown(metrics.USD_TOTAL, lambda: tally.ticked(runs, 9e6)) == {}, "no tick ran in between"


def test_what_bills_is_a_machine_that_is_not_gone() -> None:
    tally = Tally()
    gone = replace(running(1), attempt=attempt(price_usd_per_h=2.0, ended_at=NOW, gone_at=NOW))
    stopped = replace(running(2), attempt=attempt(price_usd_per_h=2.0, ended_at=NOW, stopped_at=NOW))
    leaving = attempt(3, price_usd_per_h=4.0, ended_at=NOW)
    both = running(3, 1.0, retiring=(Retiring(leaving.ref, leaving.launch_id, NOW, NOW + 60, attempt=leaving),))
    tally.ticked([gone, stopped, both], 0.0)
    assert tally.standing is not None
    assert tally.standing.usd_per_h == {"gce": 5.0}
    assert (tally.standing.active["gce"], tally.standing.retiring["gce"]) == (1, 1)


def shown(leads: bool, tally: Tally, **others: bool) -> Mapping[tuple[str, ...], float]:
    clock = FakeClock()
    held = {True: SimpleNamespace(lease=object), False: SimpleNamespace(lease=lambda: None)}
    tick = SimpleNamespace(
        actor=SimpleNamespace(pending=3), tally=tally, observer=SimpleNamespace(providers={"local": 0}),
        worldview=SimpleNamespace(breakers={BEATS: Breaker(opened_at=5.0), MACHINES: Breaker()}),
        incidents=SimpleNamespace(open=2),
    )  # fmt: skip
    status = SimpleNamespace(last_tick_at=clock.monotonic() - 7.0, lag_s=0.5)
    loop: Any = SimpleNamespace(leader=held[leads], tick=tick, status=status, clock=clock, poll_interval_s=30.0)
    leases: Any = {name: held[value] for name, value in others.items()}
    return {
        (reading.series.name, *map(str, reading.labels)): reading.value for reading in gauges.readings(loop, leases)
    }


def test_the_leader_shows_all_and_noughts_too() -> None:
    tally = Tally()
    leaving = attempt(3, ended_at=NOW)
    due_at = FakeClock().now() - 40
    tally.ticked([running(1, 2.0, retiring=(Retiring(leaving.ref, "1.3.1", due_at - 50, due_at),))], 0.0)
    events_of = shown(True, tally, retention=False)
    assert events_of["spot_leader", "cell"] == 1
    assert events_of["spot_leader", "retention"] == 0
    assert events_of["spot_tick_age_seconds",] == pytest.approx(7.0)
    assert (events_of["spot_breaker_open", BEATS], events_of["spot_breaker_open", MACHINES]) == (1, 0)
    assert events_of["spot_incidents_open",] == 2
    assert (events_of["spot_runs", "running"], events_of["spot_runs", "waiting"]) == (1, 0)
    assert (events_of["spot_spend_usd_per_hour", "gce"], events_of["spot_spend_usd_per_hour", "local"]) == (2.0, 0.0)
    assert events_of["spot_machines_retiring_overdue_seconds", "gce"] == pytest.approx(40)
    assert events_of["spot_actions_pending",] == 3


def test_who_does_not_lead_shows_that_and_nothing_of_the_runs() -> None:
    tally = Tally()
    tally.ticked([running()], 0.0)
    assert shown(False, tally) == {("spot_poll_interval_seconds",): 30.0, ("spot_leader", "cell"): 0.0}

"""Actions under a lease that is renewed while they wait, and under one that is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.actions import ForgetHome, PinImage, ReadMeter, Release, StopMeter, WriteStopMarker
from supervisor.domain.machines import MachineRef
from supervisor.domain.observation import Seen
from supervisor.domain.run import Approval, Files, Outcome, Run, StopRequest, WriteOff
from supervisor.domain.status import Status
from supervisor.ports.objectstore import ObjectMissing
from supervisor.ports.provider import LaunchPending, ProviderUnavailable
from supervisor.ports.store import Lease
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.outcomes import Outcomes, Reported
from supervisor.reconciler.system_clock import EventWake
from tests.fakes.clock import FakeClock
from tests.fakes.meters import FakeMeters, meters_of
from tests.fakes.objectstore import MemoryStore
from tests.lifecycle.sample_runs import attempt, run_in
from tests.scenarios.fault_points import Later

TTL_S = 8.0


class Bench:
    def __init__(self) -> None:
        self.clock, self.objects, self.later = FakeClock(), MemoryStore(), Later()
        self.given = self.lease(epoch=1)
        self.now: Lease | None = self.given
        self.row = run_in(Status.STOPPING)
        self.providers: dict[str, Any] = {}
        nothing: Any = None
        store: Any = SimpleNamespace(find=lambda run_id: self.row)
        self.actor = Actor(
            store, self.objects, self.providers, Outcomes(), self.clock, EventWake(), nothing, lambda run_id: None,
            executor=self.later, leading=lambda: self.now,
        )  # fmt: skip

    def lease(self, epoch: int) -> Lease:
        return Lease("cell", "me", epoch, self.clock.monotonic() + TTL_S)

    def written(self) -> bool:
        """Whether an action that was given under the first lease is carried out now."""
        run = run_in(Status.STOPPING)
        self.actor.submit(run, WriteStopMarker("ops"), self.given)
        self.later.drain()
        try:
            return bool(self.objects.get(runfiles.stop_marker(run.run_id)))
        except ObjectMissing:
            return False


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.actor.close()


def test_an_action_that_waited_longer_than_a_lease_is_done_under_the_renewed_one(bench: Bench) -> None:
    bench.clock.advance(2 * TTL_S)
    bench.now = bench.lease(epoch=1)
    assert bench.written()


def test_nothing_is_done_when_the_lease_is_over_lost_or_taken_again(bench: Bench) -> None:
    bench.now = bench.lease(epoch=2)
    assert not bench.written()
    bench.now = None
    assert not bench.written()
    bench.now = bench.given
    bench.clock.advance(TTL_S)
    assert not bench.written()


def test_a_stop_marker_that_is_written_late_does_not_stop_the_generation_that_a_resume_began(bench: Bench) -> None:
    bench.row = replace(bench.row, generation=2, status=Status.PENDING)
    assert not bench.written()
    bench.row = replace(bench.row, generation=1)
    assert bench.written()


def test_a_home_is_forgotten_by_the_row_as_it_is_then(bench: Bench) -> None:
    """A later attempt may have begun since it was decided, in the same home."""
    calls: list[tuple[object, ...]] = []
    bench.actor.homes = SimpleNamespace(write_off=lambda *values: calls.append(values))  # type: ignore[assignment]
    written_off, action = WriteOff("ops", 1.0, "1.4.1", "it burned"), ForgetHome("1.4.1")
    lost = run_in(Status.RECOVERING, attempt=attempt(4, ended_at=1.0), written_off=written_off)
    for row in (replace(lost, attempt=attempt(5)), replace(lost, attempt=attempt(4)), lost):
        bench.row = row
        bench.actor.submit(lost, action, bench.given)
        bench.later.drain()
    assert calls == [(lost.run_id, action.launch_id, None)]


@pytest.mark.parametrize(
    ("error", "level"), [(LaunchPending("room"), logging.INFO), (ProviderUnavailable("no"), logging.WARNING)]
)
def test_a_platform_that_searches_for_capacity_is_no_warning(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception, level: int
) -> None:
    """It may search for minutes, and each tick repeats the launch."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(bench.actor, "_carry_out", fails)
    with caplog.at_level(logging.INFO):
        bench.actor.submit(run_in(Status.LAUNCHING), PinImage("a", "a"), bench.given)
        bench.later.drain()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, "action not done")]


class Rented:
    """A platform that records whether the run's .stop existed when its machine was released."""

    def __init__(self, objects: MemoryStore) -> None:
        self.objects = objects
        self.marked: list[bool] = []

    def console(self, ref: MachineRef) -> bytes:
        return b""

    def release(self, ref: MachineRef) -> None:
        try:
            self.objects.stat(runfiles.stop_marker(run_in(Status.STOPPING).run_id))
        except ObjectMissing:
            self.marked.append(False)
        else:
            self.marked.append(True)


def released(bench: Bench, run: Run) -> list[bool]:
    platform: Any = Rented(bench.objects)
    bench.providers["local"] = platform
    bench.row = run
    bench.actor.submit(run, Release(MachineRef("local", "", "vm-1"), "1-1-1", "for a test"), bench.given)
    bench.later.drain()
    return platform.marked


def test_a_run_that_is_stopped_has_its_marker_before_its_machine_goes(bench: Bench) -> None:
    """Also where a stop met a start, or the grace was over before the marker was requested."""
    assert released(bench, replace(run_in(Status.STOPPING), stop=StopRequest("ops", 1.0))) == [True]


def test_no_other_release_leaves_a_marker(bench: Bench) -> None:
    assert released(bench, run_in(Status.RECOVERING)) == [False]
    assert released(bench, replace(run_in(Status.FINISHING), stop=StopRequest("ops", 1.0))) == [False]


def test_a_store_that_takes_no_marker_keeps_no_machine(bench: Bench) -> None:
    bench.objects.fail_writes = True
    assert released(bench, replace(run_in(Status.STOPPING), stop=StopRequest("ops", 1.0))) == [False]


# --- the bill of a host -----------------------------------------------------------------------------------------------

HOST = MachineRef("lab", "gpu1", "m-1", "id-1")


def of_host(bench: Bench, action: StopMeter | ReadMeter, run: Run, meters: FakeMeters | None) -> Reported:
    bench.providers["lab"] = SimpleNamespace(meters=meters)
    bench.actor.submit(run, action, bench.lease(epoch=1))
    bench.later.drain()
    return bench.actor.outcomes.of(run.key)


def test_a_verb_that_was_reported_as_done_is_not_carried_out_again(bench: Bench) -> None:
    """The tick that derived it once more had not seen the report yet. A new approval is another matter."""
    meters, run = meters_of("gpu1"), host_run(bench.clock.now())
    seen = of_host(bench, StopMeter(HOST, "stop", 30.0), run, meters).verb
    assert isinstance(seen, Seen)
    assert (seen.value.good, seen.value.verb, seen.value.text) == (True, "stop", "exit code 0")
    of_host(bench, StopMeter(HOST, "stop", 30.0), run, meters)
    assert meters.stopped == [("gpu1", "stop", "digits-7")]
    bench.clock.advance(5)
    of_host(bench, StopMeter(HOST, "stop", 30.0), host_run(bench.clock.now()), meters)
    of_host(bench, StopMeter(HOST, "terminate", 30.0), run, meters)
    assert [verb for _, verb, _ in meters.stopped] == ["stop", "stop", "terminate"]


def test_a_verb_that_waited_longer_than_its_readings_hold_is_dropped(bench: Bench) -> None:
    """Another supervisor may have started a run on the host meanwhile. The next tick derives it again."""
    meters, run = meters_of("gpu1"), host_run(bench.clock.now())
    bench.providers["lab"] = SimpleNamespace(meters=meters)
    for waited_s, done in ((3.1, 0), (2.9, 1)):
        bench.actor.submit(run, StopMeter(HOST, "stop", 3.0, ("listing: absent, 0.3 s old",)), bench.lease(epoch=1))
        bench.clock.advance(waited_s)
        bench.later.drain()
        assert len(meters.stopped) == done
    verb = bench.actor.outcomes.of(run.key).verb
    assert isinstance(verb, Seen)
    assert verb.value.readings == ("listing: absent, 0.3 s old",)


def test_reads_of_bills_have_threads_of_their_own(bench: Bench) -> None:
    """A read may take 50 s, and a verb may not wait so long."""
    names: list[str] = []
    bench.actor.executor = None
    bench.actor.pool = lambda threads, name: names.append(name) or bench.later  # type: ignore[func-returns-value]
    for action in (ReadMeter(HOST, "stop"), StopMeter(HOST, "stop", 30.0)):
        of_host(bench, action, host_run(0.0), meters_of("gpu1"))
    assert len(set(names)) == 2


def test_what_fails_is_reported_and_a_failed_read_says_that_it_runs_on(bench: Bench) -> None:
    meters, run = meters_of("gpu1"), host_run(bench.clock.now())
    meters.fails, meters.reads = "no such pod", "timeout"
    tried = of_host(bench, StopMeter(HOST, "stop", 30.0), run, meters).verb
    assert isinstance(tried, Seen)
    assert (tried.value.good, tried.value.text) == (False, "no such pod")
    read = of_host(bench, ReadMeter(HOST, "stop"), run, meters).meter
    assert isinstance(read, Seen)
    assert (read.value.good, read.value.text) == (False, "it cannot be read: timeout")
    meters.reads = False
    read = of_host(bench, ReadMeter(HOST, "stop"), run, meters).meter
    assert isinstance(read, Seen)
    assert read.value.good
    gone = of_host(bench, ReadMeter(HOST, "stop"), run, None).meter
    assert isinstance(gone, Seen)
    assert (gone.value.good, gone.value.text) == (
        False, "it cannot be read: lab cannot stop the bill of gpu1 any more",
    )  # fmt: skip


def host_run(approved_at: float) -> Run:
    outcome = Outcome("ab", 1, 3, approved_at, None)
    approval = Approval("ann", approved_at, "id-1", "ab", verb="stop")
    return run_in(
        Status.AWAITING_TEARDOWN, attempt=attempt(machine_id="id-1"), files=Files(outcome=outcome), approval=approval
    )

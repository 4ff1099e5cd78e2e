"""A stop during a launch: where no create call can have been made, the run does not wait for its response.

Waiting for a create call that was never made would keep the run `stopping` for minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.actions import Launch
from supervisor.domain.attempt import Try
from supervisor.domain.observation import NOT_READ, CreateFailed, Seen
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.store import Lease
from supervisor.reconciler.acting import batonwork
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.launches import Paces
from supervisor.reconciler.outcomes import Outcomes
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider, offers_in
from tests.fakes.wake import FakeWake
from tests.lifecycle.sample_runs import NOW, run_in
from tests.scenarios.fault_points import AtOnce

OFFER = offers_in(["a"])[0]
TRY = Try(1, 1, "1.1.1", "spot-0badcafe-a1-t1", OFFER.placement, NOW)
LAUNCHING = run_in(Status.LAUNCHING, provider="local", try_=TRY)
STOPPED = replace(LAUNCHING, stop=StopRequest("somebody", NOW))


class Rows:
    """The part of the store that a launch uses: `rows` are the results of `find`, the last one repeats."""

    supervisor_id = "s"

    def __init__(self, *rows: Run) -> None:
        self.rows = list(rows)

    def find(self, run_id: str) -> Run:
        return self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]

    def set_nonce_hash(self, *args: object) -> bool:
        return True

    def spec(self, key: int) -> dict[str, Any]:
        return {"command": "true"}


class Stand:
    def __init__(self, *rows: Run) -> None:
        clock = FakeClock()
        self.objects = MemoryStore(clock.now)
        self.provider = FakeProvider(clock, zones=["a"])
        self.outcomes = Outcomes()
        paces = Paces("memory://test", None, 1, 1, 1, 7200, 1, 1)
        self.actor = Actor(
            Rows(*rows), self.objects, {"local": self.provider}, self.outcomes, clock, FakeWake(clock), paces,  # type: ignore[arg-type]
            lambda run_id: None, executor=AtOnce(),
        )  # fmt: skip

    def launch(self) -> object:
        lease = Lease("cell", "me", 1, 1e9)
        self.actor.submit(LAUNCHING, Launch(TRY, holder_gone=True), lease)
        return self.outcomes.of(LAUNCHING.key).create


def raised(stand: Stand) -> None:
    batonwork.raise_next(stand.objects, LAUNCHING, TRY.launch_id, True, "s")


def marked(stand: Stand) -> None:
    batonwork.write_stop(stand.objects, LAUNCHING.run_id, "somebody")


def away(stand: Stand) -> None:
    stand.objects.fail_reads = True


@pytest.mark.parametrize(
    ("rows", "before", "calls", "definite"),
    [
        ([LAUNCHING], None, 1, False),  # nobody stops it
        ([STOPPED], None, 0, True),  # before `next` was raised
        ([LAUNCHING, STOPPED], None, 0, True),  # after: we have raised it ourselves just now
        ([LAUNCHING, STOPPED], raised, 0, False),  # raised by an earlier launch, which may have been carried out
        ([LAUNCHING], marked, 0, True),
        ([LAUNCHING], away, 0, False),  # could not read is not a stop
    ],
)
def test_only_a_call_that_may_have_been_made_is_waited_for(
    rows: list[Run], before: Callable[[Stand], None] | None, calls: int, definite: bool
) -> None:
    stand = Stand(*rows)
    if before is not None:
        before(stand)
    reported = stand.launch()
    assert stand.provider.calls["launch"] == calls
    assert (isinstance(reported, Seen) and reported.value.launch_id == TRY.launch_id) is definite


def test_the_end_of_a_create_call_outlives_a_change_of_status() -> None:
    outcomes = Outcomes()
    outcomes.create_failed(1, CreateFailed("1.1.1", TRY.outcome, "stopped"))  # type: ignore[arg-type]
    outcomes.finalised(1)
    outcomes.moved(1)
    reported = outcomes.of(1)
    assert isinstance(reported.create, Seen)
    assert reported.finalised is NOT_READ
    outcomes.forget(1)
    assert outcomes.of(1).create is NOT_READ

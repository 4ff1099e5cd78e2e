"""Evidence is kept before a release and never delays it, completed at the end, and could not read is not absent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.domain.actions import Finalise, KeepEvidence, Release
from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.observation import Seen
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from supervisor.ports.objectstore import PreconditionFailed, StoreUnavailable
from supervisor.ports.store import Lease, StoreDown
from supervisor.reconciler.acting import records
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.system_clock import EventWake
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.lifecycle.sample_runs import attempt, ended, pulse, run_in
from tests.scenarios.fault_points import Later
from tests.waiting import wait_for

OVER = ended(Cause.STALLED, 60.0, evidence="10 polls without progress", readings=("beat: phase training",))
RUN = run_in(Status.RECOVERING, attempt=OVER, pulse=pulse(step=300), retiring=())
KEY, AGENT = runfiles.evidence(RUN.run_id, 4), runfiles.agent_evidence(RUN.run_id, 4)
RELEASE = Release(OVER.ref, OVER.launch_id, "attempt 4 ended", ("listing: up, 1 s old",))


def part(when: str = "end", launch_id: str = "1.4.1", **more: Any) -> bytes:
    return json.dumps({"version": 1, "when": when, "launch_id": launch_id, "log_tail": ["bye"], **more}).encode()


class Scene:
    def __init__(self) -> None:
        self.clock, self.objects, self.later = FakeClock(), MemoryStore(), Later()
        self.rows = [OVER]
        self.released: list[Any] = []
        self.outcomes = Outcomes()
        provider = SimpleNamespace(console=lambda ref: b"console", release=self.released.append)
        store: Any = SimpleNamespace(
            attempts=lambda key: self.rows, supervisor_id="sup", spec=lambda key: {}, find=lambda run_id: RUN
        )
        nothing: Any = None
        lease = Lease("cell", "me", 1, self.clock.monotonic() + 1e9)
        self.actor = Actor(
            store, self.objects, {"gce": provider}, self.outcomes, self.clock, EventWake(), nothing,  # type: ignore[dict-item]
            lambda run_id: None, executor=self.later, leading=lambda: lease,
        )  # fmt: skip
        self.lease, self.store = lease, store

    def do(self, action: Any, run: Any = RUN) -> None:
        self.actor.submit(run, action, self.lease)
        self.later.drain()

    @property
    def kept(self) -> Any:
        return json.loads(self.objects.get(KEY)[0])

    def has(self, key: str) -> bool:
        return any(info.key == key for page in self.objects.pages("") for info in page.objects)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.actor.close()


def test_it_is_in_the_store_before_the_machine_is_released(scene: Scene) -> None:
    scene.objects.put(AGENT, part())
    seen: list[bool] = []
    scene.actor.providers["gce"].release = lambda ref: seen.append(scene.has(KEY))  # type: ignore[method-assign]
    scene.do(RELEASE)
    assert seen == [True]
    assert scene.kept["readings"] == {"end": ["beat: phase training"], "release": ["listing: up, 1 s old"]}
    assert scene.kept["console"] == runfiles.console(RUN.run_id, 4)
    assert scene.kept["log_tail"] == ["bye"]


TROUBLES: dict[str, Callable[[Scene], object]] = {
    "store away": lambda scene: setattr(scene.objects, "fail_reads", True),
    "store full": lambda scene: setattr(scene.objects, "full", True),
    "store slow": lambda scene: setattr(scene.objects, "read", slow(scene)),
    "database down": lambda scene: setattr(scene.store, "attempts", down),
    "a bug of ours": lambda scene: setattr(scene.objects, "get", lambda key: 1 / 0),
}


def slow(scene: Scene) -> Any:
    def read(*args: Any) -> Any:
        scene.clock.advance(records.LIMIT_S + 1)
        return iter((part(),))

    return read


def down(key: int) -> Any:
    raise StoreDown("away")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_nothing_of_it_stands_in_the_way_of_a_release(scene: Scene, trouble: str) -> None:
    TROUBLES[trouble](scene)
    run = replace(RUN, attempt=None) if trouble == "database down" else RUN
    scene.do(RELEASE, run)
    assert scene.released == [OVER.ref]


def test_an_unreadable_part_is_reported_and_read_again(scene: Scene) -> None:
    scene.objects.put(AGENT, part())
    scene.objects.fail_prefixes.add(AGENT)
    scene.do(KeepEvidence("1.4.1"))
    assert scene.kept["agent"] is None
    assert scene.kept["agent_missing"].startswith("it could not be read")
    scene.objects.fail_prefixes.clear()
    scene.do(KeepEvidence("1.4.1"))
    assert scene.kept["agent"]["when"] == "end"
    scene.objects.fail_prefixes.add(AGENT)
    scene.do(KeepEvidence("1.4.1"))
    assert scene.kept["agent"]["when"] == "end", "never replaced by less"


def test_where_the_present_document_cannot_be_read_nothing_is_written(scene: Scene) -> None:
    scene.objects.put(AGENT, part())
    scene.do(RELEASE)
    before = scene.kept
    scene.objects.fail_prefixes.add(KEY)
    scene.objects.delete(AGENT)
    with pytest.raises(StoreUnavailable):
        records.keep_evidence(scene.objects, RUN, OVER, scene.clock.monotonic)
    scene.objects.fail_prefixes.clear()
    assert scene.kept == before


def test_two_at_a_time_lose_nothing(scene: Scene) -> None:
    """Between our read and our write another writer records its release."""
    plain, other = scene.objects.put, [True]

    def put(key: str, data: bytes, *more: Any) -> Any:
        if key == KEY and other:
            other.clear()
            records.keep_evidence(scene.objects, RUN, OVER, scene.clock.monotonic, ("theirs",))
        return plain(key, data, *more)

    scene.objects.put = put  # type: ignore[assignment]
    records.keep_evidence(scene.objects, RUN, OVER, scene.clock.monotonic, ("ours",))
    assert scene.kept["readings"]["release"] == ["theirs", "ours"]


def test_a_document_that_always_changes_is_an_error(scene: Scene) -> None:
    def refuse(*args: Any) -> Any:
        raise PreconditionFailed

    scene.objects.put = refuse  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable, match="changed 4 times"):
        records.keep_evidence(scene.objects, RUN, OVER, scene.clock.monotonic)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (part(launch_id="1.3.1"), "belongs to another launch"),
        (b"{torn", "not what an agent writes"),
        (b" " * 300_000, "larger than"),
    ],
)
def test_a_part_that_is_not_of_this_agent_is_not_taken(scene: Scene, raw: bytes, why: str) -> None:
    scene.objects.put(AGENT, raw)
    scene.do(KeepEvidence("1.4.1"))
    assert scene.kept["agent"] is None
    assert why in scene.kept["agent_missing"]


def test_without_the_agents_part_the_log_comes_from_the_store(scene: Scene) -> None:
    scene.objects.put(runfiles.log_chunk(RUN.run_id, 4, 0), b"first\nsec")
    scene.objects.put(runfiles.log_chunk(RUN.run_id, 4, 1), b"ond\nlast")
    scene.do(KeepEvidence("1.4.1"))
    assert scene.kept["log_tail"] == ["first", "second", "last"]
    assert scene.kept["agent_missing"] == "the agent left none"


def test_what_was_missed_is_made_up_for_at_the_end_of_the_run(scene: Scene) -> None:
    """A kill after the commit of an end, before its evidence was kept."""
    third = ended(Cause.PREEMPTED, 60.0, number=3, launch_id="1.3.1")
    scene.rows = [third, OVER]
    scene.objects.put(AGENT, part())
    scene.do(KeepEvidence("1.4.1"))
    scene.objects.calls.clear()
    scene.do(Finalise("failed"), replace(RUN, status=Status.FAILED))
    assert scene.has(runfiles.evidence(RUN.run_id, 3))
    assert scene.outcomes.of(RUN.key).finalised == Seen(True)
    assert scene.objects.calls["get", KEY] == 0, "what is final is not read again"


def test_what_was_purged_is_not_made_up_for(scene: Scene) -> None:
    """Broken variant: the evidence of a purged attempt came back at the next end of the run, without its agent."""
    third = ended(Cause.PREEMPTED, 60.0, number=3, launch_id="1.3.1", started_at=OVER.started_at - 100)
    scene.rows = [third, OVER]
    scene.do(Finalise("failed"), replace(RUN, status=Status.FAILED, files=Files(purged_at=OVER.started_at - 50)))
    assert not scene.has(runfiles.evidence(RUN.run_id, 3))
    assert scene.has(KEY)


def test_an_attempt_that_is_live_or_unknown_leaves_no_document(scene: Scene) -> None:
    scene.rows = [attempt()]
    scene.do(KeepEvidence("1.4.1"), run_in(Status.RUNNING, attempt=attempt()))
    scene.do(KeepEvidence("1.9.1"))
    assert not scene.has(KEY)


def test_the_attempt_of_the_last_retiring_machine_is_found(scene: Scene) -> None:
    item = Retiring(OVER.ref, OVER.launch_id, 0.0, 0.0, attempt=OVER)
    after = run_in(Status.RUNNING, attempt=attempt(number=5, launch_id="1.5.1"), retiring=(item,))
    scene.rows = []
    scene.do(KeepEvidence("1.4.1"), after)
    assert scene.kept["attempt"] == 4


@pytest.mark.parametrize(
    "raw", [b"{torn", b"{}", b'{"agent": "end", "readings": {"end": [], "release": [{}]}, "log_tail": 7}']
)
def test_a_damaged_document_is_replaced(scene: Scene, raw: bytes) -> None:
    scene.objects.put(KEY, raw)
    scene.do(KeepEvidence("1.4.1"))
    assert scene.kept["cause"] == "stalled"


def test_whatever_the_store_contains_the_run_is_settled(scene: Scene) -> None:
    """Broken variant: 1e999 is read as infinity, which could not be written, and the run never settled."""
    scene.objects.put(AGENT, part().replace(b"{", b'{"more": 1e999, ', 1))
    scene.objects.put(runfiles.facts(RUN.run_id, 4), b'{"a":' + b"[" * 975 + b"]" * 975 + b"}")
    scene.objects.put(KEY, b'{"agent": "end", "readings": 1, "log_tail": 7}')
    scene.do(Finalise("failed"), replace(RUN, status=Status.FAILED))
    assert scene.outcomes.of(RUN.key).finalised == Seen(True)
    assert scene.kept["agent_missing"] == "it is not what an agent writes"


def test_the_evidence_of_many_does_not_stand_before_other_actions(scene: Scene) -> None:
    """Separate threads: here all of them hang, and a release is carried out nevertheless."""
    gate = threading.Event()
    busy = Actor(
        scene.store, scene.objects, scene.actor.providers, scene.outcomes, scene.clock, EventWake(),
        scene.actor.paces, lambda run_id: None, threads=1, leading=lambda: scene.lease,
    )  # fmt: skip
    attempts = scene.store.attempts
    scene.store.attempts = lambda key: gate.wait(30) and attempts(key)
    try:
        for number in range(5, 15):
            busy.submit(RUN, KeepEvidence(f"1.{number}.1"), scene.lease)
        busy.submit(RUN, RELEASE, scene.lease)
        wait_for(lambda: scene.released, 10, "the release")
    finally:
        gate.set()
        busy.close()

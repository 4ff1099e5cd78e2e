"""Several providers behind one port: which one is called, and what happens when one does not respond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState
from supervisor.domain.observation import BEATS, MACHINES, OBSERVE_S, Absent, Part, Seen, Unknown, gap_s, machines_in
from supervisor.domain.policies import Knobs
from supervisor.lifecycle.breaker import Breaker
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.reconciler.fleet import Fleet, Listed
from supervisor.reconciler.observing.observations import Observations
from supervisor.reconciler.observing.observe import Observer, Snapshot
from supervisor.reconciler.observing.worldview import Worldview
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider
from tests.fakes.stalling import Stalling, VirtualThreads

POLL_S = 30.0
HOUR_S = 3600.0
TAKES_S = 0.5  # a normal response of the far provider


class Two:
    """A near provider and a far one, a tick every half minute, and a clock that moves while a caller waits."""

    def __init__(self, bound_s: float = OBSERVE_S) -> None:
        self.clock = FakeClock()
        self.near = FakeProvider(self.clock, ("near-a", "near-b"), "near")
        self.far = FakeProvider(self.clock, ("far-a", "near-a"), "far")
        self.slow = Stalling(self.far, self.clock)
        self.slow.takes_s = TAKES_S
        self.threads = VirtualThreads(self.clock)
        self.late: list[float] = []
        self.fleet = Fleet(
            {"near": self.near, "far": self.slow}, self.clock.monotonic, bound_s, self.threads, self.late.append
        )
        objects = MemoryStore(now=self.clock.now)
        self.observer = Observer(self.fleet, objects, dict, self.clock, "s", POLL_S)

    def observe(self) -> Snapshot:
        """The next one; `took_s`: how long it lasted."""
        self.threads.let_pass(POLL_S)
        began = self.clock.monotonic()
        snapshot = self.observer.observe()
        self.took_s = self.clock.monotonic() - began
        return snapshot

    def hang(self, seconds: float) -> None:
        """From the next look on."""
        self.slow.hangs_until = self.clock.monotonic() + POLL_S + seconds

    def start(self, provider: FakeProvider, run_id: str = "digits") -> Machine:
        place = provider.offers()[0].placement
        return self.fleet.launch(LaunchRequest(f"m-{run_id}", "r", place, "s", run_id, "1.1.1", 60.0))

    def part(self, snapshot: Snapshot, name: str, there_at: float | None = None) -> Part[Machine]:
        return self.observations(snapshot).machine(MachineRef("far", "far-a", name), "1.1.1", there_at)

    def observations(self, snapshot: Snapshot) -> Observations:
        nothing: Any = None
        return Observations(snapshot, nothing, nothing, "s", self.clock.now())


@pytest.fixture
def two() -> Iterator[Two]:
    two = Two()
    yield two
    two.threads.shutdown()


# --- who is asked -------------------------------------------------------------------------------------------------


def test_a_launch_goes_by_its_placement_and_a_machine_by_its_reference(two: Two) -> None:
    machine = two.start(two.far)
    ref = MachineRef("far", machine.zone, machine.name)
    assert two.fleet.find(ref) == machine
    assert two.fleet.find(replace(ref, provider="near")) is None
    two.fleet.console(ref)
    two.fleet.ask_to_stop(ref)
    two.fleet.release(ref)
    calls = {name: two.far.calls[name] for name in ("launch", "find", "console", "ask_to_stop", "release")}
    assert set(calls.values()) == {1}
    assert two.near.calls == {"find": 1}


def test_offers_come_in_the_given_order(two: Two) -> None:
    assert two.fleet.offers() == two.near.offers() + two.far.offers()
    assert list(two.fleet) == ["near", "far"]


def test_a_provider_that_is_not_in_the_settings_does_not_respond(two: Two) -> None:
    with pytest.raises(ProviderUnavailable, match="provider gone is not in the settings"):
        two.fleet.release(MachineRef("gone", "a", "m"))
    snapshot = two.observe()
    part = two.observations(snapshot).machine(MachineRef("gone", "a", "m"), "1.1.1")
    assert part == Unknown("provider gone is not in the settings")


def test_the_room_of_both_is_one_listing_for_the_port(two: Two) -> None:
    near, far = two.start(two.near, "one"), two.start(two.far, "two")
    assert two.fleet.machines() == MachineListing((near, far))
    two.far.down = True
    assert two.fleet.machines() == MachineListing((near,), frozenset({"far-a", "near-a"}))
    two.near.down = True
    with pytest.raises(ProviderUnavailable):
        two.fleet.machines()


# --- a place that hangs -------------------------------------------------------------------------------------------


def test_a_slow_provider_costs_one_wait_and_is_unknown_alone(two: Two) -> None:
    two.observe()
    two.hang(HOUR_S)
    waits = []
    for _ in range(5):
        snapshot = two.observe()
        waits.append(two.took_s)
        assert snapshot.listings["near"].listing is not None
        assert snapshot.unread == {"far-a of far", "near-a of far"}, "its zones alone, whatever they are called"
    assert waits == [OBSERVE_S, 0.0, 0.0, 0.0, 0.0]
    assert snapshot.listings["far"].problem.startswith("machines cannot be read: far has not answered for 130 s")
    assert two.slow.began.count("machines") == 2, "one request is open; no second one waits behind it"


def test_without_the_bound_every_tick_would_hang_with_it(two: Two) -> None:
    unbounded = Two(bound_s=float("inf"))
    unbounded.observe()
    unbounded.hang(HOUR_S)
    unbounded.observe()
    assert unbounded.took_s == HOUR_S


def test_a_late_listing_has_the_age_of_its_request(two: Two) -> None:
    machine = two.start(two.far)
    two.observe()
    two.hang(40.0)
    two.observe()
    asked_at = two.clock.now() - two.took_s
    snapshot = two.observe()
    part = two.part(snapshot, machine.name)
    assert isinstance(part, Seen)
    assert part.age_s == snapshot.taken_at - asked_at == 40.0
    assert snapshot.fresh.keys() == {BEATS, "machines of near", "machines of far"}
    assert two.took_s == 0.0, "this tick does not wait for the late provider either"
    prompt = two.part(two.observe(), machine.name)
    assert isinstance(prompt, Seen)
    assert prompt.age_s == 0.0, "after a listing in time the tick waits again"


def test_a_machine_that_an_old_listing_lacks_may_be_newer(two: Two) -> None:
    before = two.start(two.far, "before")
    two.observe()
    there_at = two.clock.now()
    two.far.lose(before.name)
    two.hang(40.0)
    two.observe()
    late, now = two.observe(), two.clock.now()
    assert isinstance(two.part(late, "m-new"), Unknown)
    assert isinstance(two.part(late, "m-new", there_at=now - 39.0), Unknown), "it came after the request"
    known = two.part(late, before.name, there_at)
    assert known == Absent(40.0, "late listing"), "it existed before the request, and names are never used twice"


def test_a_listing_after_an_hour_restarts_every_limit(two: Two) -> None:
    first = two.observe().observing_since
    two.hang(HOUR_S)
    while not (snapshot := two.observe()).listings["far"].late_s:
        assert two.clock.monotonic() < 2 * HOUR_S
    assert snapshot.listings["far"].late_s > HOUR_S
    assert snapshot.listings["far"].problem.endswith("s old"), "nothing is swept on it, and nobody is Absent"
    assert snapshot.observing_since["machines of far"] == snapshot.taken_at
    assert snapshot.observing_since["machines of near"] == first["machines of near"]
    assert snapshot.unread == {"far-a of far", "near-a of far"}, "nothing is started on so old a word"
    assert two.observe().unread == frozenset()


def test_a_provider_that_always_needs_longer_than_the_bound_is_still_read(two: Two) -> None:
    machine = two.start(two.far)
    first = two.observe().observing_since["machines of far"]
    assert two.late == []
    ages = []
    for _ in range(20):
        two.hang(OBSERVE_S + 5.0)
        part = two.part(snapshot := two.observe(), machine.name)
        ages.append(part.age_s if isinstance(part, Seen) else None)
        assert two.took_s == (0.0 if len(ages) > 1 else OBSERVE_S)
    assert ages[1:] == [POLL_S + (OBSERVE_S if not number else 0.0) for number in range(19)]
    assert snapshot.unread == frozenset()
    assert snapshot.observing_since["machines of far"] == first
    assert two.late == [OBSERVE_S + 5.0] * 19, "each late listing wakes the loop"


def test_a_provider_that_always_needs_longer_than_a_poll_is_no_gap_where_its_listing_wakes_the_loop(two: Two) -> None:
    machine = two.start(two.far)
    first = two.observe().observing_since["machines of far"]
    two.slow.takes_s = POLL_S + 5.0
    two.observer.observe()
    for number in range(10):
        while len(two.late) == number:
            two.threads.let_pass(1.0)
        part = two.part(snapshot := two.observer.observe(), machine.name)
        assert isinstance(part, Seen)
        assert part.age_s <= gap_s(POLL_S)
        assert (snapshot.unread, snapshot.observing_since["machines of far"]) == (frozenset(), first)


def test_a_mistake_in_one_provider_stops_no_other(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> MachineListing:
        raise KeyError("zone")

    monkeypatch.setattr(two.far, "machines", wrong)
    snapshot = two.observe()
    assert snapshot.listings["near"].listing is not None
    assert "far cannot be listed" in snapshot.listings["far"].problem


def test_lookups_are_bounded_too_and_one_that_hangs_delays_no_other(two: Two) -> None:
    near, far = two.start(two.near, "one"), two.start(two.far, "two")
    refs = [MachineRef("near", near.zone, near.name), MachineRef("far", far.zone, far.name)]
    many = [MachineRef("near", "near-a", f"never-{number}") for number in range(40)]
    assert two.fleet.lookups([*refs, *many]) == {refs[0]: near, refs[1]: far} | dict.fromkeys(many)
    two.slow.hangs_until = two.clock.monotonic() + HOUR_S
    began = two.clock.monotonic()
    for _ in range(3):
        answers = two.fleet.lookups([refs[1], refs[0], MachineRef("gone", "a", "m")])
        assert answers[refs[0]] == near
        assert isinstance(answers[refs[1]], ProviderUnavailable)
    assert two.clock.monotonic() - began == OBSERVE_S


def test_a_lookup_without_a_result_in_one_tick_comes_first_in_the_next(two: Two) -> None:
    refs = [MachineRef("far", "far-a", f"m-{number:03}") for number in range(100)]
    two.slow.takes_s = 1.0
    began = two.clock.monotonic()
    first = two.fleet.lookups(refs)
    unanswered = {ref for ref in refs if first[ref] is not None}
    assert two.clock.monotonic() - began <= OBSERVE_S
    assert 0 < len(unanswered) < len(refs)
    second = two.fleet.lookups(refs)
    answered = {ref for ref in refs if second[ref] is None}
    assert answered
    assert answered <= unanswered


def test_a_single_provider_is_read_in_the_thread_of_the_caller() -> None:
    clock = FakeClock()
    slow = Stalling(FakeProvider(clock), clock)
    fleet = Fleet({"local": slow}, clock.monotonic)
    slow.hangs_until = clock.monotonic() + 100.0
    listed = fleet.listings()["local"]
    assert isinstance(listed, Listed)
    assert listed.requested_at is None
    assert clock.monotonic() == slow.hangs_until, "outside of any pool time itself goes on"


# --- sources by provider ------------------------------------------------------------------------------------------


def test_sources_of_one_are_called_as_ever_and_of_several_by_name(two: Two) -> None:
    clock = FakeClock()
    lone = Observer({"local": FakeProvider(clock)}, MemoryStore(now=clock.now), dict, clock, "s", POLL_S)
    assert set(lone.observe().observing_since) == {
        BEATS, MACHINES, *map(machines_in, ("local-a", "local-b", "local-c")),
    }  # fmt: skip
    assert set(two.observe().observing_since) == {
        BEATS, "machines of near", "machines of near:near-a", "machines of near:near-b",
        "machines of far", "machines of far:far-a", "machines of far:near-a",
    }  # fmt: skip


def test_the_breaker_of_one_provider_is_not_that_of_another(two: Two) -> None:
    view = Worldview(Knobs("s"), two.fleet)
    assert set(view.breakers) == {BEATS, "machines of near", "machines of far"}
    opened = Breaker(opened_at=two.clock.monotonic())
    view.breakers["machines of far"] = view.breakers["machines of near"] = opened
    two.far.down = True
    [event] = view.prove(two.observe())
    assert event.text.startswith("machines of near are proven fresh")
    assert view.world(two.observe(), {}).breakers_open == {"machines of far"}


def test_a_listing_requested_before_the_breaker_opened_proves_nothing(two: Two) -> None:
    view = Worldview(Knobs("s"), two.fleet)
    two.observe()
    two.hang(40.0)
    two.observe()
    view.breakers["machines of far"] = Breaker(opened_at=two.clock.monotonic())
    late = two.observe()
    assert late.listings["far"].late_s == 40.0
    assert view.prove(late) == []
    assert view.prove(two.observe()) != []


def test_a_machine_that_a_late_listing_shows_as_ended_has_ended(two: Two) -> None:
    machine = two.start(two.far)
    two.far.end(machine.name)
    two.observe()
    two.hang(40.0)
    two.observe()
    part = two.part(two.observe(), machine.name)
    assert isinstance(part, Seen)
    assert part.age_s == 40.0
    assert part.value.state is MachineState.ENDED

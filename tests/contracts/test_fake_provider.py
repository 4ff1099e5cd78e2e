"""The fake provider keeps the promises it is used to test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import LaunchRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from tests.contracts.asking_suite import AskingContract
from tests.contracts.disasters_suite import DisastersContract
from tests.contracts.keeping_suite import KeepingContract
from tests.contracts.provider_subject import Subject, ref
from tests.contracts.provider_suite import ProviderContract
from tests.fakes.clock import FakeClock
from tests.fakes.provider import FakeProvider


class FakeSubject(Subject):
    def __init__(self, make: Callable[[FakeClock], FakeProvider] = FakeProvider) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.fake = self.provider = make(self.clock)
        self.gpus = {"cpu": "", "l4x2": "2 × L4"}  # the second is not offered any more
        self.fake.gpu_words = {"l4x2": "2 × L4"}
        self.fake.boot_s = 3.0
        self.fake.release_delay_s = 2.0

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(600):
            if answer := condition():
                return answer
            self.clock.advance(0.1)
        raise AssertionError(f"a minute went by without {what}")

    def keep_secret(self, value: str) -> str:
        reference = f"env:KEPT_{len(self.fake.secrets)}"
        self.fake.secrets[reference] = value
        return reference

    def spoil_secret(self, reference: str, spoilt: bool = True) -> None:
        (self.fake.spoilt.add if spoilt else self.fake.spoilt.discard)(reference)

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        self.fake.unreachable.add(request.placement.zone)
        yield
        self.fake.unreachable.clear()

    @contextmanager
    def looking_for_room(self, request: LaunchRequest, finds: bool) -> Iterator[None]:
        self.fake.room_s = 5.0
        if not finds:
            self.fake.stockout([request.placement.zone], None)
        yield
        self.fake.room_s = 0.0
        self.fake.stockout([request.placement.zone], 0.0)

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        self.fake.down = True
        yield
        self.fake.down = False


@pytest.fixture
def subject() -> FakeSubject:
    return FakeSubject()


class TestFakeProvider(ProviderContract, DisastersContract, AskingContract, KeepingContract):
    pass


# --- what a test can make it do ---------------------------------------------------------------------------------------


def test_an_answer_can_get_lost_while_the_machine_comes_up(subject: FakeSubject) -> None:
    request = subject.request()
    subject.provider.next_launch(ProviderUnavailable("timeout"), comes_up=True)
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(request)
    machine = subject.listed(request)
    assert machine is not None
    assert subject.provider.launch(request).machine_id == machine.machine_id


def test_a_launch_can_fail_without_a_machine_and_quota_is_no_stock_out(subject: FakeSubject) -> None:
    request = subject.request()
    subject.provider.next_launch(ProviderUnavailable("timeout"), times=2)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            subject.provider.launch(request)
    assert subject.listed(request) is None
    subject.provider.quota.add(request.placement.zone)
    with pytest.raises(QuotaExceeded):
        subject.provider.launch(request)
    subject.provider.quota.clear()
    subject.provider.capacity[request.placement.zone] = 0
    with pytest.raises(NoCapacity):
        subject.provider.launch(request)


def test_a_stock_out_ends_with_its_time(subject: FakeSubject) -> None:
    request = subject.request()
    subject.provider.stockout([request.placement.zone], 60.0)
    subject.clock.advance(59.9)
    with pytest.raises(NoCapacity):
        subject.provider.launch(request)
    subject.clock.advance(0.2)
    assert subject.provider.launch(request).state is MachineState.STARTING


def test_a_release_can_take_its_time_or_never_come(subject: FakeSubject) -> None:
    slow, never = subject.request(), subject.request(run="never-gone")
    subject.up(slow)
    subject.up(never)
    subject.provider.release_delay_s = 60.0
    subject.provider.immortal.add(never.name)
    subject.provider.release(ref(slow))
    subject.provider.release(ref(never))
    subject.clock.advance(59.0)
    assert subject.listed(slow) is not None
    subject.clock.advance(2.0)
    assert subject.listed(slow) is None
    assert subject.listed(never) is not None


def test_a_machine_can_vanish_end_or_be_anothers(subject: FakeSubject) -> None:
    request, other = subject.request(), subject.request(run="other")
    machine = subject.up(request)
    subject.up(other)
    subject.provider.end(other.name, Cause.HOST_ERROR, "operation 17")
    ended = subject.listed(other)
    assert ended is not None
    assert ended.record is not None
    assert (ended.state, ended.record.cause, ended.record.detail) == (
        MachineState.ENDED,
        Cause.HOST_ERROR,
        "operation 17",
    )
    subject.provider.lose(request.name)
    assert subject.listed(request) is None
    subject.provider.add(replace(machine, name="theirs", supervisor_id="supervisor-two"))
    assert {m.name for m in subject.provider.machines().machines} == {other.name, "theirs"}
    assert subject.provider.calls["launch"] == 2

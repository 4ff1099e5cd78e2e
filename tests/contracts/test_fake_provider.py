"""The fake provider keeps the promises it is used to test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor.ports.provider import LaunchRequest
from tests.contracts.provider_suite import DisastersContract, ProviderContract, Subject
from tests.fakes.clock import FakeClock
from tests.fakes.provider import FakeProvider


class FakeSubject(Subject):
    def __init__(self, make: Callable[[FakeClock], FakeProvider] = FakeProvider) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.provider = make(self.clock)
        self.provider.boot_s = 3.0
        self.provider.release_delay_s = 2.0

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(600):
            if answer := condition():
                return answer
            self.clock.advance(0.1)
        raise AssertionError(f"a minute went by without {what}")

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        self.provider.unreachable.add(request.placement.zone)
        yield
        self.provider.unreachable.clear()

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        self.provider.down = True
        yield
        self.provider.down = False


@pytest.fixture
def subject() -> FakeSubject:
    return FakeSubject()


class TestFakeProvider(ProviderContract, DisastersContract):
    pass

"""A fleet is a provider: with one it keeps the promises of that one, with two those of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from supervisor.ports.provider import KeepsMachines, LaunchRequest
from supervisor.reconciler.fleet import Fleet, keeper_of
from tests.contracts.asking_suite import AskingContract
from tests.contracts.provider_subject import Subject
from tests.contracts.provider_suite import ProviderContract
from tests.contracts.test_fake_provider import FakeSubject
from tests.fakes.provider import FakeProvider


class FleetSubject(FakeSubject):
    """`tested`: the provider whose machines and secrets a test uses; the others have none."""

    def __init__(self, *names: str, tested: str) -> None:
        super().__init__(lambda clock: FakeProvider(clock, (f"{tested}-a", f"{tested}-b"), tested))
        self.members = {
            name: self.fake if name == tested else FakeProvider(self.clock, (f"{name}-a",), name) for name in names
        }
        self.provider: Any = Fleet(self.members)

    def request(self, *args: Any, **named: Any) -> LaunchRequest:
        fleet, self.provider = self.provider, self.fake
        try:
            return super().request(*args, **named)
        finally:
            self.provider = fleet

    def keep_secret(self, value: str) -> str:
        reference = f"{self.fake.traits.secrets.prefixes[0]}kept-{len(self.fake.secrets)}"
        self.fake.secrets[reference] = value
        return reference

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        for member in self.members.values():
            member.down = True
        yield
        for member in self.members.values():
            member.down = False


@pytest.fixture
def subject() -> FleetSubject:
    return FleetSubject("local", tested="local")


class FleetContract(ProviderContract, AskingContract):
    def test_it_keeps_machines_where_its_traits_say_so(self, subject: FleetSubject) -> None:  # type: ignore[override]
        """A machine that is kept belongs to one provider, which is asked itself."""
        keeper = keeper_of(subject.members, subject.fake.name)
        assert isinstance(keeper, KeepsMachines)


class TestFleetOfOne(FleetContract):
    pass


class TestFleetOfTwo(FleetContract):
    @pytest.fixture(params=["local", "gce"])
    def subject(self, request: pytest.FixtureRequest) -> FleetSubject:
        return FleetSubject("local", "gce", tested=request.param)

    def test_offers_say_where_and_for_how_much(self, subject: Subject) -> None:
        """Each of its own provider, in the order of the providers."""
        names = [offer.placement.provider for offer in subject.provider.offers()]
        assert list(dict.fromkeys(names)) == ["local", "gce"]

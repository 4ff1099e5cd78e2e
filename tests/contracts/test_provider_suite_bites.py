"""Each broken provider is caught by the promise that it breaks; a suite that lets them pass promises nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState
from supervisor.domain.profile import End, Fact, Profile, Source, Stops, Verb
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from tests.contracts.disasters_suite import DisastersContract
from tests.contracts.provider_subject import Subject
from tests.contracts.provider_suite import ProviderContract
from tests.contracts.test_fake_provider import FakeSubject
from tests.fakes.provider import FakeProvider


class ReleasesByName(FakeProvider):
    def release(self, ref: MachineRef) -> None:
        super().release(replace(ref, machine_id=None))


class FindsByName(FakeProvider):
    def find(self, ref: MachineRef) -> Machine | None:
        return super().find(replace(ref, machine_id=None))


class UnreadableIsEmpty(FakeProvider):
    """A zone that does not respond has no machines."""

    def machines(self) -> MachineListing:
        return MachineListing(super().machines().machines)


class DownIsEmpty(FakeProvider):
    def machines(self) -> MachineListing:
        try:
            return super().machines()
        except ProviderUnavailable:
            return MachineListing(())


class UnansweredIsAbsent(FakeProvider):
    def find(self, ref: MachineRef) -> Machine | None:
        try:
            return super().find(ref)
        except ProviderUnavailable:
            return None


class TakesOverAnyName(FakeProvider):
    """The name alone says which machine it is."""

    def launch(self, request: LaunchRequest) -> Machine:
        present = self.find(MachineRef(self.name, request.placement.zone, request.name))
        return present if present is not None else super().launch(request)


class StartsTwice(FakeProvider):
    """A repeated request makes a second machine, under another name."""

    def launch(self, request: LaunchRequest) -> Machine:
        if any(m.name == request.name for m in super().machines().machines):
            request = replace(request, name=f"{request.name}-{next(_numbers)}", job=request.job)
        return super().launch(request)


class ListsOnlyOneSupervisor(FakeProvider):
    def machines(self) -> MachineListing:
        return MachineListing(
            tuple(m for m in super().machines().machines if m.supervisor_id == "supervisor-one"),
            frozenset(self.unreachable),
        )


class ReleaseOfNothingFails(FakeProvider):
    def release(self, ref: MachineRef) -> None:
        if self.find(ref) is None:
            raise ProviderUnavailable("404")
        super().release(ref)


class KillLeavesTheMachine(FakeProvider):
    def kill(self, ref: MachineRef) -> None:
        self._demand(ref)
        self.end(ref.name)


class NoticeWithoutRecord(FakeProvider):
    def machines(self) -> MachineListing:
        listing = super().machines()
        ended = MachineState.ENDED
        return replace(
            listing, machines=tuple(replace(m, record=None) if m.state is ended else m for m in listing.machines)
        )


class StockOutKillsWhatIsThere(FakeProvider):
    def launch(self, request: LaunchRequest) -> Machine:
        self._refuse_placement(request.placement)
        return super().launch(request)


class ShowsSecrets(FakeProvider):
    """The error contains the value instead of the reference."""

    def launch(self, request: LaunchRequest) -> Machine:
        machine = super().launch(request)
        for reference in request.secrets.values():
            self.write_console(request.name, self.secrets[reference].encode())
        return machine


class LaunchesWithoutSecrets(FakeProvider):
    def launch(self, request: LaunchRequest) -> Machine:
        return super().launch(replace(request, secrets={}))


class AsksForSecretsAgain(FakeProvider):
    def launch(self, request: LaunchRequest) -> Machine:
        self.refuse_secrets(request.secrets)
        return super().launch(request)


class KnowsOnlyItsOffers(FakeProvider):
    """An older run has a shape that is not offered any more."""

    def gpus(self, shape: str) -> str:
        offered = any(offer.placement.shape == shape for offer in self.offered)
        return super().gpus(shape) if offered else ""


class StumblesOverAStrangeShape(FakeProvider):
    def gpus(self, shape: str) -> str:
        return super().gpus(shape) if shape.partition("-")[0].isalnum() else super().gpus(shape.split("x")[9])


class AsksThePlatformWhatItHas(FakeProvider):
    def gpus(self, shape: str) -> str:
        self._refuse_if_down()
        return super().gpus(shape)


class SaysTheMachineTypeForTheGpu(FakeProvider):
    def gpus(self, shape: str) -> str:
        return shape


class AsksThePlatformForItsProfile(FakeProvider):
    def profile(self, zone: str = "") -> Profile:
        self._refuse_if_down()
        return super().profile(zone)


class HasAProfileOfAnotherKind(FakeProvider):
    def profile(self, zone: str = "") -> Profile:
        return replace(super().profile(zone), kind="shed")


class ForgetsTheVerbOfItsMeter(FakeProvider):
    def profile(self, zone: str = "") -> Profile:
        return replace(super().profile(zone), meter_stop=_documented("destroy"))


class StopsTheMeterByAVerbThatDoesNot(FakeProvider):
    def profile(self, zone: str = "") -> Profile:
        stop = Verb("stop", End.STOP, stops_meter=_documented(Stops.PARTLY))
        return replace(super().profile(zone), meter_stop=_documented("stop"), verbs=(stop,))


class KnowsTheSizeOfADiskByHeart(FakeProvider):
    def profile(self, zone: str = "") -> Profile:
        tiers = tuple(replace(tier, inodes_cap=_documented(200_000)) for tier in super().profile(zone).tiers)
        return replace(super().profile(zone), tiers=tiers)


def _documented(value: Any) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, "2026-11-26", "a page")


_numbers = itertools.count(2)
P, D = ProviderContract, DisastersContract
Promise = Callable[..., None]

CAUGHT: list[tuple[type[FakeProvider], Promise]] = [
    (AsksThePlatformForItsProfile, P.test_the_profile_sends_no_request_and_belongs_to_the_kind),
    (HasAProfileOfAnotherKind, P.test_the_profile_sends_no_request_and_belongs_to_the_kind),
    (ForgetsTheVerbOfItsMeter, P.test_the_profile_says_what_stops_the_meter_and_what_that_leaves),
    (StopsTheMeterByAVerbThatDoesNot, P.test_the_profile_says_what_stops_the_meter_and_what_that_leaves),
    (KnowsTheSizeOfADiskByHeart, P.test_no_cap_of_a_disk_is_documented),
    (KnowsOnlyItsOffers, P.test_what_a_machine_has_for_the_training_is_said_in_a_few_words),
    (StumblesOverAStrangeShape, P.test_what_a_machine_has_for_the_training_is_said_in_a_few_words),
    (AsksThePlatformWhatItHas, P.test_what_a_machine_has_for_the_training_is_said_in_a_few_words),
    (SaysTheMachineTypeForTheGpu, P.test_what_a_machine_has_for_the_training_is_said_in_a_few_words),
    (ReleasesByName, P.test_a_release_leaves_a_machine_with_another_id_alone),
    (FindsByName, P.test_find_asks_for_one_machine_by_name_and_id),
    (UnreadableIsEmpty, P.test_what_cannot_be_read_is_unknown_not_absent),
    (UnansweredIsAbsent, P.test_what_cannot_be_read_is_unknown_not_absent),
    (DownIsEmpty, P.test_when_nothing_can_be_read_no_listing_says_that_a_zone_is_empty),
    (TakesOverAnyName, P.test_a_name_that_another_launch_has_is_refused_and_left_alone),
    (StartsTwice, P.test_a_repeated_launch_finds_the_first_ones_machine),
    (StartsTwice, P.test_many_launches_of_one_request_at_once_make_one_machine),
    (ListsOnlyOneSupervisor, P.test_the_list_tells_machines_of_every_supervisor_apart),
    (ShowsSecrets, P.test_secrets_are_read_at_the_launch_and_shown_nowhere),
    (LaunchesWithoutSecrets, P.test_a_secret_that_cannot_be_read_refuses_the_launch_by_name),
    (AsksForSecretsAgain, P.test_a_machine_that_is_there_needs_its_secrets_no_more),
    (ReleaseOfNothingFails, P.test_a_release_is_safe_to_repeat_and_a_missing_machine_is_success),
    (KillLeavesTheMachine, D.test_a_killed_machine_is_gone_without_a_record),
    (NoticeWithoutRecord, D.test_a_notice_shows_as_ending_and_then_ends_the_machine_with_a_record),
    (StockOutKillsWhatIsThere, D.test_a_stock_out_does_not_touch_machines_that_are_there),
]


@pytest.mark.parametrize(
    ("broken", "promise"), [pytest.param(b, p, id=f"{b.__name__}-{p.__name__}") for b, p in CAUGHT]
)
def test_a_broken_provider_is_caught(broken: type[FakeProvider], promise: Promise) -> None:
    suite = P() if hasattr(P, promise.__name__) else D()
    promise(suite, FakeSubject())
    subject: Subject = FakeSubject(broken)
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        promise(suite, subject)
    assert not isinstance(caught.value, NameError | TypeError | AttributeError), "broken in another way than meant"

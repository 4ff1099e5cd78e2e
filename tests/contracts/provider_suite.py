"""What every provider promises (ports/provider.py), as tests that each implementation runs.

A `Subject` wraps the provider with what only its test knows: how a request is made, how time passes, how to make a
reading fail. The disasters stand in a suite of their own: a cloud keeps the first half of the promises only.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.identifiers import request_id
from supervisor.domain.machine import (
    LAUNCH_LABEL,
    RUN_LABEL,
    SUPERVISOR_LABEL,
    Machine,
    MachineRef,
    MachineState,
)
from supervisor.ports.provider import (
    LaunchRejected,
    LaunchRequest,
    MachineMissing,
    NoCapacity,
    ProviderUnavailable,
)


class Subject(ABC):
    """One provider under test."""

    provider: Any

    def __init__(self) -> None:
        self.token = uuid4().hex[:8]  # machines of other tests on this computer are none of ours

    @abstractmethod
    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        """Let time pass until the condition holds; its answer."""

    @abstractmethod
    def unreadable(self, request: LaunchRequest) -> AbstractContextManager[None]:
        """While this is open, the zone of this machine cannot be read."""

    @abstractmethod
    def all_unreadable(self) -> AbstractContextManager[None]:
        """While this is open, nothing can be read."""

    def request(
        self,
        run: str = "digits",
        attempt: int = 1,
        try_number: int = 1,
        zone: int = 0,
        supervisor_id: str = "supervisor-one",
    ) -> LaunchRequest:
        zones = list(dict.fromkeys(offer.placement.zone for offer in self.provider.offers()))
        placement = next(o.placement for o in self.provider.offers() if o.placement.zone == zones[zone])
        launch_id = f"1.{attempt}.{try_number}"
        return LaunchRequest(
            name=f"t{self.token}-{run}-a{attempt}-t{try_number}",
            request_id=request_id(supervisor_id, run, 1, attempt, try_number),
            placement=placement,
            supervisor_id=supervisor_id,
            run_id=run,
            launch_id=launch_id,
            machine_max_s=3600.0,
            job={"version": 1, "run_id": run, "launch_id": launch_id, "nonce": "secret-nonce"},
        )

    def listed(self, request: LaunchRequest) -> Machine | None:
        return next((m for m in self.provider.machines().machines if m.name == request.name), None)

    def up(self, request: LaunchRequest) -> Machine:
        """Launch it and wait until it is up."""
        self.provider.launch(request)
        return self.eventually(
            lambda: (m := self.listed(request)) and m.state is MachineState.UP and m, "the machine to be up"
        )

    def gone(self, request: LaunchRequest) -> None:
        self.eventually(lambda: self.listed(request) is None, "the machine to be gone")


def ref(request: LaunchRequest, machine_id: str | None = None) -> MachineRef:
    placement = request.placement
    return MachineRef(placement.provider, placement.zone, request.name, machine_id)


class ProviderContract:
    """Subclass it with a fixture `subject`."""

    def test_offers_say_where_and_for_how_much(self, subject: Subject) -> None:
        offers = subject.provider.offers()
        assert offers
        assert all(offer.placement.provider == subject.provider.name for offer in offers)

    def test_a_launched_machine_comes_up_with_its_labels(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        assert machine.machine_id
        assert (machine.name, machine.zone) == (request.name, request.placement.zone)
        assert (machine.supervisor_id, machine.run_id, machine.launch_id) == (
            "supervisor-one",
            "digits",
            "1.1.1",
        )
        assert machine.labels[SUPERVISOR_LABEL] == "supervisor-one"
        assert machine.labels[RUN_LABEL] == "digits"
        assert machine.labels[LAUNCH_LABEL] == "1.1.1"
        assert machine.created_at is not None
        assert machine.record is None

    def test_a_repeated_launch_finds_the_first_ones_machine(self, subject: Subject) -> None:
        request = subject.request()
        first = subject.up(request)
        again = subject.provider.launch(request)
        assert again.machine_id == first.machine_id
        assert [m.machine_id for m in subject.provider.machines().machines] == [first.machine_id]

    def test_many_launches_of_one_request_at_once_make_one_machine(self, subject: Subject) -> None:
        request = subject.request()
        start = threading.Barrier(20)

        def launch(_: int) -> Machine:
            start.wait(30)
            return subject.provider.launch(request)

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(launch, range(20)))
        machine = subject.eventually(lambda: subject.listed(request), "the machine to be listed")
        assert {m.machine_id for m in answers} == {machine.machine_id}
        assert len(subject.provider.machines().machines) == 1

    def test_a_name_that_another_launch_has_is_refused_and_left_alone(self, subject: Subject) -> None:
        request = subject.request()
        first = subject.up(request)
        with pytest.raises(LaunchRejected, match=request.name):
            subject.provider.launch(replace(request, launch_id="1.2.1"))
        assert subject.listed(request) == first

    def test_a_placement_that_is_not_offered_is_refused(self, subject: Subject) -> None:
        request = subject.request()
        elsewhere = replace(request, placement=replace(request.placement, zone="nowhere-z"))
        with pytest.raises(LaunchRejected, match="nowhere-z"):
            subject.provider.launch(elsewhere)
        assert subject.listed(elsewhere) is None

    def test_the_list_tells_machines_of_every_supervisor_apart(self, subject: Subject) -> None:
        ours = subject.up(subject.request())
        theirs = subject.up(subject.request(run="other", zone=1, supervisor_id="supervisor-two"))
        listed = {m.machine_id: m.supervisor_id for m in subject.provider.machines().machines}
        assert listed == {ours.machine_id: "supervisor-one", theirs.machine_id: "supervisor-two"}

    def test_find_asks_for_one_machine_by_name_and_id(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        assert subject.provider.find(ref(request)) == machine
        assert subject.provider.find(ref(request, machine.machine_id)) == machine
        assert subject.provider.find(ref(request, machine.machine_id + "9")) is None
        assert subject.provider.find(ref(subject.request(run="never"))) is None

    def test_a_released_machine_is_gone_and_the_others_stay(self, subject: Subject) -> None:
        request, other = subject.request(), subject.request(run="other")
        machine, stays = subject.up(request), subject.up(other)
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)
        assert subject.provider.find(ref(request)) is None
        assert subject.listed(other) == stays

    def test_a_release_is_safe_to_repeat_and_a_missing_machine_is_success(self, subject: Subject) -> None:
        request = subject.request()
        subject.up(request)
        for _ in range(3):
            subject.provider.release(ref(request))
        subject.provider.release(ref(subject.request(run="never")))
        subject.gone(request)
        subject.provider.release(ref(request))

    def test_a_release_leaves_a_machine_with_another_id_alone(self, subject: Subject) -> None:
        request, other = subject.request(), subject.request(run="other")
        machine = subject.up(request)
        subject.up(other)
        subject.provider.release(ref(request, machine.machine_id + "9"))
        subject.provider.release(ref(other))
        subject.gone(other)  # so long a release takes
        assert subject.listed(request) == machine
        assert subject.provider.find(ref(request, machine.machine_id)) == machine

    def test_asking_a_missing_machine_to_stop_does_nothing(self, subject: Subject) -> None:
        stays = subject.up(subject.request())
        subject.provider.ask_to_stop(ref(subject.request(run="never")))
        subject.provider.ask_to_stop(ref(subject.request(), stays.machine_id + "9"))
        assert subject.provider.find(ref(subject.request())) == stays

    def test_the_console_of_a_missing_machine_is_empty(self, subject: Subject) -> None:
        assert subject.provider.console(ref(subject.request(run="never"))) == b""

    def test_what_cannot_be_read_is_unknown_not_absent(self, subject: Subject) -> None:
        request, other = subject.request(), subject.request(run="other", zone=1)
        machine, seen = subject.up(request), subject.up(other)
        with subject.unreadable(request):
            listing = subject.provider.machines()
            assert request.placement.zone in listing.unreachable
            assert seen in listing.machines
            with pytest.raises(ProviderUnavailable):
                subject.provider.find(ref(request, machine.machine_id))
        assert subject.provider.machines().unreachable == frozenset()
        assert subject.listed(request) == machine

    def test_when_nothing_can_be_read_there_is_no_listing_at_all(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        with subject.all_unreadable():
            with pytest.raises(ProviderUnavailable):
                subject.provider.machines()
            with pytest.raises(ProviderUnavailable):
                subject.provider.find(ref(request))
            with pytest.raises(ProviderUnavailable):
                subject.provider.release(ref(request))
        assert subject.listed(request) == machine


class DisastersContract:
    """Subclass it with a fixture `subject` whose provider has the disasters of `spot dev`."""

    def test_a_notice_shows_as_ending_and_then_ends_the_machine_with_a_record(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.provider.preempt(ref(request, machine.machine_id), 2.0)
        noticed = subject.listed(request)
        assert noticed is not None
        assert noticed.state is MachineState.ENDING
        assert noticed.record is not None
        assert (noticed.record.cause, noticed.record.notice_s) == (Cause.PREEMPTED, 2.0)
        over = subject.eventually(
            lambda: (m := subject.listed(request)) and m.state is MachineState.ENDED and m,
            "the machine to end",
        )
        assert over.machine_id == machine.machine_id
        assert over.record is not None
        assert over.record.cause is Cause.PREEMPTED
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)

    def test_a_preemption_without_notice_ends_it_at_once_with_a_record(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.provider.preempt(ref(request), 0.0)
        over = subject.listed(request)
        assert over is not None
        assert (over.machine_id, over.state) == (machine.machine_id, MachineState.ENDED)
        assert over.record is not None
        assert over.record.cause is Cause.PREEMPTED

    def test_a_killed_machine_is_gone_without_a_record(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.provider.kill(ref(request, machine.machine_id))
        assert subject.listed(request) is None
        assert subject.provider.find(ref(request, machine.machine_id)) is None

    def test_a_frozen_machine_is_up_and_can_be_released(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.eventually(
            lambda: _done(lambda: subject.provider.freeze(ref(request))), "a training to freeze"
        )
        assert subject.listed(request) == machine
        subject.provider.release(ref(request, machine.machine_id))
        subject.gone(request)

    def test_a_stock_out_holds_for_its_zones_until_it_is_called_off(self, subject: Subject) -> None:
        first, second = subject.request(), subject.request(run="other", zone=1)
        subject.provider.stockout([first.placement.zone], None)
        with pytest.raises(NoCapacity, match="ZONE_RESOURCE_POOL_EXHAUSTED"):
            subject.provider.launch(first)
        assert subject.listed(first) is None
        subject.up(second)
        subject.provider.stockout([first.placement.zone], 0.0)
        subject.up(first)

    def test_a_stock_out_does_not_touch_machines_that_are_there(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.provider.stockout([request.placement.zone], 3600.0)
        assert subject.provider.launch(request).machine_id == machine.machine_id

    def test_disasters_refuse_what_is_not_there(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        for missing in (ref(subject.request(run="never")), ref(request, machine.machine_id + "9")):
            for strike in (
                lambda m: subject.provider.preempt(m, 1.0),
                subject.provider.kill,
                subject.provider.freeze,
            ):
                with pytest.raises(MachineMissing):
                    strike(missing)
        with pytest.raises(ValueError, match="nowhere-z"):
            subject.provider.stockout(["nowhere-z"], None)
        assert subject.listed(request) == machine


def _done(act: Callable[[], None]) -> bool:
    try:
        act()
    except ProviderUnavailable:
        return False
    return True

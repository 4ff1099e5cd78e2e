"""The contract of providers that look for capacity for some time before they say whether there is any."""

from __future__ import annotations

import pytest

from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchPending, LaunchRequest, NoCapacity
from tests.contracts.provider_subject import Subject, ref


def answered(subject: Subject, request: LaunchRequest) -> Machine | NoCapacity:
    """The same request, until it has a result. Before that its machine is listed as ASKED."""

    def answer() -> Machine | NoCapacity | None:
        try:
            return subject.provider.launch(request)
        except NoCapacity as no:
            return no
        except LaunchPending:
            listed = subject.listed(request)
            assert listed is None or listed.state in (MachineState.ASKED, MachineState.STARTING, MachineState.UP)
            return None

    return subject.eventually(answer, "an answer to the request")


class AskingContract:
    """Subclass it with a fixture `subject` that has `looking_for_room(request, finds)`, a context manager."""

    def test_a_machine_that_is_asked_for_may_come_to_nothing(self, subject: Subject) -> None:
        request = subject.request()
        with subject.looking_for_room(request, finds=False):
            assert isinstance(answered(subject, request), NoCapacity)
            with pytest.raises(NoCapacity):
                subject.provider.launch(request)
            subject.gone(request)

    def test_it_may_come_up_and_is_one_machine(self, subject: Subject) -> None:
        request = subject.request()
        with subject.looking_for_room(request, finds=True):
            machine = answered(subject, request)
            assert isinstance(machine, Machine)
            assert subject.up(request).machine_id == machine.machine_id
            assert len(subject.provider.machines().machines) == 1

    def test_it_need_not_be_looked_for_any_more(self, subject: Subject) -> None:
        request = subject.request()
        with subject.looking_for_room(request, finds=True):
            with pytest.raises(LaunchPending):
                subject.provider.launch(request)
            subject.provider.release(ref(request))
            subject.gone(request)

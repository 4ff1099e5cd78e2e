"""What `spot dev` may do to the machines of a provider (Disasters in ports/provider.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import MachineMissing, NoCapacity, ProviderUnavailable
from tests.contracts.provider_subject import Subject, ref


class DisastersContract:
    """Subclass it with a fixture `subject` whose provider has the disasters of `spot dev`."""

    def test_a_notice_shows_as_ending_and_then_ends_the_machine_with_a_record(self, subject: Subject) -> None:
        request = subject.request()
        machine = subject.up(request)
        subject.provider.preempt(ref(request, machine.machine_id), 3.0)
        noticed = subject.listed(request)
        assert noticed is not None
        assert noticed.state is MachineState.ENDING
        assert noticed.record is not None
        assert (noticed.record.cause, noticed.record.notice_s) == (Cause.PREEMPTED, 3.0)
        over = subject.eventually(
            lambda: (m := subject.listed(request)) and m.state is MachineState.ENDED and m, "the machine to end"
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
        subject.eventually(lambda: _done(lambda: subject.provider.freeze(ref(request))), "a training to freeze")
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
            for strike in (lambda m: subject.provider.preempt(m, 1.0), subject.provider.kill, subject.provider.freeze):
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

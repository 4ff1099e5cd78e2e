"""What a provider with the trait `keeps` promises (KeepsMachines in ports/provider.py)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRejected, LaunchRequest, ProviderUnavailable
from tests.contracts.provider_subject import Subject, ref


class KeepingContract:
    """Subclass it with a fixture `subject`."""

    def test_it_is_switched_off_and_started_again_as_often_as_needed_and_then_released(self, subject: Subject) -> None:
        """Until it has started, no listing shows it ended for the new launch."""
        first, seen = subject.kept(), list[Machine]()
        subject.up(first)
        for attempt in (2, 3):
            again = subject.kept(attempt=attempt)
            subject.off(first)
            subject.provider.stop(ref(first))  # once more

            def is_up(again: LaunchRequest = again) -> Machine | None:
                with suppress(ProviderUnavailable):
                    subject.provider.start(again, ref(again))
                [machine] = subject.provider.machines().machines
                seen.append(machine)
                return machine if machine.state is MachineState.UP and machine.launch_id == again.launch_id else None

            machine = subject.eventually(is_up, "the machine to be up again")
            assert (machine.name, machine.launch_id, machine.run_id) == (first.name, f"1.{attempt}.1", "digits")
            assert machine.record is None
            assert not [m for m in seen if m.launch_id == again.launch_id and m.state is MachineState.ENDED]
        subject.off(first)
        subject.provider.release(ref(first))
        subject.gone(first)

    def test_many_starts_at_once_start_it_once(self, subject: Subject) -> None:
        first, again = subject.kept(), subject.kept(attempt=2)
        subject.up(first)
        subject.off(first)
        begin = threading.Barrier(8)

        def start(_: int) -> None:
            begin.wait(30)
            with suppress(ProviderUnavailable):
                subject.provider.start(again, ref(again))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(start, range(8)))
        machine = subject.up_again(again)
        assert subject.provider.start(again, ref(again)).machine_id == machine.machine_id
        assert len(subject.provider.machines().machines) == 1

    def test_a_machine_that_runs_is_not_started_over(self, subject: Subject) -> None:
        machine = subject.up(subject.kept())
        with pytest.raises(ProviderUnavailable):
            subject.provider.start(subject.kept(attempt=2), ref(subject.kept()))
        assert subject.listed(subject.kept()) == machine

    def test_a_machine_that_does_not_exist_or_is_another_runs_is_refused(self, subject: Subject) -> None:
        with pytest.raises(LaunchRejected):
            subject.provider.start(subject.kept(attempt=2), ref(subject.kept()))
        assert subject.provider.machines().machines == ()
        other = subject.request(run="other")
        machine = subject.up(other)
        with pytest.raises(LaunchRejected):
            subject.provider.start(subject.kept(attempt=2), ref(other, machine.machine_id + "9"))
        assert subject.listed(other) == machine

    def test_switching_off_a_missing_machine_or_one_with_another_id_does_nothing(self, subject: Subject) -> None:
        machine = subject.up(subject.kept())
        subject.provider.stop(ref(subject.request(run="never")))
        subject.provider.stop(ref(subject.kept(), machine.machine_id + "9"))
        assert subject.listed(subject.kept()) == machine

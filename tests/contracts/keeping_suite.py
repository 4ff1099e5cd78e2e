"""What a provider with the trait `keeps` promises (KeepsMachines in ports/provider.py)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from tests.contracts.provider_subject import Subject, ref


class KeepingContract:
    """Subclass it with a fixture `subject`."""

    def test_a_machine_that_is_switched_off_stays_and_is_started_again(self, subject: Subject) -> None:
        first, again = subject.kept(), subject.kept(attempt=2)
        subject.up(first)
        subject.off(first)
        subject.provider.stop(ref(first))  # once more
        machine = subject.up_again(again)
        assert (machine.name, machine.launch_id, machine.run_id) == (first.name, "1.2.1", "digits")
        assert machine.record is None
        assert [m.name for m in subject.provider.machines().machines] == [first.name]

    def test_it_is_kept_as_often_as_needed_and_released_like_any_other(self, subject: Subject) -> None:
        subject.up(subject.kept())
        for attempt in (2, 3):
            subject.off(subject.kept())
            assert subject.up_again(subject.kept(attempt=attempt)).launch_id == f"1.{attempt}.1"
        subject.off(subject.kept())
        subject.provider.release(ref(subject.kept()))
        subject.gone(subject.kept())

    def test_until_it_has_started_no_listing_shows_it_ended_for_the_new_launch(self, subject: Subject) -> None:
        first, again = subject.kept(), subject.kept(attempt=2)
        subject.up(first)
        subject.off(first)
        seen: list[Machine] = []

        def is_up() -> bool:
            with suppress(ProviderUnavailable):
                subject.provider.start(again, ref(again))
            seen.extend(subject.provider.machines().machines)
            return seen[-1].state is MachineState.UP and seen[-1].launch_id == again.launch_id

        subject.eventually(is_up, "the machine to be up again")
        assert not [m for m in seen if m.launch_id == again.launch_id and m.state is MachineState.ENDED]

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

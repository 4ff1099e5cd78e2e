"""Why machines ended: by Google's operations, matched by the machine's id, also once the machine is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.reconciler.observing.readers import look_up
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import ZONES, GceSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    yield subject
    subject.close()


def ended(subject: GceSubject, request: LaunchRequest, machine: Machine) -> Machine:
    """The machine by a lookup with its id, once it is off or gone."""
    subject.clock.advance(300.0)
    found = subject.make().find(ref(request, machine.machine_id))
    assert found is not None
    return found


def test_preemption_is_told_while_it_ends_and_after_it_is_gone(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.compute.preempt(request.name)
    ending = subject.listed(request)
    assert ending is not None
    assert ending.state is MachineState.ENDING
    assert ending.record is not None
    assert ending.record.cause is Cause.PREEMPTED
    assert ending.record.at == pytest.approx(subject.clock.now(), abs=5.0)
    subject.gone(request)
    gone = ended(subject, request, machine)
    assert gone.state is MachineState.ENDED
    assert gone.record is not None
    assert gone.record.cause is Cause.PREEMPTED
    # What the loop reads, with the launch id that the machine's labels no longer contain.
    assert look_up(subject.provider, ref(request, machine.machine_id), request.launch_id).value == gone  # type: ignore[union-attr]
    assert subject.provider.find(ref(request)) is None  # without an id nothing is known


def test_the_notice_makes_no_end_yet(tmp_path: Path) -> None:
    subject = GceSubject(tmp_path)
    subject.config = replace(subject.config, notice_s=120)
    subject.provider = subject.make()
    request = subject.request()
    subject.up(request)
    subject.compute.preempt(request.name)
    subject.clock.advance(60.0)
    assert subject.listed(request).state is MachineState.UP  # type: ignore[union-attr]
    subject.clock.advance(65.0)
    assert subject.listed(request).record.cause is Cause.PREEMPTED  # type: ignore[union-attr]
    subject.close()


@pytest.mark.parametrize(
    ("happens", "cause", "told"),
    [
        (lambda c, n: c.host_error(n), Cause.HOST_ERROR, "host failed"),
        (lambda c, n: c.delete_by("alice@example.com", n), Cause.MACHINE_DELETED, "deleted by alice@example.com"),
        (lambda c, n: c.stop_by("bob@example.com", n), Cause.MACHINE_DELETED, "stopped by bob@example.com"),
    ],
)  # fmt: skip
def test_ends_by_the_host_and_by_people(subject: GceSubject, happens: object, cause: Cause, told: str) -> None:
    request = subject.request()
    machine = subject.up(request)
    happens(subject.compute, request.name)  # type: ignore[operator]
    found = ended(subject, request, machine)
    assert found.record is not None
    assert found.record.cause is cause
    assert told in found.record.detail


def test_the_dead_man_switch_is_expired(subject: GceSubject) -> None:
    request = replace(subject.request(), machine_max_s=600.0)
    machine = subject.up(request)
    subject.clock.advance(600.0)
    found = ended(subject, request, machine)
    assert found.record is not None
    assert found.record.cause is Cause.EXPIRED


def test_a_machine_that_switches_itself_off_has_no_record(subject: GceSubject) -> None:
    request = subject.request()
    subject.up(request)
    subject.compute.guest_powered_off(request.name)
    off = subject.eventually(
        lambda: (m := subject.listed(request)) and m.state is MachineState.ENDED and m, "the machine to be off"
    )
    assert off.record is None
    assert "switched itself off" in off.detail
    assert subject.provider.find(ref(request, off.machine_id)) == off


def test_a_preempted_machine_that_switches_itself_off_was_preempted(subject: GceSubject) -> None:
    """The strongest word counts, whichever came last."""
    request = subject.request()
    machine = subject.up(request)
    subject.compute.preempt(request.name)
    subject.compute.guest_powered_off(request.name)
    found = ended(subject, request, machine)
    assert found.record is not None
    assert found.record.cause is Cause.PREEMPTED


def test_our_own_release_is_no_record(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.provider.release(ref(request, machine.machine_id))
    ending = subject.listed(request)
    assert ending is None or ending.record is None
    subject.gone(request)
    assert subject.make().find(ref(request, machine.machine_id)) is None


def test_a_name_used_again_does_not_inherit_the_end_of_the_first(subject: GceSubject) -> None:
    request = subject.request()
    first = subject.up(request)
    subject.compute.preempt(request.name)
    subject.gone(request)
    again = replace(request, request_id="00000000-0000-5000-8000-000000000003")
    second = subject.up(again)
    assert second.machine_id != first.machine_id
    assert second.record is None
    found = subject.provider.find(ref(request, first.machine_id))
    assert found is not None
    assert found.record is not None


def test_a_second_look_reads_only_what_is_new(subject: GceSubject) -> None:
    for at in range(3):
        request = subject.request(run=f"run{at}")
        subject.up(request)
        subject.compute.preempt(request.name)
        subject.gone(request)
    subject.provider.machines()
    subject.compute.clear_requests()
    subject.provider.machines()
    assert subject.compute.count("GET", "/aggregated/instances$") == 1
    assert subject.compute.count("GET", "/operations$") == len(ZONES)
    assert subject.compute.count() == 1 + len(ZONES)


def test_an_end_whose_reason_cannot_be_read_is_unknown(subject: GceSubject) -> None:
    request, other = subject.request(), subject.request(run="other")
    subject.up(request)
    stays = subject.up(subject.request(run="third", zone=1))
    subject.up(other)
    subject.compute.stop_by("alice@example.com", other.name)
    subject.clock.advance(120.0)
    subject.compute.refuse(f"zones/{request.placement.zone}/operations", 503)
    blind = subject.make()
    listing = blind.machines()
    assert listing.unreachable == {request.placement.zone}
    assert stays in listing.machines
    subject.compute.calm()
    assert blind.machines().unreachable == frozenset()


def test_records_that_cannot_be_read_matter_only_where_something_ended(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.compute.refuse("/operations", 503)
    listing = subject.provider.machines()
    assert listing.unreachable == frozenset()
    assert machine in listing.machines
    with pytest.raises(ProviderUnavailable):
        subject.provider.find(ref(request, machine.machine_id + "9"))  # gone? this cannot be known


def test_an_operation_that_is_listed_late_is_waited_for(subject: GceSubject) -> None:
    """Gone, and no operation that ends it: one is still to come, so nothing follows for a while."""
    request = subject.request()
    machine = subject.up(request)
    where = ref(request, machine.machine_id)
    subject.compute.preempt(request.name, record_after_s=80.0)
    subject.clock.advance(40.0)
    assert subject.listed(request) is None
    fresh = subject.make()
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match="does not say why yet"):
            fresh.find(where)
    subject.clock.advance(45.0)
    found = fresh.find(where)
    assert found is not None
    assert found.record is not None
    assert found.record.cause is Cause.PREEMPTED


def test_a_machine_that_is_gone_did_more_than_switch_itself_off(subject: GceSubject) -> None:
    """Its guest was quick, and Google's own word came late."""
    request = subject.request()
    machine = subject.up(request)
    subject.compute.guest_powered_off(request.name)
    subject.listed(request)
    subject.compute.delete_by("alice@example.com", request.name)
    subject.clock.advance(60.0)
    end = subject.provider._records._ends[machine.machine_id]
    assert end.is_off
    found = subject.provider.find(ref(request, machine.machine_id))
    assert found is not None
    assert found.record is not None
    assert found.record.cause is Cause.MACHINE_DELETED
    read = subject.provider._compute.read

    def late(path: str, **query: str | int) -> dict[str, object]:
        answer = read(path, **query)
        kept = [one for one in answer.get("items", []) if one["operationType"] != "delete"]
        return {**answer, "items": kept}

    blind = subject.make()
    blind._compute.read = late  # type: ignore[method-assign]
    with pytest.raises(ProviderUnavailable, match="does not say why yet"):
        blind.find(ref(request, machine.machine_id))


def test_strangers_that_are_off_are_off(subject: GceSubject) -> None:
    subject.compute.fill([{"name": "plain", "zone": ZONES[0]}])
    subject.compute.stop_by("alice@example.com", "plain")
    subject.clock.advance(120.0)
    subject.provider._records._keep = lambda _: None  # type: ignore[method-assign]
    assert [m.state for m in subject.provider.machines().machines] == [MachineState.ENDED]


def test_a_record_that_never_comes_is_not_waited_for_for_ever(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.compute.preempt(request.name, record=False)
    subject.clock.advance(120.0)
    with pytest.raises(ProviderUnavailable):
        subject.provider.find(ref(request, machine.machine_id))
    subject.clock.advance(91.0)
    assert subject.provider.find(ref(request, machine.machine_id)) is None


def test_a_machine_that_is_off_without_a_word_is_ending_until_the_word_may_have_come(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.provider._records._keep = lambda _: None  # type: ignore[method-assign]
    subject.compute.stop_by("alice@example.com", request.name)
    subject.clock.advance(120.0)
    assert subject.listed(request).state is MachineState.ENDING  # type: ignore[union-attr]
    subject.clock.advance(91.0)
    off = subject.listed(request)
    assert off is not None
    assert (off.state, off.machine_id) == (MachineState.ENDED, machine.machine_id)


def test_short_pages_are_read_to_the_last_known_operation(subject: GceSubject) -> None:
    subject.compute.page_rows = 2
    requests = [subject.request(run=f"run{at}") for at in range(7)]
    for request in requests:
        subject.up(request)
    for request in requests:
        subject.compute.host_error(request.name)
    causes = {m.name: m.record and m.record.cause for m in subject.provider.machines().machines}
    assert causes == {request.name: Cause.HOST_ERROR for request in requests}

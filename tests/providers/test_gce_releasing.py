"""Release: requested once, never waited for, and done only when list and machine both say that it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from supervisor.domain.machines import MachineListing, MachineRef, MachineState
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.providers.gce.calls.errors import ApiError
from supervisor.providers.gce.machines.machine import Instances
from supervisor.providers.gce.machines.releasing import CONFIRMED_PER_TICK, Releaser
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import GceSubject

ONE = r"/instances/[^/]+$"


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path)
    yield subject
    subject.close()


def test_one_delete_and_the_rest_is_waiting(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    for _ in range(4):
        subject.provider.release(ref(request, machine.machine_id))
    assert subject.compute.count("DELETE") == 1
    assert subject.listed(request).state is MachineState.ENDING  # type: ignore[union-attr]
    subject.gone(request)


def test_overlapping_deletes_are_success(subject: GceSubject) -> None:
    """The status was read, then another user's delete came first: 403 now, 404 later."""
    request = subject.request()
    machine = subject.up(request)
    get = subject.provider._compute.get
    stale = get(request.placement.zone, request.name)
    subject.compute.delete_by("another@example.com", request.name)
    answers = iter([stale])
    subject.provider._compute.get = lambda zone, name: next(answers, None) or get(zone, name)  # type: ignore[method-assign]
    subject.provider.release(ref(request, machine.machine_id))
    assert subject.compute.count("DELETE") == 1


def test_a_delete_that_is_not_allowed_is_told(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.compute.fail_next("DELETE", ONE, 403, times=None, reason="forbidden", for_s=60.0)
    with pytest.raises(ProviderUnavailable, match="forbidden"):
        subject.provider.release(ref(request, machine.machine_id))
    assert subject.listed(request).state is MachineState.UP  # type: ignore[union-attr]


def test_a_failed_delete_is_asked_for_under_another_request_id(subject: GceSubject) -> None:
    """Google repeats the response of a known request id: the failed operation would come back forever."""
    request = subject.request()
    machine = subject.up(request)
    delete = subject.provider._compute.delete
    used: list[str] = []

    def fails_once(zone: str, name: str, request_id: str) -> object:
        used.append(request_id)
        if len(used) == 1:
            return {"status": "DONE", "error": {"errors": [{"code": "INTERNAL_ERROR", "message": "oops"}]}}
        return delete(zone, name, request_id)

    subject.provider._compute.delete = fails_once  # type: ignore[method-assign, assignment]
    with pytest.raises(ProviderUnavailable, match="oops"):
        subject.provider.release(ref(request, machine.machine_id))
    subject.provider.release(ref(request, machine.machine_id))
    assert len(set(used)) == 2
    subject.gone(request)
    assert subject.make().find(ref(request, machine.machine_id)) is None  # ours, under either id


def test_a_machine_that_switched_itself_off_is_deleted(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.compute.guest_powered_off(request.name)
    subject.eventually(lambda: subject.listed(request).state is MachineState.ENDED, "the machine to be off")  # type: ignore[union-attr]
    subject.provider.release(ref(request, machine.machine_id))
    subject.gone(request)
    assert subject.compute.names() == []


def forgetful(subject: GceSubject, name: str) -> None:
    """From now on the listing leaves out this machine, while it is still there."""
    read = subject.provider._listing.read

    def without() -> Instances:
        found = read()
        kept = tuple((zone, item) for zone, item in found.items if item["name"] != name)
        return Instances(kept, found.unreachable)

    subject.provider._listing.read = without  # type: ignore[method-assign]


def test_a_listing_alone_does_not_make_a_released_machine_gone(subject: GceSubject) -> None:
    request = subject.request()
    machine = subject.up(request)
    subject.compute.delete_s = 300.0
    subject.provider.release(ref(request, machine.machine_id))
    forgetful(subject, request.name)
    found = subject.listed(request)
    assert found is not None
    assert found.state is MachineState.ENDING
    assert found.launch_id == request.launch_id
    subject.compute.refuse(f"/instances/{request.name}", 503)
    assert subject.listed(request) is not None  # the machine cannot be read
    subject.compute.calm()
    subject.clock.advance(301.0)
    assert subject.listed(request) is None
    subject.compute.clear_requests()
    subject.provider.machines()
    assert subject.compute.count("GET", ONE) == 0  # known gone, and forgotten


def test_the_promise_bites(subject: GceSubject) -> None:
    """Without the second question the machine would count as gone, and its bill with it."""
    request = subject.request()
    machine = subject.up(request)
    subject.compute.delete_s = 300.0
    subject.provider.release(ref(request, machine.machine_id))
    forgetful(subject, request.name)
    subject.provider._releaser.unconfirmed = lambda *_: []  # type: ignore[method-assign]
    listing: MachineListing = subject.provider.machines()
    assert listing.machines == ()


def test_a_machine_that_is_asked_for_can_be_called_off(subject: GceSubject) -> None:
    subject.compute.create_s = 600.0
    request = subject.request()
    with pytest.raises(ProviderUnavailable):
        subject.provider.launch(request)
    subject.provider.release(ref(request))
    subject.gone(request)


def test_the_console_is_the_end_of_the_serial_port(subject: GceSubject) -> None:
    request = subject.request()
    subject.up(request)
    zone = request.placement.zone
    subject.compute.append_serial(request.name, zone, b"x" * 2_000_000 + "boot: gpu 0 ✓\n".encode())
    tail = subject.provider.console(ref(request), 4096)
    assert tail.endswith("boot: gpu 0 ✓\n".encode())
    assert len(tail) <= 4096
    assert subject.provider.console(ref(request), 0) == b""
    subject.compute.refuse("/serialPort", 503)
    with pytest.raises(ProviderUnavailable):
        subject.provider.console(ref(request))
    subject.compute.calm()
    subject.compute.stop_by("alice@example.com", request.name)
    subject.clock.advance(120.0)
    assert subject.provider.console(ref(request)) == b""  # it is off: Google has no console of it


def test_nothing_reaches_into_a_machine(subject: GceSubject) -> None:
    with pytest.raises(NotSupported, match="stop marker"):
        subject.provider.ask_to_stop(ref(subject.request()))


class Zones:
    """A stand-in for Compute. Every machine is going; with `silent`, zone z0 does not respond."""

    def __init__(self) -> None:
        self.silent, self.asked = False, list[str]()

    def get(self, zone: str, name: str) -> dict[str, str]:
        self.asked.append(name)
        if self.silent and zone == "z0":
            raise ApiError("no answer")
        return {"id": name, "name": name, "status": "STOPPING"}


def test_a_zone_without_answers_keeps_neither_the_tick_nor_the_others_waiting() -> None:
    zones = Zones()
    with ThreadPoolExecutor(1) as threads:
        releaser = Releaser(zones, threads)  # type: ignore[arg-type]
        for number in range(2 * CONFIRMED_PER_TICK):
            zone = f"z{number // CONFIRMED_PER_TICK}"
            releaser.release(MachineRef("gce", zone, str(number), str(number)))
        zones.silent, zones.asked = True, []
        assert len(releaser.unconfirmed((), ())) == 2 * CONFIRMED_PER_TICK
        assert zones.asked == ["0"]  # each of them might have taken twelve seconds
        zones.asked = []
        releaser.unconfirmed((), ())
        assert {int(name) // CONFIRMED_PER_TICK for name in zones.asked} == {1}

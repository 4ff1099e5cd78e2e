"""A provider with many faults: seeded bursts of refusals, lost responses, unreachable zones and ends of all kinds.

Four things always hold: an existing machine is never reported as absent; a definite no leaves no machine
behind; a record contains only what happened; and an end that Google reports is never "no record".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineListing
from supervisor.ports.provider import LaunchFailed, LaunchRequest, ProviderUnavailable
from tests.cloud.web import Reset
from tests.contracts.provider_subject import ref
from tests.providers.gce_subject import ZONES, GceSubject

STEPS = 90
BY = "alice@example.com"


class Weather:
    """`happened`: machine id -> causes that Google has recorded of it."""

    def __init__(self, subject: GceSubject, seed: int) -> None:
        self.subject, self.chance = subject, random.Random(seed)
        self.requests: dict[str, LaunchRequest] = {}
        self.refused: set[str] = set()
        self.released: set[str] = set()
        self.happened: dict[str, set[Cause]] = {}
        self.ids: dict[str, str] = {}  # name -> id of every machine that ever was
        self.records = 0

    # --- what happens

    def step(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (5, self.launch), (6, self.look), (4, self.find), (2, self.release), (3, self.an_end), (3, self.trouble),
            (4, lambda: self.subject.clock.advance(self.chance.uniform(0.5, 30.0))),
            (1, self.restart), (1, self.clear_up),
        ]  # fmt: skip
        self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()
        self.note()

    def launch(self) -> None:
        again = [request for name, request in self.requests.items() if name not in self.refused]
        request = self.chance.choice(again) if again and self.chance.random() < 0.5 else self.new()
        try:
            self.subject.provider.launch(request)
        except LaunchFailed:
            self.refused.add(request.name)
        except ProviderUnavailable:
            return

    def new(self) -> LaunchRequest:
        request = self.subject.request(run=f"run{len(self.requests)}", zone=self.chance.randrange(len(ZONES)))
        self.requests[request.name] = request
        return request

    def look(self) -> None:
        before = self.there()
        try:
            listing = self.subject.provider.machines()
        except ProviderUnavailable:
            return
        self.note()
        self.check_listing(listing, before & self.there())

    def find(self) -> None:
        self.note()
        if not self.ids:
            return
        name = self.chance.choice(sorted(self.ids))
        request, machine_id = self.requests[name], self.ids[name]
        before = self.there()
        try:
            found = self.subject.provider.find(ref(request, machine_id))
        except ProviderUnavailable:
            return
        self.note()
        if found is None:
            assert machine_id not in before & self.there(), f"{name} is there, and find says None"
            told = self.happened.get(machine_id)
            assert machine_id in self.released or not told, f"{name} ended by {told}, and find knows no record"
        else:
            self.check_record(found)

    def release(self) -> None:
        name = self.chance.choice(sorted(self.requests) or ["nobody"])
        if name in self.ids:
            self.released.add(self.ids[name])
            try:
                self.subject.provider.release(ref(self.requests[name], self.ids[name]))
            except ProviderUnavailable:
                return

    def an_end(self) -> None:
        compute = self.subject.compute
        alive = [name for name in compute.names() if compute.instance(name).status == "RUNNING"]
        if not alive:
            return
        name = self.chance.choice(alive)
        kind = self.chance.choice(["preempt", "host", "delete", "stop", "off"])
        self.ids[name] = compute.instance(name).id
        told = self.happened.setdefault(self.ids[name], set())
        if kind == "preempt":
            told.add(Cause.PREEMPTED)
            compute.preempt(name, record_after_s=self.chance.choice([0.0, 5.0, 60.0]))
        elif kind == "host":
            told.add(Cause.HOST_ERROR)
            compute.host_error(name)
        elif kind == "off":
            compute.guest_powered_off(name)
        else:
            told.add(Cause.MACHINE_DELETED)
            (compute.delete_by if kind == "delete" else compute.stop_by)(BY, name)

    def trouble(self) -> None:
        compute, chance = self.subject.compute, self.chance
        kind = chance.randrange(6)
        if kind == 0:
            compute.unreachable(chance.choice(ZONES))
        elif kind == 1:
            compute.stock_out(chance.choice(ZONES), until=self.subject.clock.now() + 60.0)
        elif kind == 2:
            compute.storm(chance.choice([429, 500, 503]), chance.uniform(1.0, 30.0))
        elif kind == 3:
            compute.page_rows = chance.choice([2, 500])
        else:
            pattern = chance.choice([r"/instances$", r"/instances/", r"/operations", "aggregated"])
            how = chance.choice([500, 503, 429, Reset, (502, b"<html>no</html>"), (404, b"<html>who?</html>")])
            compute.fail_next(None, pattern, how, times=chance.randrange(1, 8), lost=chance.random() < 0.5)

    def clear_up(self) -> None:
        self.subject.compute.calm()
        self.subject.compute.restock()
        for zone in ZONES:
            self.subject.compute.reachable(zone)

    def restart(self) -> None:
        self.subject.provider.close()
        self.subject.provider = self.subject.make()

    # --- what must hold

    def there(self) -> frozenset[str]:
        compute = self.subject.compute
        return frozenset(compute.instance(name).id for name in compute.names())

    def note(self) -> None:
        compute = self.subject.compute
        for name in compute.names():
            vm_id = compute.instance(name).id
            assert self.ids.setdefault(name, vm_id) == vm_id, f"{name}: two machines for one try"

    def check_listing(self, listing: MachineListing, living: frozenset[str]) -> None:
        listed = {machine.machine_id for machine in listing.machines}
        for name, machine_id in self.ids.items():
            if machine_id in living and self.requests[name].placement.zone not in listing.unreachable:
                assert machine_id in listed, f"{name} is there, and the listing leaves it out without a word"
        for machine in listing.machines:
            self.check_record(machine)

    def check_record(self, machine: Machine) -> None:
        if machine.record is not None:
            self.records += 1
            assert machine.record.cause in self.happened.get(machine.machine_id, set())

    def end(self) -> None:
        """When it is calm again everything is known: what was refused never came."""
        self.clear_up()
        self.subject.clock.advance(400.0)
        self.note()
        for name in self.refused:
            assert name not in self.subject.compute.names(), f"{name} was refused, and is there"
        self.look()


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[GceSubject]:
    subject = GceSubject(tmp_path, per_try_s=1.0)
    yield subject
    subject.close()


@pytest.mark.parametrize("seed", range(4))
def test_in_any_weather(subject: GceSubject, seed: int) -> None:
    weather = Weather(subject, seed)
    for _ in range(STEPS):
        weather.step()
    weather.end()
    assert weather.ids  # something was there to be wrong about


def test_the_weather_catches_a_listing_that_hides_what_it_could_not_read(subject: GceSubject) -> None:
    weather = Weather(subject, 1)
    request = weather.new()
    subject.up(request)
    weather.note()
    subject.compute.unreachable(request.placement.zone)
    subject.provider._listing._zones_of = lambda _: frozenset()  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="leaves it out"):
        weather.look()

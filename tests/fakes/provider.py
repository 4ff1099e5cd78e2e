"""A provider in memory whose every misfortune the test can write down beforehand.

It keeps the promises of ports/provider.py (the conformance suite runs on it) and can be told to break the calm:
    full of our own      capacity["zone"] = 2: CapacityInUse, and the capacity in the listing says it (0: no such zone)
    hours of a week         hours = {"cpu": Quota(...)}; it ends nothing by itself
    stock-outs and quota    stockout([...]), quota.add("zone"), quota_scope = "region"
    looking for room        room_s: so long a new machine is only asked for; then it starts, or the call has failed
    flex-start              a request at such an offer waits for capacity until its time is over (without_flex)
    a person                needs: meanwhile it has a place in a queue, and begins only when a person has done this
    images                  pins["image"] = "image@sha256:..." or an error; without an entry no images are run
    the answer of a launch  next_launch(ProviderUnavailable("..."), comes_up=True): the machine is there all the same
    the listing             down = True (nothing is read), unreachable.add("zone")
    a machine               preempt, kill, freeze, lose (gone, no record), end (stopped, still there), add (foreign),
                            remove (gone from the listing; asked for by id the platform says how it ended)
    a release               release_delay_s, immortal.add(name)
Time passes on the FakeClock only; `calls` counts what was asked.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from supervisor.domain.machines import (
    LAUNCH_LABEL,
    RUN_LABEL,
    SUPERVISOR_LABEL,
    Capacity,
    Machine,
    MachineListing,
    MachineRef,
    MachineState,
    Offer,
    Placement,
    Quota,
)
from supervisor.domain.profile import Profile, day_of
from supervisor.ports.provider import (
    CapacityInUse,
    LaunchFailed,
    LaunchPending,
    LaunchRejected,
    LaunchRequest,
    Meters,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from supervisor.providers.gce import traits as gce_traits
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.profile import profile as gce_profile
from supervisor.providers.local import traits as local_traits
from supervisor.providers.local.profile import profile as local_profile
from tests.fakes.clock import FakeClock
from tests.fakes.misfortunes import FakeMachine, Misfortunes
from tests.fakes.secrets import KeptSecrets

CLOUD = GceConfig(project="project-one", zones=(), shapes={}, store_url="gs://bucket-one/runs")
PRICES = (0.10, 0.30)
OFF_PRICE = 0.01  # of the disks of a machine that is switched off
NO_ROOM_TAKEN = (MachineState.ENDED, MachineState.ASKED)


def offers_in(zones: Iterable[str], provider: str = "local", shape: str = "cpu") -> tuple[Offer, ...]:
    """One spot and one on-demand offer for each zone, spot first."""
    return tuple(
        Offer(
            Placement(provider, provider, zone, shape, spot),
            PRICES[0] if spot else PRICES[1],
            PRICES[1],
            off_usd_per_h=OFF_PRICE,
        )
        for spot in (True, False)
        for zone in zones
    )


class FakeProvider(Misfortunes, KeptSecrets):
    def __init__(
        self, clock: FakeClock, zones: Sequence[str] = ("local-a", "local-b", "local-c"), name: str = "local"
    ) -> None:
        super().__init__()
        self.name = name
        is_local = name == "local"
        self.traits = local_traits.TRAITS if is_local else gce_traits.TRAITS
        self.meters: Meters | None = None
        on = day_of(clock.now())
        self.shown_profile = local_profile(Path("/data/machines"), None, on) if is_local else gce_profile(CLOUD, on)
        self.offered = offers_in(zones, name)
        self.capacity: dict[str, int] = {}  # zone -> machines at once; absent = no limit
        self.quota: set[str] = set()  # zones that answer QuotaExceeded
        self.quota_of: dict[str, int] = {}  # zone -> machines that its quota allows; absent = no limit
        self.hours: Mapping[str, Quota] = {}  # by shape, those that its platform lends
        self.unreachable: set[str] = set()
        self.settings_zones: frozenset[str] | None = None  # it sees these only; None = it finds every machine
        self.down = False
        self.gpu_words: dict[str, str] = {}  # shape -> what gpus() says of it; absent = none
        self.boot_s = 0.0
        self.room_s = 0.0
        self.rooms: dict[str, float] = {}  # zone -> the same, where it differs
        self.needs = ""
        self.quota_scope = "zone"
        self.pins: dict[str, str | Exception] = {}
        self.release_delay_s = 0.0
        self.immortal: set[str] = set()  # released, yet never gone
        self.calls: Counter[str] = Counter()
        self.launches: list[LaunchRequest] = []
        self.starts: list[LaunchRequest] = []
        self.releases: list[MachineRef] = []
        self._clock = clock
        self._lock = threading.RLock()
        self._machines: dict[str, FakeMachine] = {}
        self.without_spot: set[str] = set()  # zones that have on-demand machines alone
        self.without_flex: set[str] = set()  # zones where a flex-start request waits
        self._stockouts: dict[str, float | None] = {}
        self._next_launches: list[tuple[Exception, bool]] = []
        self._refused: dict[str, LaunchFailed] = {}  # request id -> how the create call ended
        self._removed: dict[str, Machine] = {}  # machine id -> what the platform still knows of it
        self._born = 0

    # --- the provider -------------------------------------------------------------------------------------------------

    def profile(self, zone: str = "") -> Profile:
        return self.shown_profile

    def pin(self, image: str) -> str:
        with self._lock:
            self.calls["pin"] += 1
            known = self.pins.get(image, "")
            if isinstance(known, Exception):
                raise known
            return known

    def offers(self) -> tuple[Offer, ...]:
        return self.offered

    def gpus(self, shape: str) -> str:
        return self.gpu_words.get(shape, "")

    def quotas(self) -> Mapping[str, Quota]:
        return self.hours

    def launch(self, request: LaunchRequest) -> Machine:
        with self._lock:
            self.calls["launch"] += 1
            self.launches.append(request)
            scripted = self._next_launches.pop(0) if self._next_launches else None
            if scripted is None:
                return self._start(request)
            answer, comes_up = scripted
            if comes_up:
                self._start(request)
            raise answer

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        with self._lock:
            self.calls["start"] += 1
            self.starts.append(request)
            scripted = self._next_launches.pop(0) if self._next_launches else None
            if scripted is None:
                return self._start_again(request, ref)
            answer, comes_up = scripted
            if comes_up:
                self._start_again(request, ref)
            raise answer

    def stop(self, ref: MachineRef) -> None:
        with self._lock:
            self.calls["stop"] += 1
            self._refuse_if_down()
            if self._match(ref) is not None:
                own = self._machines[ref.name]
                own.machine = replace(own.machine, state=MachineState.ENDED)

    def machines(self) -> MachineListing:
        with self._lock:
            self.calls["machines"] += 1
            self._refuse_if_down()
            present = (self._now(name) for name in list(self._machines))
            seen = tuple(m for m in present if m is not None and not self._is_away(m.zone))
            reasons = {zone: f"{zone} does not answer" for zone in self.unreachable}
            return MachineListing(seen, frozenset(reasons), self._capacity(), self.settings_zones, reasons)

    def find(self, ref: MachineRef) -> Machine | None:
        with self._lock:
            self.calls["find"] += 1
            self._refuse_if_down()
            if self._is_away(ref.zone):
                raise ProviderUnavailable(f"zone {ref.zone} does not answer")
            return self._match(ref) or self._removed.get(ref.machine_id or "")

    def release(self, ref: MachineRef) -> None:
        with self._lock:
            self.calls["release"] += 1
            self.releases.append(ref)
            self._refuse_if_down()
            if self._match(ref) is not None and ref.name not in self.immortal:
                own = self._machines[ref.name]
                if own.gone_at is None:
                    own.gone_at = self._clock.now() + self.release_delay_s

    def ask_to_stop(self, ref: MachineRef) -> None:
        with self._lock:
            self.calls["ask_to_stop"] += 1
            if self._match(ref) is not None:
                self._machines[ref.name].asked_to_stop = True

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        with self._lock:
            self.calls["console"] += 1
            self._refuse_if_down()
            own = self._machines.get(ref.name)
            return own.console[-max_bytes:] if own is not None and max_bytes > 0 else b""

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_away(self, zone: str) -> bool:
        return zone in self.unreachable or (self.settings_zones is not None and zone not in self.settings_zones)

    def _refuse_if_down(self) -> None:
        if self.down:
            raise ProviderUnavailable("the platform does not answer")

    def _room_s(self, zone: str) -> float:
        return self.rooms.get(zone, self.room_s)

    def _start(self, request: LaunchRequest) -> Machine:
        self._refuse_if_down()
        present = self._now(request.name)
        if request.request_id in self._refused:
            raise self._refused[request.request_id]
        if present is not None:
            same = (present.supervisor_id, present.run_id, present.launch_id)
            if same != (request.supervisor_id, request.run_id, request.launch_id):
                raise LaunchRejected(f"machine {request.name} is there already, of launch {present.launch_id}")
            return self._has_room(present)
        self.refuse_secrets(request.secrets)
        room_s = self._room_s(request.placement.zone)
        if room_s <= 0 and not request.waits_s:
            self._refuse_placement(request.placement)
        self._born += 1
        room_at = self._clock.now() + room_s
        own = FakeMachine(
            self._machine_of(request),
            up_at=room_at + self.boot_s,
            room_at=room_at,
            job=dict(request.job),
            request=request,
        )
        self._machines[request.name] = own
        started = self._now(request.name)
        if started is None:
            raise AssertionError("a machine that was just started is there")
        return self._has_room(started)

    def _start_again(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        self._refuse_if_down()
        if ref.zone in self.unreachable:
            raise ProviderUnavailable(f"zone {ref.zone} does not answer")
        present = self._now(request.name)
        same = present is not None and (present.supervisor_id, present.run_id) == (
            request.supervisor_id,
            request.run_id,
        )
        if present is None or not same:
            raise LaunchRejected(f"there is no machine {request.name} of run {request.run_id}")
        if present.launch_id == request.launch_id:
            return self._has_room(present)
        if present.state is not MachineState.ENDED:
            raise ProviderUnavailable(f"{request.name} is not off yet")
        self.refuse_secrets(request.secrets)
        if self.room_s <= 0:
            self._refuse_placement(request.placement)
        own, self._born = self._machines[request.name], self._born + 1
        own.room_at = self._clock.now() + self.room_s
        own.up_at, own.taken_at, own.asked_to_stop = own.room_at + self.boot_s, None, False
        own.machine, own.job, own.request = self._machine_of(request), dict(request.job), request
        return self._has_room(self._now(request.name) or own.machine)

    def _has_room(self, machine: Machine) -> Machine:
        if machine.state is MachineState.ASKED:
            raise LaunchPending(f"the platform still looks for room for {machine.name}")
        return machine

    def _machine_of(self, request: LaunchRequest) -> Machine:
        is_asked = request.waits_s > 0 or self._room_s(request.placement.zone) > 0
        return Machine(
            machine_id=f"fake:{self._born}",
            name=request.name,
            zone=request.placement.zone,
            state=MachineState.ASKED if is_asked else MachineState.STARTING,
            supervisor_id=request.supervisor_id,
            run_id=request.run_id,
            launch_id=request.launch_id,
            created_at=self._clock.now(),
            queued=bool(self.needs),
            needs=self.needs,
            labels={
                SUPERVISOR_LABEL: request.supervisor_id,
                RUN_LABEL: request.run_id,
                LAUNCH_LABEL: request.launch_id,
            },
        )

    def _refuse_placement(self, placement: Placement) -> None:
        zone = placement.zone
        if zone in self.unreachable:
            raise ProviderUnavailable(f"zone {zone} does not answer")
        if placement not in {offer.placement for offer in self.offered}:
            raise LaunchRejected(f"{placement.shape} in {zone} is not offered")
        if zone in self.quota:
            raise QuotaExceeded(f"QUOTA_EXCEEDED: quota CPUS in {zone} is 0 of 0", self.quota_scope)
        most = self.quota_of.get(zone)
        if most is not None and self._living()[zone] >= most:
            raise QuotaExceeded(f"QUOTA_EXCEEDED: quota CPUS in {zone} allows {most}", self.quota_scope)
        if zone in (self.without_spot if placement.spot else self.without_flex if placement.flex else ()):
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: no {placement.market} {placement.shape} in {zone}")
        if zone in self._stockouts:
            until = self._stockouts[zone]
            if until is None or self._clock.now() < until:
                raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: no {placement.shape} in {zone}")
        if self.capacity.get(zone) == 0:
            raise NoCapacity(f"ZONE_RESOURCE_POOL_EXHAUSTED: zone {zone} has no capacity for any machine")
        capacity = self._capacity()
        if capacity is not None and (held := capacity.why_full(zone, placement.shape)):
            raise CapacityInUse(held)

    def _capacity(self) -> Capacity | None:
        """None = no limit is set, as with a cloud."""
        living = self._living()
        left = {zone: limit - living[zone] for zone, limit in self.capacity.items() if limit}
        return Capacity(zones=left) if left else None

    def _living(self) -> Counter[str]:
        """Machines by zone."""
        machines = [self._now(name) for name in list(self._machines)]
        return Counter(each.zone for each in machines if each and each.state not in NO_ROOM_TAKEN)

    @property
    def is_still(self) -> bool:
        """No machine changes by time: somebody must do something."""
        return all(own.lasts for own in self._machines.values())

    def _now(self, name: str) -> Machine | None:
        """The machine as it is at this instant of the clock; what is over by now is settled here."""
        own = self._machines.get(name)
        if own is None:
            return None
        if own.lasts:
            return own.machine
        now = self._clock.now()
        if own.gone_at is not None and now >= own.gone_at:
            del self._machines[name]
            return None
        if own.machine.state is MachineState.ASKED:
            return self._asked(name, own)
        if own.taken_at is not None and now >= own.taken_at:
            own.machine = replace(own.machine, state=MachineState.ENDED)
        elif own.machine.state is MachineState.STARTING and now >= own.up_at:
            own.machine = replace(own.machine, state=MachineState.UP)
        return own.machine

    def _asked(self, name: str, own: FakeMachine) -> Machine | None:
        if self._clock.now() < own.room_at or own.request is None:
            return own.machine
        del self._machines[name]  # it takes no room itself while room is looked for
        try:
            self._refuse_placement(own.request.placement)
        except LaunchFailed as error:
            if self._clock.now() < own.room_at + own.request.waits_s:
                self._machines[name] = own
                return own.machine
            self._refused[own.request.request_id] = error
            if own.request not in self.starts:
                return None
            own.machine = replace(own.machine, state=MachineState.ENDED)
            self._machines[name] = own
            return own.machine
        self._machines[name] = own
        if own.request.waits_s:
            own.up_at = self._clock.now() + self.boot_s
        own.machine = replace(own.machine, state=MachineState.STARTING, queued=False, needs="")
        return self._now(name)

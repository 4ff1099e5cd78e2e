"""The points at which a scenario can make a call fail, between the supervisor and the world.

`StoreAccess` is the access of one party (the supervisor or the agents) to the shared object store, and can be blocked.
`StagedProvider` reports each new machine to the stage and can kill the supervisor around a create call. `Later` keeps
actions until the tick is over, as their own threads would. `DatabaseAccess` can make the database unavailable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState
from supervisor.ports.objectstore import Page, StoreUnavailable
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.ports.store import StoreDown
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider


class SupervisorDied(BaseException):
    """kill -9 during a call: nothing catches it, and nothing after it happens."""


class TrueClock:
    """The clock of platform and store: a step of the supervisor's wall clock does not move it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._ahead_s = clock.now() - clock.monotonic()

    def now(self) -> float:
        return self._ahead_s + self._clock.monotonic()


class StoreAccess:
    """Passes every call on to the shared store, unless `blocked`. `old`: listings return these pages instead."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.url = store.url
        self.blocked = False
        self.old: dict[str, list[Page]] | None = None
        self.calls: Counter[str] = Counter()

    def __getattr__(self, method: str):
        target = getattr(self._store, method)

        def call(*args, **kwargs):
            self.calls[method] += 1
            if self.blocked:
                raise StoreUnavailable("the object store does not respond")
            if method == "pages" and self.old is not None and args[0] in self.old:
                return iter(self.old[args[0]])
            return target(*args, **kwargs)

        return call


class StagedProvider(FakeProvider):
    """`dies`: "" | before-create | after-create | before-try | after-try: of this `number`. `silent`: numbers of tries
    whose calls get no answer and make nothing. `on_new` is called with each new machine."""

    def __init__(self, clock: FakeClock, zones: tuple[str, ...], on_new: Callable[[LaunchRequest, Machine], None]):
        super().__init__(TrueClock(clock), zones)
        self.dies, self.number = "", ""
        self.silent: set[str] = set()
        self._on_new = on_new
        self._reported: set[str] = set()
        self._requests: dict[str, LaunchRequest] = {}
        self.hidden: set[str] = set()  # machines that a listing, complete as it says, leaves out

    def launch(self, request: LaunchRequest) -> Machine:
        number = request.launch_id.rpartition(".")[2]
        if self.dies == "before-create" or (self.dies == "before-try" and number == self.number):
            raise SupervisorDied
        if number in self.silent:
            self.launches.append(request)
            raise ProviderUnavailable("no answer")
        self._requests[request.name] = request
        try:
            return super().launch(request)
        finally:
            self.machine_now(request.name)
            if self.dies == "after-create" or (self.dies == "after-try" and number == self.number):
                raise SupervisorDied

    def start(self, request: LaunchRequest, ref: MachineRef) -> Machine:
        if self.dies == "before-create":
            raise SupervisorDied
        self._requests[request.name] = request
        try:
            return super().start(request, ref)
        finally:
            self.machine_now(request.name)
            if self.dies == "after-create":
                raise SupervisorDied

    def machines(self) -> MachineListing:
        listing = super().machines()
        return replace(listing, machines=tuple(item for item in listing.machines if item.name not in self.hidden))

    def drop_scripted_responses(self) -> None:
        """Drop the scripted responses that no call has received yet."""
        self._next_launches.clear()

    def _now(self, name: str) -> Machine | None:
        machine = super()._now(name)
        request = self._requests.get(name)
        if machine is None or request is None or machine.machine_id in self._reported:
            return machine
        if machine.state is not MachineState.ASKED and machine.run_id == request.run_id:
            self._reported.add(machine.machine_id)
            self._on_new(request, machine)
        return machine

    def machine_now(self, name: str) -> Machine | None:
        """The machine as it is now. Unlike `find`, it ignores outages and counts no call."""
        return self._now(name)

    def machines_now(self) -> list[Machine]:
        machines = [self._now(name) for name in list(self._machines)]
        return [machine for machine in machines if machine is not None]

    def lives(self, name: str, machine_id: str) -> bool:
        machine = self._now(name)
        alive = (MachineState.UP, MachineState.ENDING)
        return machine is not None and machine.machine_id == machine_id and machine.state in alive


class AtOnce(Executor):
    """Runs each call where it is submitted."""

    def submit(self, fn, /, *args, **kwargs):
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future carries it to the caller
            future.set_exception(error)
        return future


class Later(Executor):
    """Keeps calls until `drain`: actions run after the tick, and a supervisor that dies drops them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def submit(self, fn, /, *args, **kwargs):
        self.calls.append(lambda: fn(*args, **kwargs))
        return Future()

    def drain(self) -> None:
        while self.calls:
            self.calls.pop(0)()

    def drop(self) -> None:
        self.calls.clear()


# Methods of the store that change no row.
READS = frozenset({
    "active", "attempts", "due_outbox", "events", "find", "labels", "nonce_hash", "page", "spec", "statuses", "tries",
    "zones",
})  # fmt: skip


class DatabaseAccess:
    """The store of rows, or StoreDown while it is `down`."""

    def __init__(self, store) -> None:
        self._store = store
        self.down = False
        self.calls: Counter[str] = Counter()
        self._remembered: dict[tuple[object, ...], object] = {}

    def again(self, name: str, *args):
        """The result of this read for who waits for a change: as long as nothing was called that may write, the one
        from before. The stage is the only one who has the database."""
        if self.down or (name, *args) not in self._remembered:
            self._remembered[name, *args] = getattr(self, name)(*args)
        return self._remembered[name, *args]

    def __getattr__(self, name: str):
        member = getattr(self._store, name)
        if not callable(member):
            return member

        def call(*args, **kwargs):
            self.calls[name] += 1
            if name not in READS:
                self._remembered.clear()
            if self.down:
                raise StoreDown("the database does not respond")
            return member(*args, **kwargs)

        return call

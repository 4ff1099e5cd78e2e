"""Where a scenario puts its hand between the supervisor and the world.

`StoreDoor` is one party's way to the shared object store: it can be shut for the supervisor, the agents, or both.
`StagedProvider` tells the stage of each birth and can let the supervisor die around a create call. `Later` keeps
actions until the tick is over, as threads of their own would. `DatabaseDoor` makes the database go away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace

from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.ports.objectstore import Page, StoreUnavailable
from supervisor.ports.provider import LaunchRequest
from supervisor.ports.store import StoreDown
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider


class SupervisorDied(BaseException):
    """kill -9 in the middle of a call: nothing catches it, nothing after it happens."""


class TrueClock:
    """The clock of platform and store: time passes, and nobody's step of the supervisor's wall clock moves it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._ahead_s = clock.now() - clock.monotonic()

    def now(self) -> float:
        return self._ahead_s + self._clock.monotonic()


class StoreDoor:
    """Passes every call on to the shared store, unless it is shut. `old`: listings show this picture instead."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.url = store.url
        self.shut = False
        self.old: dict[str, list[Page]] | None = None
        self.calls: Counter[str] = Counter()

    def __getattr__(self, method: str):
        deed = getattr(self._store, method)

        def call(*args, **kwargs):
            self.calls[method] += 1
            if self.shut:
                raise StoreUnavailable("the object store does not answer")
            if method == "pages" and self.old is not None and args[0] in self.old:
                return iter(self.old[args[0]])
            return deed(*args, **kwargs)

        return call


class AgentsDoor(StoreDoor):
    """The same for the agents: shut and counted apart."""


class StagedProvider(FakeProvider):
    """`dies`: "" | before-create | after-create. `born` is told of each new machine."""

    def __init__(self, clock: FakeClock, zones: tuple[str, ...], born: Callable[[LaunchRequest, Machine], None]):
        super().__init__(TrueClock(clock), zones)
        self.dies = ""
        self._tell_birth = born
        self._known: set[str] = set()
        self._requests: dict[str, LaunchRequest] = {}
        self.hidden: set[str] = set()  # machines that a listing, complete as it says, leaves out

    def launch(self, request: LaunchRequest) -> Machine:
        if self.dies == "before-create":
            raise SupervisorDied
        self._requests[request.name] = request
        try:
            return super().launch(request)
        finally:
            self.look(request.name)
            if self.dies == "after-create":
                raise SupervisorDied

    def machines(self) -> MachineListing:
        listing = super().machines()
        return replace(listing, machines=tuple(one for one in listing.machines if one.name not in self.hidden))

    def answer_well(self) -> None:
        """Scripted answers that have not been given yet are not given any more."""
        self._next_launches.clear()

    def _now(self, name: str) -> Machine | None:
        machine = super()._now(name)
        request = self._requests.get(name)
        if machine is None or request is None or machine.machine_id in self._known:
            return machine
        if machine.state is not MachineState.ASKED and machine.run_id == request.run_id:
            self._known.add(machine.machine_id)
            self._tell_birth(request, machine)
        return machine

    def look(self, name: str) -> Machine | None:
        """The machine as it is now, whatever the supervisor can read, counted nowhere."""
        return self._now(name)

    def look_all(self) -> list[Machine]:
        found = [self._now(name) for name in list(self._machines)]
        return [machine for machine in found if machine is not None]

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
        except Exception as error:  # noqa: BLE001 - the future carries it to whoever asks
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


class DatabaseDoor:
    """The store of rows, or StoreDown while it is away."""

    def __init__(self, store) -> None:
        self._store = store
        self.away = False
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str):
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args, **kwargs):
            self.calls[name] += 1
            if self.away:
                raise StoreDown("the database does not answer")
            return found(*args, **kwargs)

        return call

"""Places that take their time, and threads whose time is the test's own.

`VirtualThreads` is an executor on the FakeClock. Its calls run in real threads, but one at a time: whoever begins one
goes on when it is over, or when it says that it hangs (`hang`) until some later moment of the clock. Who waits for a
result lets the clock go on, up to the wait's own end. `most`: threads of this pool; a call that stands behind others
begins when one of them is over. So an hour before a place that hangs costs no time, and comes out the same each time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from supervisor.domain.machines import Machine, MachineListing, MachineRef
from supervisor.ports.provider import LaunchRequest
from tests.fakes.clock import FakeClock

NEVER = float("inf")
GIVEN_UP_S = 60.0  # real time; no call computes for so long
_here = threading.local()


class VirtualFuture(Future):
    def __init__(self, pool: VirtualThreads) -> None:
        super().__init__()
        self._pool = pool

    def done(self) -> bool:
        self._pool.go_on()
        return super().done()

    def result(self, timeout: float | None = None) -> Any:
        self._pool.wait_for(self, timeout)
        return super().result(0)


class _Worker:
    """One call in its thread. `until`: when its hang is over; None while it runs or is over."""

    def __init__(self, future: VirtualFuture, call: Callable[[], Any]) -> None:
        self.until: float | None = None
        self.closing = False
        self._future, self._call = future, call
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def go_on(self) -> None:
        """Until it is over or hangs again."""
        self.until = None
        self._turn.release()
        if not self._back.acquire(timeout=GIVEN_UP_S):
            raise AssertionError("a call neither ends nor hangs")

    def hang(self, until: float) -> None:
        self.until = until
        self._back.release()
        self._turn.acquire()
        if self.closing:
            raise SystemExit

    def _run(self) -> None:
        _here.worker = self
        self._turn.acquire()
        try:
            self._future.set_result(self._call())
        except BaseException as error:  # noqa: BLE001 - the future carries it to whoever waits
            self._future.set_exception(error)
        self._back.release()


def hang(clock: FakeClock, until: float) -> None:
    """The call that is being made comes back then. Outside of any pool time itself goes on."""
    worker: _Worker | None = getattr(_here, "worker", None)
    if worker is None:
        clock.advance(max(0.0, until - clock.monotonic()))
    else:
        worker.hang(until)


class VirtualThreads(Executor):
    def __init__(self, clock: FakeClock, most: int = 1000) -> None:
        self._clock = clock
        self._most = most
        self._standing: deque[tuple[VirtualFuture, Callable[[], Any]]] = deque()
        self._hanging: list[_Worker] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> VirtualFuture:
        future = VirtualFuture(self)
        self._standing.append((future, lambda: fn(*args, **kwargs)))
        self.go_on()
        return future

    @property
    def due(self) -> float:
        """When the next call that hangs is over."""
        return min((worker.until for worker in self._hanging if worker.until is not None), default=NEVER)

    @property
    def standing(self) -> int:
        return len(self._standing)

    def go_on(self) -> None:
        """Everything that can be over by now."""
        while self.due <= self._clock.monotonic():
            worker = min(self._hanging, key=lambda one: one.until or 0.0)
            self._hanging.remove(worker)
            self._let(worker)
        while self._standing and len(self._hanging) < self._most:
            self._let(_Worker(*self._standing.popleft()))

    def let_pass(self, seconds: float) -> None:
        """Time, with what comes back in it at its own moment."""
        end = self._clock.monotonic() + seconds
        while (now := self._clock.monotonic()) < end:
            self._clock.advance(min(self.due, end) - now)
            self.go_on()

    def wait_for(self, future: Future, timeout: float | None) -> None:
        end = NEVER if timeout is None else self._clock.monotonic() + timeout
        while not future.done():
            if self._clock.monotonic() >= end:
                raise TimeoutError
            due = min(self.due, end)
            if due == NEVER:
                raise AssertionError("this wait would never end")
            hang(self._clock, due)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What hangs is broken off."""
        self._standing.clear()
        for worker in self._hanging:
            worker.closing = True
            worker.go_on()
        self._hanging.clear()

    def _let(self, worker: _Worker) -> None:
        worker.go_on()
        if worker.until is not None:
            self._hanging.append(worker)


class Stalling:
    """A provider before which a place can hang: every call to it that is made before `hangs_until` (monotonic) comes
    back then, as the place is by then; any other takes `takes_s`. What asks nobody is answered at once."""

    def __init__(self, provider: Any, clock: FakeClock) -> None:
        self.provider = provider
        self.hangs_until, self.takes_s = 0.0, 0.0
        self.began: list[str] = []  # calls as they began
        self.answered: frozenset[str] = frozenset()  # kinds of calls that do not hang
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    def _hang(self, call: str) -> None:
        self.began.append(call)
        now = self._clock.monotonic()
        if call in self.answered:
            return
        if max(self.hangs_until, now + self.takes_s) > now:
            hang(self._clock, max(self.hangs_until, now + self.takes_s))

    def machines(self) -> MachineListing:
        self._hang("machines")
        return self.provider.machines()

    def launch(self, request: LaunchRequest) -> Machine:
        self._hang("launch")
        return self.provider.launch(request)

    def find(self, ref: MachineRef) -> Machine | None:
        self._hang("find")
        return self.provider.find(ref)

    def release(self, ref: MachineRef) -> None:
        self._hang("release")
        self.provider.release(ref)

    def pin(self, image: str) -> str:
        self._hang("pin")
        return self.provider.pin(image)

    def console(self, ref: MachineRef, max_bytes: int = 65536) -> bytes:
        self._hang("console")
        return self.provider.console(ref, max_bytes)

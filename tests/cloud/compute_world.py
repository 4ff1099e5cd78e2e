"""The content of the fake project, and its time: what is due happens at the next request (or at a tick).

Plans are kept in a heap by their moment, so that a clock which jumps still sees them in order, each at its own time.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from tests.cloud.compute_catalog import Catalog
from tests.cloud.compute_errors import not_found
from tests.cloud.compute_instances import Instance
from tests.cloud.compute_operations import SYSTEM, Operation, OperationBook, numeric_id
from tests.cloud.compute_pages import Key, Row

Plan = Callable[[float], None]  # called with the moment that it was planned for


class World:
    """`live`: hooks run in a thread of their own; otherwise in the thread of the request, after its response."""

    def __init__(self, clock: Callable[[], float], project: str, live: bool) -> None:
        self.clock, self.project, self.live = clock, project, live
        self.lock = threading.RLock()
        self.catalog = Catalog(project)
        self.instances: dict[tuple[str, str], Instance] = {}
        self.operations = OperationBook(project)
        self.replays: dict[tuple[str, str], Operation] = {}  # (path, request id) -> what the first request began
        self.on_running: Callable[[Instance], None] | None = None
        self.on_stop: Callable[[Instance, bool], None] | None = None
        self.on_notice: Callable[[Instance, float], None] | None = None
        self.hook_errors: list[Exception] = []
        self._plans: list[tuple[float, int, Plan]] = []
        self._count = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._calling = threading.Lock()
        self._sorted: dict[bool, list[tuple[Key, Row]]] = {}

    # time

    def plan(self, at: float, what: Plan) -> None:
        self._count += 1
        heappush(self._plans, (at, self._count, what))

    def plan_for(self, vm: Instance, at: float, what: Plan) -> None:
        """Not carried out once the machine has taken another course."""
        life = vm.life

        def still(moment: float) -> None:
            if vm.life == life and self.instances.get((vm.zone, vm.name)) is vm:
                what(moment)

        self.plan(at, still)

    def catch_up(self) -> float:
        """Everything that is due by now has happened; -> now."""
        now = self.clock()
        with self.lock:
            while self._plans and self._plans[0][0] <= now:
                at, _, what = heappop(self._plans)
                what(at)
        return now

    def tick(self) -> None:
        """catch_up, and the hooks. Called by tests after a turn of the clock, or by the ticker."""
        self.catch_up()
        self.call_hooks()

    def later(self, hook: Callable[..., None] | None, *given: Any) -> None:
        if hook is not None:
            self._calls.append(lambda: hook(*given))

    def call_hooks(self) -> None:
        """In order, and never under the lock: a hook may call the API. Its exceptions are kept in `hook_errors` and
        shown, since the thread that happens to call it has nothing to do with it."""
        while self._calls and self._calling.acquire(blocking=False):
            try:
                if self._calls:  # another thread may have been quicker
                    self._calls.popleft()()
            except Exception as error:  # noqa: BLE001  whatever a test's hook may raise
                traceback.print_exc()
                self.hook_errors.append(error)
            finally:
                self._calling.release()

    # things

    def instance(self, name: str, zone: str | None = None) -> Instance:
        """For tests: by name, in any zone. KeyError when there is none."""
        self.catch_up()
        with self.lock:
            for (in_zone, called), vm in self.instances.items():
                if called == name and zone in (None, in_zone):
                    return vm
        raise KeyError(name)

    def names(self) -> list[str]:
        self.catch_up()
        with self.lock:
            return sorted(name for _, name in self.instances)

    def all_instances(self) -> list[Instance]:
        """For tests: in order of name, all of one moment."""
        self.catch_up()
        with self.lock:
            return [vm for (_, name), vm in sorted(self.instances.items(), key=lambda item: item[0][1])]

    def existing(self, zone: str, name: str) -> Instance:
        """Raises ApiError (404)."""
        vm = self.instances.get((zone, name))
        if vm is None:
            raise not_found("projects/%s/zones/%s/instances/%s" % (self.project, zone, name))
        return vm

    def rows(self, newest_first: bool, zone: str | None = None) -> list[tuple[Key, Row]]:
        if newest_first not in self._sorted:
            self._sorted[newest_first] = sorted(
                ((-vm.created_at, -vm.vm_id) if newest_first else key, vm) for key, vm in self.instances.items()
            )
        rows = self._sorted[newest_first]
        return rows if zone is None else [row for row in rows if row[1].zone == zone]  # type: ignore[attr-defined]

    def put(self, vm: Instance) -> None:
        self.instances[(vm.zone, vm.name)] = vm
        self._sorted.clear()

    def drop(self, vm: Instance) -> None:
        self.instances.pop((vm.zone, vm.name), None)
        self.catalog.release_disks(vm.link)
        self._sorted.clear()

    def new_id(self) -> int:
        self._count += 1
        return numeric_id(self._count, 2)

    # operations

    def begin(self, kind: str, vm: Instance, user: str, now: float) -> Operation:
        return self.operations.add(vm.zone, kind, vm.link, vm.vm_id, user, now)

    def record(self, event: str, vm: Instance, message: str, now: float) -> Operation:
        """A system event: compute.instances.<event>, done at once."""
        made = self.begin("compute.instances." + event, vm, SYSTEM, now)
        return self.operations.change(made, status="DONE", ended_at=now, status_message=message)

    def end(self, operation: Operation | None, now: float, **to: Any) -> None:
        if operation is not None and self.operations.get(operation.zone, operation.name).status != "DONE":
            self.operations.change(operation, status="DONE", ended_at=now, **to)

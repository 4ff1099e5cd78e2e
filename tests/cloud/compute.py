"""Compute Engine v1 on loopback: `ComputeFake().url` is an `api_endpoint` for the official client.

Time is `clock`'s; everything that is due happens when somebody asks, or at `tick()`. With live=True a thread ticks and
calls the hooks. Durations: `create_s delete_s stop_s fail_s queue_s preempted_stop_s`, to be set before they matter.
What a test may do (names are machine names; every `until` is epoch seconds of the clock):

  look      instance(name[, zone]) names() operations.all() requests headers count(method, pattern) clear_requests()
  hooks     on_running(vm) on_notice(vm, notice_s) on_stop(vm, hard); append_serial(name, zone, data) write the console;
            guest_powered_off(name, zone[, machine_id]) when the guest is off, by itself or because it was told to
  ends      preempt(name, zone, record=, notice=) host_error(name) delete_by(user, name) stop_by(user, name)
            and by itself: maxRunDuration (deferredDelete, deferredStop)
  capacity  stock_out(zone, shape, code, until, model) restock() quota(where, metric, limit, at_once) raise_quota()
            zombie(zone) preempt_when_created(zone, after_s)
  answers   fail_next(method, path pattern, status | Hang | Reset | bytes, times, for_s, lost=) storm(status, for_s)
            calm() unreachable(zone) reachable(zone) false_404(name, until) overlapping_delete expire_tokens()
  world     catalog (zones, machine_types, absent, images, disks, quotas), advice, add_instances(count, zones, labels)

`lost=True`: carried out, and the answer fails: Reset = the answer was lost, Hang = the insert hangs but the VM comes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.cloud import compute_places  # noqa: F401  its routes are known once it is imported
from tests.cloud.compute_advice import Advice
from tests.cloud.compute_errors import ApiError
from tests.cloud.compute_faults import Faults, carry_out
from tests.cloud.compute_instances import Instance
from tests.cloud.compute_mask import apply_mask, parse_mask
from tests.cloud.compute_routes import find_route
from tests.cloud.compute_rules import check_request_id
from tests.cloud.web import Request, Response, Watch, WebServer

_PREFIX = re.compile(r"/compute/v1/projects/(?P<project>[^/]+)/?(?P<rest>.*)")
TICK_S = 0.02


class ComputeFake(Faults):
    """`accept_token`: is this bearer token good? `wait_s`: how long zoneOperations.wait waits at most (live only).
    `overlapping_delete`: status and reason of a second DELETE while the first runs; None = accepted.
    `requests`: (method, path, query) of everything asked, `headers` beside it."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
        project: str = "p",
        *,
        live: bool = False,
    ) -> None:
        super().__init__(clock, project, live)
        self.accept_token: Callable[[str], bool] = lambda _: True
        self.overlapping_delete: tuple[int, str] | None = (403, "resourceNotReady")
        self.serial_of_stopped = False
        self.wait_s = 120.0 if live else 0.0
        self.advice = Advice(self.catalog)
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[Mapping[str, str]] = []
        self._tokens: set[str] = set()
        self._expired: set[str] = set()
        self._fated: dict[str, tuple[float, bool]] = {}
        self.server = WebServer(self._answer, watch)
        self._ticker = threading.Thread(target=self._tick_on, daemon=True)
        if live:
            self._ticker.start()

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()
        if self.live:
            self._ticker.join()

    # what was asked

    def count(self, method: str | None = None, pattern: str = "") -> int:
        """Requests so far whose path matches (re.search)."""
        return sum(method in (None, how) and bool(re.search(pattern, path)) for how, path, _ in self.requests)

    def clear_requests(self) -> None:
        with self.lock:
            self.requests, self.headers = [], []

    def expire_tokens(self) -> None:
        """No token that was used until now is good any more: 401."""
        with self.lock:
            self._expired |= self._tokens

    # what happens to machines

    def preempt(
        self, name: str, zone: str | None = None, *, record: bool = True, notice: bool = True
    ) -> None:
        """After the VM's preemptionNoticeDuration (0 or 120 s): STOPPING, then its termination action. `record`: the
        operation compute.instances.preempted is kept. `notice`: the machine is told (on_notice)."""
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            notice_s = vm.seconds("preemptionNoticeDuration") or 0.0
            if notice and vm.powered:
                self.later(self.on_notice, vm, notice_s)
            self.plan_for(vm, now + notice_s, lambda at: self.take_away(vm, at, record))
        self._settle()

    def preempt_when_created(self, zone: str, after_s: float, *, record: bool = True) -> None:
        """Every machine that is inserted there from now on is preempted so long after its insert (also while it is
        still being created), without a notice."""
        self._fated[zone] = (after_s, record)

    def host_error(self, name: str, zone: str | None = None) -> None:
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self.crash(vm, now)
        self._settle()

    def delete_by(self, user: str, name: str, zone: str | None = None) -> None:
        """A person deletes it."""
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self.delete(vm, user, now)
        self._settle()

    def stop_by(self, user: str, name: str, zone: str | None = None) -> None:
        vm, now = self.instance(name, zone), self.catch_up()
        with self.lock:
            self.stop(vm, user, now)
        self._settle()

    def guest_powered_off(self, name: str, zone: str | None = None, machine_id: str | None = None) -> None:
        """Nothing happens when that machine is gone, or `machine_id` is no longer the one of that name."""
        now = self.catch_up()
        with self.lock:
            for (in_zone, called), vm in list(self.instances.items()):
                if called == name and zone in (None, in_zone) and machine_id in (None, vm.id):
                    self.power_off(vm, now)
        self._settle()

    def append_serial(self, name: str, zone: str, data: bytes) -> None:
        """What the machine wrote to its first serial port. Nothing happens when it is gone."""
        with self.lock:
            vm = self.instances.get((zone, name))
            if vm is not None:
                vm.serial.append(data)

    def zombie(self, zone: str) -> None:
        """Machines that come up there from now on are RUNNING and boot nothing."""
        self.zombie_zones.add(zone)

    def add_instances(
        self,
        count: int,
        zones: Sequence[str] | None = None,
        labels: Callable[[int], dict[str, str]] | None = None,
    ) -> list[Instance]:
        """RUNNING machines in bulk, without operations, spread over the zones: vm-00000, vm-00001 ..."""
        now, places = self.catch_up(), list(zones or self.catalog.zones)
        made = []
        with self.lock:
            for at in range(count):
                resource: dict[str, Any] = {
                    "name": "vm-%05d" % at,
                    "machineType": "zones/%s/machineTypes/n1-standard-8" % places[at % len(places)],
                    "labels": labels(at) if labels else {},
                    "scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"},
                }
                vm = Instance(self.project, places[at % len(places)], self.new_id(), resource, now)
                vm.change(status="RUNNING", lastStartTimestamp=vm.body["creationTimestamp"])
                self.put(vm)
                made.append(vm)
        return made

    def create(self, zone: str, resource: dict[str, Any], user: str, now: float) -> Any:
        operation = super().create(zone, resource, user, now)
        if zone in self._fated:
            after_s, record = self._fated[zone]
            vm = self.instances[(zone, resource["name"])]
            self.plan_for(vm, now + after_s, lambda at: self.take_away(vm, at, record))
        return operation

    # answering

    def _settle(self) -> None:
        self.catch_up()
        if not self.live:
            self.call_hooks()

    def _tick_on(self) -> None:
        while not self.server.closing.wait(TICK_S):
            self.tick()

    def _answer(self, request: Request) -> Response:
        now = self.catch_up()
        query = {name: values[-1] for name, values in request.query.items()}
        with self.lock:
            self.requests.append((request.method, request.path, query))
            self.headers.append(request.headers)
            failure = self.failing(request, now)
        if failure is not None and not failure.lost:
            return carry_out(failure)
        if self.wait_s and request.path.endswith("/wait"):
            self._await(request)
        try:
            with self.lock:
                response = Response(200, self._routed(request, self.catch_up()))
        except ApiError as error:
            response = error.response()
        if not self.live:
            self.call_hooks()
        return response if failure is None else carry_out(failure)

    def _routed(self, request: Request, now: float) -> Any:
        self._authenticate(request)
        match = _PREFIX.fullmatch(request.path)
        if match is None:
            raise ApiError(404, "Not Found")
        function, at = find_route(request.method, match["rest"])
        at["project"] = match["project"]
        if match["project"] != self.project and "/images/" not in request.path:
            raise ApiError(404, "The resource 'projects/%s' was not found" % match["project"])
        mask = parse_mask(request.one("fields") or "*")
        check_request_id(request.one("requestId"))
        if at.get("zone") in self.unreachable_zones(now):
            raise ApiError(503, "The zone '%s' is currently unavailable." % at["zone"])
        known = self.replays.get((request.path, request.one("requestId") or ""))
        if known is not None:
            return apply_mask(self.operations.get(known.zone, known.name).body, mask)
        return apply_mask(function(self, request, at, now), mask)

    def _authenticate(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if token:
            self._tokens.add(token)
        if scheme != "Bearer" or not token or token in self._expired or not self.accept_token(token):
            raise ApiError(401, "Request had invalid authentication credentials.")

    def _await(self, request: Request) -> None:
        name = request.path.split("/")[-2]
        until = time.monotonic() + self.wait_s
        while time.monotonic() < until and not self.server.closing.is_set():
            self.catch_up()
            with self.lock:
                if all(one.status == "DONE" for one in self.operations.all() if one.name == name):
                    return
            self.server.closing.wait(TICK_S)

"""Compute Engine v1 on loopback: `ComputeFake().url` is an `api_endpoint` for the official client.

Time is `clock`'s; everything that is due happens at the next request, or at `tick()`. With live=True a thread ticks and
calls the hooks. Durations: `create_s delete_s stop_s fail_s queue_s preempted_stop_s`, to be set before they matter.
What a test may do (names are machine names; every `until` is epoch seconds of the clock):

  look      instance(name[, zone]) names() operations.all() requests count(method, pattern) clear_requests()
  hooks     on_running(vm) on_notice(vm, notice_s) on_stop(vm, hard) on_serial(vm, data);
            append_serial(name, zone, data) write the console;
            guest_powered_off(name, zone[, machine_id]) when the guest is off, by itself or after a request;
            hook_errors: what hooks raised
  ends      preempt(name, zone, record=, notice=, record_after_s=) host_error(name) delete_by(user, name)
            stop_by(user, name), and by itself: maxRunDuration (deferredDelete, deferredStop)
  capacity  stock_out(zone, shape, code, until, model) restock() quota(where, metric, limit, at_once) raise_quota()
            zombie(zone) preempt_when_created(zone, after_s)
  answers   fail_next(method, path pattern, status | (status, html) | Hang | Reset, times, for_s, lost=)
            storm(status, for_s) refuse(path part, status, reason) calm() expire_tokens() overlapping_delete
            forget_requests() serial_of_stopped page_rows false_404(name, until)
            unreachable(zone) reachable(zone) unreachable_form
  world     catalog (zones, machine_types, absent, images, disks, quotas), advice,
            fill(resources) add_instances(count, zones, labels)

`lost=True`: carried out, and the response fails: Reset = it is lost, Hang = the insert hangs but the VM appears.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.cloud import compute_images, compute_places  # noqa: F401  their routes are known once they are imported
from tests.cloud.compute_advice import Advice
from tests.cloud.compute_controls import Controls
from tests.cloud.compute_errors import ApiError
from tests.cloud.compute_faults import carry_out
from tests.cloud.compute_mask import apply_mask, parse_mask
from tests.cloud.compute_routes import find_route
from tests.cloud.compute_rules import check_request_id
from tests.cloud.web import Request, Response, Watch, WebServer

_PREFIX = re.compile(r"/compute/v1/projects/(?P<project>[^/]+)/?(?P<rest>.*)")
TICK_S = 0.02


class ComputeFake(Controls):
    """`accept_token`: is this bearer token good?
    `overlapping_delete`: status and reason of a second DELETE while the first runs; None = accepted.
    `requests`: all requests, in order."""

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
        self.page_rows = 500  # at most, whatever the request says
        self.advice = Advice(self.catalog)
        self.requests: list[Request] = []
        self.custom: dict[str, dict[str, Any]] = {}  # images of this project, by name
        self.image_operations: dict[str, dict[str, Any]] = {}  # by request id
        self.image_s = 60.0
        self.on_image: Callable[[str, Any], None] | None = None
        self._tokens: set[str] = set()
        self._expired: set[str] = set()
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

    # the requests

    def count(self, method: str | None = None, pattern: str = "") -> int:
        """Requests so far whose path matches (re.search)."""
        return sum(method in (None, one.method) and bool(re.search(pattern, one.path)) for one in self.requests)

    def clear_requests(self) -> None:
        with self.lock:
            self.requests = []

    def expire_tokens(self) -> None:
        """No token that was used until now is good any more: 401."""
        with self.lock:
            self._expired |= self._tokens

    # answering

    def _tick_on(self) -> None:
        while not self.server.closing.wait(TICK_S):
            self.tick()

    def _answer(self, request: Request) -> Response:
        now = self.catch_up()
        with self.lock:
            self.requests.append(request)
            failure = self.failing(request, now)
        if failure is not None and not failure.lost:
            return carry_out(failure)
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
        _check_body(request)
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


def _check_body(request: Request) -> None:
    try:
        request.json()
    except ValueError as error:
        raise ApiError(400, "Parse Error", "parseError") from error

"""Faults on request: no capacity, no quota, responses that fail, hang or get lost, places that cannot be reached.

Every order ends by itself: after so many times, or at a moment of the fake's clock (`until`, `for_s`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.cloud.compute_catalog import region_of
from tests.cloud.compute_errors import REASONS, ApiError, OperationFailure
from tests.cloud.compute_instances import Instance
from tests.cloud.compute_life import Life
from tests.cloud.web import Request, Response

_MESSAGES = {
    403: "Rate Limit Exceeded",
    429: "Rate Limit Exceeded",
    500: "Internal error encountered.",
    503: "The service is currently unavailable.",
}
_ALL_REGIONS = "GPUS_ALL_REGIONS"
How = int | tuple[int, bytes] | type[Exception]


@dataclass
class Shortage:
    """`shape`: a machine or accelerator type, None = all. `model`: SPOT, STANDARD or None = both."""

    zone: str
    code: str
    shape: str | None
    model: str | None
    until: float | None


@dataclass
class Limit:
    """`where`: a region, a zone or `*`. `at_once`: HTTP 403 and no operation."""

    where: str
    metric: str
    limit: float
    at_once: bool
    code: str
    until: float | None


@dataclass
class Failure:
    """`lost`: the request is carried out first, and only then fails. `times`: None = until `until`."""

    method: str | None
    pattern: re.Pattern[str]
    how: How
    reason: str | None
    times: int | None
    until: float | None
    lost: bool


class Faults(Life):
    def __init__(self, clock: Callable[[], float], project: str, live: bool) -> None:
        super().__init__(clock, project, live)
        self.unreachable_form = "zones/{zone}"  # of each entry of `unreachables`; {project} may be in it too
        self._shortages: list[Shortage] = []
        self._limits: list[Limit] = []
        self._failures: list[Failure] = []
        self._unreachable: dict[str, tuple[float | None, frozenset[str]]] = {}
        self._denied: dict[str, float] = {}

    # control

    def stock_out(
        self,
        zone: str,
        shape: str | None = None,
        code: str = "ZONE_RESOURCE_POOL_EXHAUSTED",
        until: float | None = None,
        model: str | None = None,
    ) -> None:
        """Inserts there end without a machine. `zone`: `*` = all. `until`: epoch seconds."""
        self._shortages.append(Shortage(zone, code, shape, model, until))

    def restock(self, zone: str | None = None) -> None:
        self._shortages = [one for one in self._shortages if zone not in (None, one.zone)]

    def quota(
        self,
        where: str = "*",
        metric: str = _ALL_REGIONS,
        limit: float = 0.0,
        at_once: bool = False,
        code: str = "QUOTA_EXCEEDED",
        until: float | None = None,
    ) -> None:
        """Inserts there are over the quota of that metric (`PREEMPTIBLE_NVIDIA_T4_GPUS`: of the region)."""
        self._limits.append(Limit(where, metric, limit, at_once, code, until))

    def raise_quota(self) -> None:
        self._limits.clear()

    def fail_next(
        self,
        method: str | None,
        pattern: str,
        how: How,
        times: int | None = 1,
        for_s: float | None = None,
        *,
        reason: str | None = None,
        lost: bool = False,
    ) -> None:
        """Requests whose path matches `pattern` (re.search). `how`: an HTTP status, web.Hang, web.Reset, or a status
        with a body that is not JSON, as from a proxy. `for_s`: all requests of that time, however many."""
        until = None if for_s is None else self.clock() + for_s
        left = times if for_s is None else None
        self._failures.append(Failure(method, re.compile(pattern), how, reason, left, until, lost))

    def storm(self, status: int = 503, for_s: float = 600.0, method: str | None = None) -> None:
        """Every request fails for a time."""
        self.fail_next(method, "", status, for_s=for_s)

    def refuse(self, path_part: str, status: int, reason: str | None = None) -> None:
        """Requests with that in their path are refused until `calm`."""
        self.fail_next(None, re.escape(path_part), status, times=None, reason=reason)

    def forget_requests(self) -> None:
        """No request id is remembered any more: how long Google keeps them is not documented."""
        with self.lock:
            self.replays.clear()

    def calm(self) -> None:
        """No failure that was ordered is left."""
        self._failures.clear()

    def unreachable(
        self, zone: str, until: float | None = None, said_by: tuple[str, ...] = ("unreachables", "warning")
    ) -> None:
        """Left out of aggregated lists, which say so in these ways; calls into the zone are 503."""
        with self.lock:
            self._unreachable[zone] = (until, frozenset(said_by))

    def reachable(self, zone: str) -> None:
        with self.lock:
            self._unreachable.pop(zone, None)

    def false_404(self, name: str, until: float) -> None:
        """GETs of this machine say that it does not exist, while lists still show it."""
        self._denied[name] = until

    # judging

    def judge(self, vm: Instance, now: float) -> OperationFailure | None:
        limit = self._limit(vm.zone, now, at_once=False)
        if limit is not None:
            return _over_quota(limit, vm.zone)
        for one in self._shortages:
            if one.zone in ("*", vm.zone) and _open(one.until, now) and self._of_shape(one, vm):
                return _stock_out(one.code, vm)
        return None

    def refuse_at_once(self, zone: str, now: float) -> None:
        """Raises ApiError (403 quotaExceeded)."""
        limit = self._limit(zone, now, at_once=True)
        if limit is not None:
            raise ApiError(403, _over_quota(limit, zone).message, "quotaExceeded")

    def unreachable_zones(self, now: float) -> Mapping[str, frozenset[str]]:
        return {zone: said_by for zone, (until, said_by) in self._unreachable.items() if _open(until, now)}

    def denied(self, name: str, now: float) -> bool:
        return now < self._denied.get(name, 0.0)

    def failing(self, request: Request, now: float) -> Failure | None:
        """The first order that fits; it is used up by one."""
        for one in self._failures:
            fits = one.method in (None, request.method) and one.pattern.search(request.path)
            if fits and one.times != 0 and _open(one.until, now):
                if one.times is not None:
                    one.times -= 1
                return one
        return None

    def _of_shape(self, shortage: Shortage, vm: Instance) -> bool:
        model = "SPOT" if vm.spot else "STANDARD"
        bundled = self.catalog.machine_types.get(vm.machine_type, {}).get("accelerators", [])
        cards = (*vm.accelerators, *(one["guestAcceleratorType"] for one in bundled))
        return shortage.shape in (None, vm.machine_type, *cards) and shortage.model in (None, model)

    def _limit(self, zone: str, now: float, *, at_once: bool) -> Limit | None:
        for one in self._limits:
            here = one.where in ("*", zone, region_of(zone))
            if here and one.at_once == at_once and _open(one.until, now):
                return one
        return None


def carry_out(failure: Failure) -> Response:
    """Raises Hang, Reset."""
    if isinstance(failure.how, tuple):
        status, body = failure.how
        return Response(status, body, {"Content-Type": "text/html; charset=UTF-8"})
    if isinstance(failure.how, int):
        message = _MESSAGES.get(failure.how, "Injected: %s" % REASONS.get(failure.how, "failure"))
        return ApiError(failure.how, message, failure.reason).response()
    raise failure.how


def _open(until: float | None, now: float) -> bool:
    return until is None or now < until


def _stock_out(code: str, vm: Instance) -> OperationFailure:
    place = "projects/%s/zones/%s" % (vm.project, vm.zone)
    if code == "RESOURCE_NOT_FOUND":  # its machine type is no longer offered there
        return OperationFailure(code, "The resource '%s/machineTypes/%s' was not found" % (place, vm.machine_type), 404)
    message = "The zone '%s' does not have enough resources available to fulfill the request." % place
    details: list[Mapping[str, Any]] | None = None
    if code.endswith("_WITH_DETAILS"):
        message += "  '(resource type:compute)'."
        attached = ",".join("%s:%d" % pair for pair in vm.accelerators.items())
        about = {"zone": vm.zone, "vmType": vm.machine_type, "attachment": attached}
        domain = {"reason": "resource_availability", "domain": "compute.googleapis.com", "metadatas": about}
        details = [{"errorInfo": domain}]
    elif code.startswith("REGION"):
        message = message.replace(
            "The zone '%s'" % place, "The region 'projects/%s/regions/%s'" % (vm.project, region_of(vm.zone))
        )
    return OperationFailure(code, message, 503, details)


def _over_quota(limit: Limit, zone: str) -> OperationFailure:
    everywhere = limit.metric.endswith("_ALL_REGIONS")
    where = "globally" if everywhere else "in region %s" % region_of(zone)
    name = limit.metric.replace("_", "-") + ("-per-project" if everywhere else "-per-project-region")
    info = {
        "metricName": "compute.googleapis.com/" + limit.metric.lower(),
        "limitName": name,
        "limit": limit.limit,
        "dimensions": {"global": "global"} if everywhere else {"region": region_of(zone)},
    }
    message = "Quota '%s' exceeded.  Limit: %.1f %s." % (limit.metric, limit.limit, where)
    return OperationFailure(limit.code, message, 403, [{"quotaInfo": info}])

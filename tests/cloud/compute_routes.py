"""The method of the API for each request, and its response. Names are those of the API reference."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tests.cloud.compute_catalog import known_zone
from tests.cloud.compute_errors import GOOGLE, ApiError, invalid
from tests.cloud.compute_instances import fingerprint
from tests.cloud.compute_pages import Row, newest_first, page
from tests.cloud.compute_rules import check_insert, check_labels
from tests.cloud.web import Request

if TYPE_CHECKING:
    from tests.cloud.compute import ComputeFake
    from tests.cloud.compute_instances import Instance
    from tests.cloud.compute_operations import Operation

Answer = dict[str, Any]
Route = Callable[["ComputeFake", Request, dict[str, str], float], Answer]
_ROUTES: list[tuple[str, re.Pattern[str], Route]] = []


def route(method: str, template: str) -> Callable[[Route], Route]:
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))

    def add(function: Route) -> Route:
        _ROUTES.append((method, pattern, function))
        return function

    return add


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """`path`: after projects/P, without a leading slash. Raises ApiError (404)."""
    for known, pattern, function in _ROUTES:
        match = pattern.fullmatch(path)
        if match and known == method:
            return function, match.groupdict()
    raise ApiError(404, "Not Found: %s %s" % (method, path))


# instances


@route("POST", "zones/{zone}/instances")
def insert(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    resource = request.json()
    check_insert(fake.catalog, at["zone"], resource)
    if (at["zone"], resource["name"]) in fake.instances:
        link = "projects/%s/zones/%s/instances/%s" % (fake.project, at["zone"], resource["name"])
        raise ApiError(409, "The resource '%s' already exists" % link)
    fake.refuse_at_once(at["zone"], now)
    return _begun(fake, request, fake.create(at["zone"], resource, fake.account, now))


@route("GET", "zones/{zone}/instances/{name}")
def get(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    vm = _machine(fake, at)
    if fake.denied(vm.name, now):
        raise ApiError(404, "The resource '%s' was not found" % vm.link)
    return vm.body


@route("DELETE", "zones/{zone}/instances/{name}")
def delete(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    vm = _machine(fake, at)
    if vm.body.get("deletionProtection"):
        why = "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'."
        raise ApiError(400, why, "invalidResourceUsage")
    if vm.delete_operation is not None and fake.overlapping_delete is not None:
        status, reason = fake.overlapping_delete
        raise ApiError(status, "The resource '%s' is not ready" % vm.link, reason)
    return _begun(fake, request, fake.delete(vm, fake.account, now))


@route("POST", "zones/{zone}/instances/{name}/stop")
def stop(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return _begun(fake, request, fake.stop(_machine(fake, at), fake.account, now))


@route("POST", "zones/{zone}/instances/{name}/start")
def start(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return _begun(fake, request, fake.start(_machine(fake, at), fake.account, now))


@route("POST", "zones/{zone}/instances/{name}/simulateMaintenanceEvent")
def simulate_maintenance(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    """A Spot VM is preempted: noticed, stopped, and on record."""
    vm = _machine(fake, at)
    if vm.status != "RUNNING":
        raise ApiError(400, "The resource '%s' is not ready" % vm.link, "resourceNotReady")
    return _begun(fake, request, fake.simulate(vm, fake.account, now))


@route("POST", "zones/{zone}/instances/{name}/setLabels")
def set_labels(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    vm, given = _machine(fake, at), request.json()
    _unchanged(given.get("labelFingerprint"), vm.body["labelFingerprint"])
    check_labels(given.get("labels", {}))
    vm.change(labels=given.get("labels", {}), labelFingerprint=fingerprint(given.get("labels", {})))
    return _begun(fake, request, _at_once(fake, "setLabels", vm, now))


@route("POST", "zones/{zone}/instances/{name}/setMetadata")
def set_metadata(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    vm, given = _machine(fake, at), request.json()
    _unchanged(given.get("fingerprint"), vm.body["metadata"]["fingerprint"])
    items = {"items": given.get("items", [])}
    vm.change(metadata={"kind": "compute#metadata", "fingerprint": fingerprint(items), **items})
    return _begun(fake, request, _at_once(fake, "setMetadata", vm, now))


@route("GET", "zones/{zone}/instances/{name}/serialPort")
def serial_port(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    vm = _machine(fake, at)
    if vm.status not in ("RUNNING", "STOPPING") and not fake.serial_of_stopped:
        raise ApiError(400, "The resource '%s' is not ready" % vm.link, "resourceNotReady")
    start, data = vm.serial.read(_whole_number(request, "start"))
    return {
        "kind": "compute#serialPortOutput",
        "selfLink": "%s/%s/serialPort" % (GOOGLE, vm.link),
        "contents": data.decode("utf-8", "replace"),
        "start": str(start),
        "next": str(start + len(data)),
    }


@route("GET", "zones/{zone}/instances")
def list_instances(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    known_zone(fake.catalog, at["zone"])
    rows, token = page(fake.rows(newest_first(request), at["zone"]), request, fake.page_rows)
    return _list("compute#instanceList", "zones/%s/instances" % at["zone"], fake, rows, token)


@route("GET", "aggregated/instances")
def aggregated_instances(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return _aggregated(fake, request, now, fake.rows(newest_first(request)), "instances", "instance")


# operations


@route("GET", "zones/{zone}/operations/{operation}")
def get_operation(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    return fake.operations.get(at["zone"], at["operation"]).body


@route("GET", "zones/{zone}/operations")
def list_operations(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    known_zone(fake.catalog, at["zone"])
    rows, token = page(fake.operations.rows(newest_first(request), at["zone"]), request, fake.page_rows)
    return _list("compute#operationList", "zones/%s/operations" % at["zone"], fake, rows, token)


@route("GET", "aggregated/operations")
def aggregated_operations(fake: ComputeFake, request: Request, at: dict[str, str], now: float) -> Answer:
    rows = fake.operations.rows(newest_first(request))
    return _aggregated(fake, request, now, rows, "operations", "operation")


# the parts of responses


def _machine(fake: ComputeFake, at: dict[str, str]) -> Instance:
    known_zone(fake.catalog, at["zone"])
    return fake.existing(at["zone"], at["name"])


def _begun(fake: ComputeFake, request: Request, operation: Operation) -> Answer:
    request_id = request.one("requestId")
    if request_id is not None:
        operation = fake.operations.change(operation, client_operation_id=request_id)
        fake.replays[(request.path, request_id)] = operation
    return operation.body


def _at_once(fake: ComputeFake, kind: str, vm: Instance, now: float) -> Operation:
    operation = fake.begin(kind, vm, fake.account, now)
    fake.end(operation, now)
    return operation


def _unchanged(given: str | None, current: str) -> None:
    if given != current:
        raise ApiError(412, "Supplied fingerprint does not match current metadata fingerprint.")


def _whole_number(request: Request, name: str) -> int:
    text = request.one(name) or "0"
    if not text.removeprefix("-").isdigit():
        raise invalid(name, text, "Not a number.")
    return int(text)


def _list(kind: str, path: str, fake: ComputeFake, rows: Sequence[Row], token: str | None) -> Answer:
    made: Answer = {
        "kind": kind,
        "id": "projects/%s/%s" % (fake.project, path),
        "selfLink": "%s/projects/%s/%s" % (GOOGLE, fake.project, path),
    }
    if rows:
        made["items"] = [row.body for row in rows]
    if token is not None:
        made["nextPageToken"] = token
    return made


def _aggregated(fake: ComputeFake, request: Request, now: float, rows: Sequence[Any], inner: str, kind: str) -> Answer:
    """Every zone is a scope: with its rows, or with a warning that says why there are none."""
    away = fake.unreachable_zones(now)
    here = [row for row in rows if row[1].zone not in away] if away else rows
    chosen, token = page(here, request, fake.page_rows)
    path = "aggregated/" + inner
    made = _list("compute#%sAggregatedList" % kind, path, fake, [], token)
    items: dict[str, Answer] = {}
    for row in chosen:
        items.setdefault("zones/" + row.zone, {inner: []})[inner].append(row.body)  # type: ignore[attr-defined]
    for zone in fake.catalog.zones:
        scope = "zones/" + zone
        if zone in away and "warning" in away[zone]:
            items[scope] = _warning("UNREACHABLE", scope, "The scope '%s' could not be reached." % scope)
        elif zone not in away and scope not in items:
            items[scope] = _warning(
                "NO_RESULTS_ON_PAGE", scope, "There are no results for scope '%s' on this page." % scope
            )
    made["items"] = items
    told = [zone for zone, said_by in away.items() if "unreachables" in said_by]
    if told:
        made["unreachables"] = [fake.unreachable_form.format(zone=zone, project=fake.project) for zone in told]
    return made


def _warning(code: str, scope: str, message: str) -> Answer:
    return {"warning": {"code": code, "message": message, "data": [{"key": "scope", "value": scope}]}}

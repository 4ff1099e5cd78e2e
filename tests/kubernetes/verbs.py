"""What each verb of the API does: its checks in the order of the real server, then the change."""

from __future__ import annotations

import copy
import json
import secrets
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.cloud.web import Request
from tests.kubernetes import quotas, rules, schemas, selectors
from tests.kubernetes.defaults import fill
from tests.kubernetes.errors import ApiError, already_exists, bad_request, conflict, forbidden, invalid, not_found
from tests.kubernetes.kinds import JOB, POD, QUOTA, REVIEW, WORKLOAD, Kind
from tests.kubernetes.objects import Object, Objects

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
POLICIES = ("Orphan", "Background", "Foreground")
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
OWN = ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "selfLink", "managedFields")


@dataclass(frozen=True)
class Target:
    """What a path names. `name` "" = the collection. `subresource` "" = the object itself."""

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""


class Verbs:
    """`fault(text)`: the test did what no client may do. `log(pod, container)`: the whole log; raises ApiError.
    `allowed(attributes)`: of an access review. `priorities`: PriorityClass -> value."""

    def __init__(
        self,
        objects: Objects,
        fault: Callable[[str], None],
        log: Callable[[Object, str], bytes],
        allowed: Callable[[Mapping[str, str]], bool],
    ) -> None:
        self.objects, self._fault, self._log, self._allowed = objects, fault, log, allowed
        self.priorities = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
        self.on_job: Callable[[Object], None] = lambda job: None  # a webhook that changes new Jobs
        self.on_workload: Callable[[Object], None] = lambda workload: None  # one that checks changes; raises ApiError

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, target: Target, request: Request) -> Object:
        return self._existing(target)

    def list(self, target: Target, request: Request) -> Object:
        kind = target.kind
        tests = []
        if text := request.one("labelSelector"):
            tests.append(selectors.by_labels(text))
        if text := request.one("fieldSelector"):
            tests.append(selectors.by_fields(kind, text))

        def chosen() -> list[Object]:
            present = self.objects.of(kind, target.namespace or None)
            return [resource for resource in present if all(test(resource) for test in tests)]

        page, metadata = self.objects.page(chosen, int(request.one("limit") or 0), request.one("continue") or "")
        items = [{name: part for name, part in item.items() if name not in ("kind", "apiVersion")} for item in page]
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata, "items": items}

    def log(self, target: Target, request: Request) -> bytes:
        pod = self._existing(target)
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = request.one("container") or (names[0] if len(names) == 1 else "")
        name = target.name
        if not container:
            text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
            raise bad_request(text)
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {name}")
        if "nodeName" not in pod["spec"]:
            raise bad_request(f"pod {name} does not have a host assigned")
        whole = self._log(pod, container)
        lines = request.one("tailLines")
        if lines is not None:
            kept = whole.splitlines(keepends=True)
            whole = b"".join(kept[-int(lines) :] if int(lines) else [])
        limit = request.one("limitBytes")
        if limit is not None and int(limit) < 1:
            raise ApiError(422, "Invalid", "limitBytes: Invalid value: must be greater than 0")
        return whole if limit is None else whole[: int(limit)]

    # --- creating -----------------------------------------------------------------------------------------------------

    def create(self, target: Target, request: Request) -> Object:
        resource = self._read(target, request)
        return self.admit(target, resource, stored=request.one("dryRun") != "All")

    def admit(self, target: Target, resource: Object, stored: bool = True) -> Object:
        """Also for controllers. Raises ApiError."""
        kind, metadata = target.kind, resource.setdefault("metadata", {})
        for name in OWN:
            metadata.pop(name, None)
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = f"{metadata['generateName']}{_suffix()}"
        if kind is REVIEW:
            attributes = resource["spec"].get("resourceAttributes") or {}
            return {**resource, "status": {"allowed": self._allowed(attributes)}}
        metadata["uid"] = str(uuid.uuid4())
        if kind is POD:
            self._prioritize(resource)
        if found := rules.causes(kind, resource):
            raise invalid(kind, metadata.get("name") or "", found)
        if kind is JOB:
            self.on_job(resource)
        fill(kind, resource)
        present = self.objects.of(kind, target.namespace)
        quotas.check(kind, resource, present, self.objects.of(QUOTA, target.namespace))
        if self.objects.find(kind, target.namespace, metadata["name"]) is not None:
            raise already_exists(kind, metadata["name"])
        if not stored:
            return {"apiVersion": kind.api_version, "kind": kind.kind, **resource}
        return self.objects.add(kind, target.namespace, resource)

    def _prioritize(self, pod: Object) -> None:
        name = pod["spec"].get("priorityClassName")
        if name and name not in self.priorities:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden(POD, pod["metadata"]["name"], why)
        pod["spec"]["priority"] = self.priorities[name] if name else 0

    def _read(self, target: Target, request: Request) -> Object:
        kind = target.kind
        if not (request.headers.get("content-type") or "").startswith("application/json"):
            raise ApiError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        try:
            resource: Object = json.loads(request.body)
        except ValueError as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from None
        if (resource.get("apiVersion"), resource.get("kind")) != (kind.api_version, kind.kind):
            text = f"the API version in the data ({resource.get('apiVersion')}, Kind={resource.get('kind')})"
            raise bad_request(f"{text} does not match the expected API version ({kind.api_version}, Kind={kind.kind})")
        given = resource.get("metadata", {}).get("namespace") or target.namespace
        if given != target.namespace:
            text = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(text)
        self._check(kind, resource)
        return resource

    def _check(self, kind: Kind, resource: Object) -> None:
        """A field that Kubernetes does not have, or of another type: also a fault of the test."""
        if problems := schemas.problems(resource):
            self._fault(f"{kind.kind} {resource.get('metadata', {}).get('name')}: {'; '.join(problems)}")
            text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
            raise bad_request(f"{text}: strict decoding error: {problems[0]}")

    # --- changing -----------------------------------------------------------------------------------------------------

    def patch(self, target: Target, request: Request) -> Object:
        old = self._existing(target)
        form = (request.headers.get("content-type") or "").partition(";")[0]
        change = json.loads(request.body)
        if form not in (MERGE, STRATEGIC) or not isinstance(change, dict):
            self._fault(f"a patch of {target.name} as {form}: this stand-in knows merge patches")
            raise ApiError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {form}")
        if form == STRATEGIC and (_has_list(change) or target.kind is WORKLOAD):
            self._fault(f"a strategic merge patch of {target.name} with a list, or of a custom resource")
        version = change.get("metadata", {}).get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(target.kind, target.name, MODIFIED)
        new = _merged(copy.deepcopy(old), change)
        for name in ("name", "namespace", "uid"):
            if new["metadata"].get(name) != old["metadata"].get(name):
                raise bad_request(f"the {name} of the object does not match the one in the request")
        new["status"] = old.get("status")
        if new["status"] is None:
            del new["status"]
        self._check_change(target, new, old)
        if new == old or request.one("dryRun") == "All":
            return new
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = new["metadata"].get("generation", 0) + 1
        old.clear()
        old.update(new)
        self.objects.touch(old)
        return old

    def _check_change(self, target: Target, new: Object, old: Object) -> None:
        self._check(target.kind, new)
        if found := rules.causes(target.kind, new, old):
            raise invalid(target.kind, target.name, found)
        if target.kind is WORKLOAD:
            self.on_workload(new)

    def delete(self, target: Target, request: Request) -> Object:
        resource = self._existing(target)
        options = self._options(request)
        metadata, kind = resource["metadata"], target.kind
        wanted = options.get("preconditions") or {}
        if wanted.get("uid") not in (None, metadata["uid"]):
            text = f"UID in precondition: {wanted['uid']}, UID in object meta: {metadata['uid']}"
            raise conflict(kind, target.name, f"Precondition failed: {text}")
        if wanted.get("resourceVersion") not in (None, metadata["resourceVersion"]):
            raise conflict(kind, target.name, MODIFIED)
        # batch/v1 keeps the pods of a Job unless the client says otherwise, for back compatibility.
        policy = options.get("propagationPolicy") or ("Orphan" if kind is JOB else "Background")
        if policy not in POLICIES:
            text = f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "{policy}"'
            raise ApiError(422, "Invalid", text)
        grace = options.get("gracePeriodSeconds")
        self.objects.delete(kind, resource, policy, None if grace is None else int(grace))
        if self.objects.find(kind, target.namespace, target.name) is not None:
            return resource
        details = {"name": target.name, "kind": kind.plural, "uid": metadata["uid"]}
        details |= {"group": kind.group} if kind.group else {}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _options(self, request: Request) -> Mapping[str, Any]:
        """The body counts, else the query: never both."""
        if not request.body:
            return {name: values[-1] for name, values in request.query.items()}
        options: Object = json.loads(request.body)
        options.setdefault("kind", "DeleteOptions")
        options.setdefault("apiVersion", "v1")
        if problems := schemas.problems(options):
            self._fault(f"DeleteOptions: {'; '.join(problems)}")
            raise bad_request(f"strict decoding error: {problems[0]}")
        if set(request.query) & {"propagationPolicy", "gracePeriodSeconds"}:
            self._fault("a delete has options in its body and in its query: the query is not read")
        return options

    def _existing(self, target: Target) -> Object:
        resource = self.objects.find(target.kind, target.namespace, target.name)
        if resource is None:
            raise not_found(target.kind, target.name)
        return resource


def _merged(value: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return change
    result = value if isinstance(value, dict) else {}
    for name, part in change.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), part)
    return result


def _has_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(_has_list, value.values())))


def _suffix() -> str:
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))

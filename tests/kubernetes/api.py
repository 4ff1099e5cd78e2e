"""The API server on loopback: routes, tokens, rights, what a test may break, and the checks of each exchange.

What no client may do (an unknown path, query parameter or field, an object of a wrong form on its way out) is answered
as Kubernetes answers it and is also a violation, which fails the test at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.cloud.web import Hang, Request, Reset, Response, WebServer
from tests.kubernetes import schemas
from tests.kubernetes.errors import ApiError, forbidden, unauthorized
from tests.kubernetes.kinds import KINDS, KUEUE, LOCAL_QUEUE, PARAMETERS, Kind
from tests.kubernetes.objects import Object, Objects
from tests.kubernetes.verbs import Target, Verbs

NAMESPACE, USER, TOKEN = "training", "system:serviceaccount:training:spot", "a-token-of-the-test"
MOST_VIOLATIONS = 20
# What the supervisor's account may do: the Role of its Helm chart (deploy/helm), in its namespace alone.
RIGHTS = frozenset({
    "create jobs.batch", "get jobs.batch", "list jobs.batch", "delete jobs.batch", "list pods", "get pods/log",
    "create configmaps", "create secrets", "list events", "list resourcequotas", "get persistentvolumeclaims",
    f"get localqueues.{KUEUE}", "patch jobs.batch", "patch pods",
})  # fmt: skip
BOOST_RIGHTS = frozenset({f"list workloads.{KUEUE}", f"patch workloads.{KUEUE}"})  # of that chart, on request
NODE_RIGHTS = frozenset({"get nodes", "list nodes"})  # of a ClusterRole, which a user may add
_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


@dataclass
class Failure:
    """Of the next requests. `how`: an error, Reset or Hang. `lost`: the request is carried out all the same."""

    method: str
    path: str
    how: ApiError | type[Exception]
    times: int
    lost: bool

    def hits(self, request: Request) -> bool:
        return self.times > 0 and request.method == self.method and bool(re.search(self.path, request.path))


class Api:
    """`rights`: `VERB PLURAL.GROUP[/SUBRESOURCE]`. `away`: nothing answers at this address. `kueue`: it is installed,
    and serves `kueue_versions`.
    `checks`: each object is compared with its schema. `requests`: all so far."""

    def __init__(self, objects: Objects, log: Callable[[Object, str], bytes]) -> None:
        self.objects = objects
        self.violations: list[str] = []
        self.requests: list[Request] = []
        self.rights = set(RIGHTS)
        self.token, self.away, self.kueue, self.checks = TOKEN, False, False, True
        self.kueue_versions: tuple[str, ...] = ("v1beta1", "v1beta2")
        self.namespaces = {NAMESPACE}
        self.verbs = Verbs(objects, self.fault, log, self._may)
        self._failures: list[Failure] = []
        self._checked: dict[str, str] = {}  # uid -> the version that was compared with its schema
        self.server = WebServer(self._answer)

    @property
    def url(self) -> str:
        return self.server.url

    def kubeconfig(self, namespace: str = NAMESPACE) -> str:
        """Its text; JSON is YAML. Over plain HTTP there is nothing to verify: to read the authorities of the computer
        takes 20 ms of CPU for each client."""
        server = {"server": self.url, "insecure-skip-tls-verify": True}
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "spot", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "spot", "namespace": namespace}}],
        })  # fmt: skip

    # --- what a test may do -------------------------------------------------------------------------------------------

    def fail_next(
        self, method: str, path: str, how: ApiError | type[Exception] = Reset, times: int = 1, lost: bool = False
    ) -> None:
        """`path`: searched in the path of a request."""
        self._failures.append(Failure(method, path, how, times, lost))

    def count(self, method: str, path: str = "") -> int:
        return sum(request.method == method and bool(re.search(path, request.path)) for request in self.requests)

    def fault(self, text: str) -> None:
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(text)

    # --- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Response:
        with self.objects.lock:
            self.requests.append(request)
            if self.away:
                raise Reset
            failure = next((each for each in self._failures if each.hits(request)), None)
            if failure is not None:
                failure.times -= 1
                if not failure.lost:
                    return self._fail(failure.how)
            try:
                response = self._respond(request)
            except ApiError as error:
                response = self._error(error)
            return response if failure is None else self._fail(failure.how)

    def _fail(self, how: ApiError | type[Exception]) -> Response:
        if isinstance(how, ApiError):
            return self._error(how)
        assert how in (Reset, Hang)
        raise how

    def _error(self, error: ApiError) -> Response:
        return Response(
            error.code, self._encoded(error.body()), {"Content-Type": "application/json", **error.headers()}
        )

    def _respond(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise unauthorized()
        known = self._discovery(request.path)
        if known is not None:
            return Response(200, self._encoded(known), {"Content-Type": "application/json"})
        target = self._target(request.path)
        if target is None:
            return _no_page()
        verb = self._verb(target, request)
        if verb is None:
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        self._check_parameters(verb, request)
        self._check_rights(verb, target)
        if verb == "log":
            return Response(200, self.verbs.log(target, request), {"Content-Type": "text/plain"})
        body = getattr(self.verbs, verb)(target, request)
        return Response(201 if verb == "create" else 200, self._encoded(body), {"Content-Type": "application/json"})

    def _target(self, path: str) -> Target | None:
        """None = there is no such path. Those of Kueue may be tried all the same: is it installed, in which version?"""
        served = tuple(f"/apis/{KUEUE}/{version}/" for version in self.kueue_versions)
        if path.startswith(f"/apis/{KUEUE}") and not (self.kueue and path.startswith(served)):
            return None
        match = _PATH.fullmatch(path)
        group = "" if match is None else match["group"] or ""
        version = "" if match is None else match["core"] or match["version"]
        version = LOCAL_QUEUE.version if group == KUEUE else version  # all its versions show the same metadata
        kind = None if match is None else _kind(group, version, match["plural"])
        if match is None or kind is None or (match["namespace"] and not kind.namespaced):
            self.fault(f"there is no path {path}")
            return None
        return Target(kind, match["namespace"] or "", match["name"] or "", match["subresource"] or "")

    def _verb(self, target: Target, request: Request) -> str | None:
        verb = _VERBS.get(request.method)
        if target.subresource:
            is_log = (target.kind.plural, target.subresource, verb) == ("pods", "log", "get")
            if not is_log:
                self.fault(f"{request.method} {request.path} is not a part of this stand-in")
            return "log" if is_log else None
        if verb == "get" and not target.name:
            verb = "list"
        named = verb not in ("list", "create")
        if verb not in target.kind.verbs or named != bool(target.name):
            self.fault(f"{request.method} {request.path} is not a part of this stand-in")
            return None
        if verb == "create" and target.kind.namespaced and not target.namespace:
            self.fault(f"an object of {target.kind.kind} is made without a namespace")
            return None
        return verb

    def _check_parameters(self, verb: str, request: Request) -> None:
        for name in request.query.keys() - PARAMETERS[verb]:
            self.fault(f"{request.method} {request.path} has no query parameter {name}")

    def _check_rights(self, verb: str, target: Target) -> None:
        kind = target.kind
        if kind.kind == "SelfSubjectAccessReview":
            return  # every account may ask
        word, what = ("get", "/log") if verb == "log" else (verb, "")
        has = f"{word} {kind.qualified}{what}" in self.rights
        if has and (not kind.namespaced or target.namespace in self.namespaces):
            return
        where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
        why = f'User "{USER}" cannot {word} resource "{kind.plural}{what}" in API group "{kind.group}" {where}'
        raise forbidden(kind, target.name, why)

    def _may(self, attributes: Mapping[str, str]) -> bool:
        """The answer of a SelfSubjectAccessReview."""
        group, sub = attributes.get("group") or "", attributes.get("subresource") or ""
        plural = attributes.get("resource") or ""
        kind = next((kind for kind in KINDS if (kind.group, kind.plural) == (group, plural)), None)
        what = f"{plural}.{group}" if group else plural
        has = f"{attributes.get('verb')} {what}{f'/{sub}' if sub else ''}" in self.rights
        is_here = attributes.get("namespace") in self.namespaces
        return has and (is_here or (kind is not None and not kind.namespaced))

    # --- discovery ----------------------------------------------------------------------------------------------------

    def _discovery(self, path: str) -> Object | None:
        if path == "/version":
            minor = schemas.MINOR.partition(".")[2]
            return {
                "major": "1", "minor": minor, "gitVersion": f"v{schemas.MINOR}.2", "gitCommit": "0" * 40,
                "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.24.4",
                "compiler": "gc", "platform": "linux/amd64",
            }  # fmt: skip
        groups = {kind.group: kind.version for kind in KINDS if kind.group and (kind.group != KUEUE or self.kueue)}
        if path == "/apis":
            each = [_group(group, version) for group, version in groups.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": each}
        match = re.fullmatch(r"/apis/([^/]+)(?:/([^/]+))?", path)
        if match is None or groups.get(match[1]) is None or match[2] not in (None, groups[match[1]]):
            return None
        if match[2] is None:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(match[1], groups[match[1]])}
        resources = [
            {"name": kind.plural, "singularName": kind.kind.lower(), "namespaced": kind.namespaced, "kind": kind.kind,
             "verbs": sorted(kind.verbs)}
            for kind in KINDS if kind.group == match[1]
        ]  # fmt: skip
        version = f"{match[1]}/{match[2]}"
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}

    # --- on the way out -----------------------------------------------------------------------------------------------

    def _encoded(self, body: Object) -> bytes:
        """Encoded under the lock: controllers change the same objects."""
        if self.checks:
            for resource in _objects_of(body):
                self._compare(resource)
        return json.dumps(body).encode()

    def _compare(self, resource: Object) -> None:
        metadata: Mapping[str, Any] = resource.get("metadata") or {}
        uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
        if "kind" not in resource or (uid and self._checked.get(uid) == version):
            return
        self._checked[uid] = version
        if problems := schemas.problems(resource):
            name = metadata.get("name", "")
            self.fault(f"the stand-in itself: {resource['kind']} {name} is not valid: {'; '.join(problems)}")


def _objects_of(body: Object) -> list[Object]:
    """A list is compared by its items, which have no kind of their own on the wire."""
    if not str(body.get("kind", "")).endswith("List") or "items" not in body:
        return [body]
    part = {"kind": body["kind"].removesuffix("List"), "apiVersion": body["apiVersion"]}
    return [{**part, **item} for item in body["items"]]


def _group(group: str, version: str) -> Object:
    each = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [each], "preferredVersion": each}


def _kind(group: str, version: str, plural: str) -> Kind | None:
    wanted = (group, version, plural)
    return next((kind for kind in KINDS if (kind.group, kind.version, kind.plural) == wanted), None)


def _no_page() -> Response:
    return Response(404, b"404 page not found\n", {"Content-Type": "text/plain; charset=utf-8"})

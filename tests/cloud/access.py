"""Who may do what in the tests' cloud: every call of every fake is held against the role files of deploy/terraform.

A call without its permission gets 403 in Google's words, as in a real project, and is a fault of the
test (`faults`), unless the test itself removed the permission (`withhold`). `used`: the needed permissions by account.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.cloud import rolefiles, storage_answers
from tests.cloud.compute_errors import ApiError
from tests.cloud.discovery import Found, Oracle
from tests.cloud.permissions import ACT_AS, BUCKET, PROGRAMS, Call, Need, needs
from tests.cloud.rolefiles import Grant
from tests.cloud.secretmanager import refusal
from tests.cloud.storage_objects import Refusal
from tests.cloud.web import Gate, Request, Response

MOST_FAULTS = 20
STAGING = "build-staging/"  # as in variables.tf; a test compares


@dataclass(frozen=True, order=True)
class Use:
    """A grant that was needed, and the method that needed it."""

    grant: Grant
    method: str


class Access:
    """`identify`: the account of an Authorization header; None = no account, and the fake itself responds with 401.
    `exists`: whether there is that object in that bucket."""

    def __init__(
        self,
        identify: Callable[[str], str | None] = lambda _: rolefiles.SUPERVISOR,
        exists: Callable[[str, str], bool] = lambda *_: False,
    ) -> None:
        self.faults: list[str] = []
        self.used: set[Use] = set()
        self._identify, self._exists = identify, exists
        self._granted = rolefiles.grants()
        self._withheld: set[tuple[str, str]] = set()
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def gate(self, service: str) -> Gate:
        """The check of the service's server before each response. `service`: as for an Oracle, or registry."""
        find = _registry_method if service == "registry" else Oracle(service).find

        def gate(request: Request) -> Response | None:
            found = find(request)
            header = request.headers.get("authorization", "")
            identity = self._tokens.get(header) or self._identify(header)
            if identity is None and service == "registry" and not header:
                identity = rolefiles.SUPERVISOR  # only Google's own registries are sent a token
            if found is None or identity is None:
                return None  # no such method, or an unknown token: the fake responds itself
            call = Call(found.method["id"], found.arguments, request, self._exists)
            missing = self._missing(identity, call)
            if missing is None and "x-goog-user-project" in request.headers:
                needed = Need("serviceusage.services.use")
                missing = None if self._judge(rolefiles.PERSON, call.method, needed) else needed.permission
            return None if missing is None else _REFUSALS.get(service, _flat)(request, missing)

        return gate

    def is_of(self, token: str, identity: str) -> None:
        """A token of a test: its account."""
        self._tokens[f"Bearer {token}"] = identity

    def holds(self, permission: str, identity: str = rolefiles.SUPERVISOR, where: str | None = None) -> bool:
        """`where` None: on anything."""
        return (identity, permission) not in self._withheld and any(
            (one.identity, one.permission) == (identity, permission) and where in (None, one.where)
            for one in self._granted
        )

    def withhold(self, permission: str, identity: str = rolefiles.SUPERVISOR) -> None:
        """As if a person had taken it away: 403 until `give_back`."""
        self._withheld.add((identity, permission))

    def give_back(self, permission: str, identity: str = rolefiles.SUPERVISOR) -> None:
        self._withheld.discard((identity, permission))

    @contextmanager
    def without(self, permission: str, identity: str = rolefiles.SUPERVISOR) -> Iterator[None]:
        self.withhold(permission, identity)
        yield
        self.give_back(permission, identity)

    def note(self, identity: str, program: str, *needed: Need) -> None:
        """What was done without a request to a fake, such as a pull by docker; judged as a call is. Without `needed`:
        what PROGRAMS says."""
        for need in needed or PROGRAMS[program]:
            self._judge(identity, program, need)

    def _missing(self, identity: str, call: Call) -> str | None:
        needed = needs(call)
        if needed is None:
            self._fault(f"{call.method}: which permission it needs is not told in tests/cloud/permissions.py")
            return call.method
        missing = [need.permission for need in needed if not self._judge(identity, call.method, need)]
        return missing[0] if missing else None

    def _judge(self, identity: str, method: str, need: Need) -> bool:
        grant = Grant(identity, need.permission, need.where)
        if grant not in self._granted and need.where == BUCKET and need.name.startswith(STAGING):
            grant = Grant(identity, need.permission, "staging")
        if (identity, need.permission) in self._withheld:
            return False
        if grant not in self._granted:
            self._fault(f"{method} by {identity} needs {need.permission} on {need.where}: not in deploy/terraform")
            return False
        with self._lock:
            self.used.add(Use(grant, method))
        return True

    def _fault(self, text: str) -> None:
        with self._lock:
            if text not in self.faults and len(self.faults) < MOST_FAULTS:
                self.faults.append(text)


def _registry_method(request: Request) -> Found:
    """Registries have no discovery document."""
    reads = "registry.manifests.get" if request.method in ("GET", "HEAD") else "registry.upload"
    return Found({"id": "registry.token" if request.path == "/token" else reads}, {}, "plain")


def _compute(request: Request, permission: str) -> Response:
    if permission == ACT_AS:
        account = (request.json() or {}).get("serviceAccounts", [{}])[0].get("email", "")
        text = f"The user does not have access to service account '{account}'. Ask a project owner to grant you "
        return ApiError(403, text + "the iam.serviceAccountUser role on the service account", "forbidden").response()
    resource = request.path.partition("/compute/v1/")[2]
    return ApiError(403, f"Required '{permission}' permission for '{resource}'", "forbidden").response()


def _storage(request: Request, permission: str) -> Response:
    text = (
        f"The caller does not have {permission} access to the Google Cloud Storage object. "
        f"Permission '{permission}' denied on resource (or it may not exist)."
    )
    return storage_answers.error(Refusal(403, "forbidden", text), request)


def _registry(request: Request, permission: str) -> Response:
    text = f'Permission "{permission}" denied on resource (or it may not exist)'
    return Response(403, {"errors": [{"code": "DENIED", "message": text}]})


def _flat(request: Request, permission: str) -> Response:
    text = f"Permission '{permission}' denied on resource '{request.path.lstrip('/')}' (or it may not exist)."
    return refusal(403, "PERMISSION_DENIED", text)


_REFUSALS = {"compute": _compute, "storage": _storage, "registry": _registry}

"""The metadata server of one machine: its own values, its account's token, and its preemption.

As documented: nothing without the header `Metadata-Flavor: Google` nor through a proxy, text for a value and JSON for
what is asked recursively (names in camelCase there, attributes as they are), an ETag with each answer, and
`wait_for_change`, which responds at once where `last_etag` is not the current one. A token is returned again until
five minutes before its end. With `instance=None` there is an account and a project, and no machine: for a supervisor.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.cloud.web import Request, Reset, Response, Watch, WebServer

ROOT = "/computeMetadata/v1"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_KEPT_S = 300.0
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_TEXT = {**_FLAVOR, "Content-Type": "application/text"}


class MetadataFake:
    """`instance`: id, name, zone (its short name) and optionally machine-type. `watch` sees every exchange.

    GCE_METADATA_HOST and GCE_METADATA_IP are both `host`.
    """

    def __init__(
        self,
        project: str = "p",
        instance: Mapping[str, str] | None = None,
        attributes: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
    ) -> None:
        self.project, self.numeric_project_id = project, "424242424242"
        # A supervisor has the identity that workloads on Kubernetes have: google-auth takes no other name of an account
        # without asking a server of Google's, outside this computer, where it may be used.
        robot = f"spot@{project}.iam.gserviceaccount.com"
        self.email = f"{project}.svc.id.goog" if instance is None else robot
        self.token_lifetime_s = 3599.0
        self.requests: list[str] = []  # requested paths, in order
        self.waiting = 0  # requests that wait for a change now
        self._instance = None if instance is None else dict(instance)
        self._attributes = dict(attributes or {})
        self._preempted = "FALSE"
        self._clock = clock
        self._changed = threading.Condition()
        self._tokens: dict[str, float] = {}  # token -> when it ends, epoch seconds
        self._issued = 0
        self._current = ""
        self.faults: list[tuple[str, Response | Exception]] = []  # that no request has met yet
        self.server = WebServer(self._answer, watch)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def host(self) -> str:
        return self.server.host

    def close(self) -> None:
        self.server.closing.set()
        with self._changed:
            self._changed.notify_all()
        self.server.close()

    def __enter__(self) -> MetadataFake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def environment(self) -> dict[str, str]:
        return {"GCE_METADATA_HOST": self.host, "GCE_METADATA_IP": self.host}

    # --- what happens to the machine and its account --------------------------------------------------------------

    def preempt(self) -> None:
        """The notice: instance/preempted is TRUE from now on."""
        with self._changed:
            self._preempted = "TRUE"
            self._changed.notify_all()

    def set_attribute(self, name: str, value: str | None) -> None:
        """None removes it."""
        with self._changed:
            if value is None:
                self._attributes.pop(name, None)
            else:
                self._attributes[name] = value
            self._changed.notify_all()

    def revoke(self) -> None:
        """No earlier token is valid; the next request gets a new one."""
        with self._changed:
            self._tokens.clear()
            self._current = ""

    def accepts(self, authorization: str | None) -> bool:
        """Whether a service should honour this Authorization header: a token of ours that has not ended."""
        with self._changed:
            ends = self._tokens.get((authorization or "").removeprefix("Bearer "))
            return (authorization or "").startswith("Bearer ") and ends is not None and self._clock() < ends

    @property
    def tokens_issued(self) -> int:
        return self._issued

    def fail(self, part: str, *answers: Response | Exception) -> None:
        """The next requests with `part` in their path get these instead: responses, Hang() or Reset()."""
        self.faults += [(part, answer) for answer in answers]

    # --- answering ------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Response:
        self.requests.append(request.path)
        fault = self._fault(request.path)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return fault
        if request.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in request.headers:
            return Response(403, b"Missing Metadata-Flavor:Google header.", {"Content-Type": "text/html"})
        if request.path in ("/", ""):
            return Response(200, b"computeMetadata/\n", _TEXT)
        if not (request.path + "/").startswith(ROOT + "/"):
            return _not_found()
        if request.one("wait_for_change") == "true":
            return self._waited(request)
        with self._changed:
            return self._found(request)

    def _fault(self, path: str) -> Response | Exception | None:
        for index, (part, answer) in enumerate(self.faults):
            if part in path:
                del self.faults[index]
                return answer
        return None

    def _waited(self, request: Request) -> Response:
        timeout = request.one("timeout_sec")
        until = None if timeout is None else time.monotonic() + float(timeout)
        with self._changed:
            first = self._found(request)
            known = request.one("last_etag") or first.headers.get("ETag")
            self.waiting += 1
            try:
                while (found := self._found(request)).headers.get("ETag") == known and found.status == 200:
                    left = None if until is None else until - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._changed.wait(left)
                    if self.server.closing.is_set():
                        raise Reset
            finally:
                self.waiting -= 1
            return found

    def _found(self, request: Request) -> Response:
        path = request.path[len(ROOT) :].strip("/")
        if path.startswith("instance/service-accounts/") and path.endswith("/token"):
            return self._token(path.split("/")[2], request)
        value: Any = self._tree()
        for part in path.split("/") if path else ():
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return _not_found()
        folder = isinstance(value, dict)
        if folder and not request.path.endswith("/"):
            return Response(301, None, {**_FLAVOR, "Location": request.raw_path + "/"})
        return _shown(value, request, in_attributes="/attributes" in request.path)

    def _tree(self) -> dict[str, Any]:
        account = {"aliases": ["default"], "email": self.email, "scopes": [SCOPE]}
        instance: dict[str, Any] = {"service-accounts": {"default": account, self.email: account}}
        if self._instance is not None:
            known = self._instance
            placed = f"projects/{self.numeric_project_id}"
            instance |= {
                "id": int(known["id"]),
                "name": known["name"],
                "hostname": f"{known['name']}.{known['zone']}.c.{self.project}.internal",
                "zone": f"{placed}/zones/{known['zone']}",
                "machine-type": f"{placed}/machineTypes/{known.get('machine-type', 'n1-standard-8')}",
                "attributes": self._attributes,
                "preempted": self._preempted,
            }
        project = {"project-id": self.project, "numeric-project-id": int(self.numeric_project_id)}
        return {
            "instance": instance,
            "project": {**project, "attributes": {}},
            "universe": {"universe-domain": "googleapis.com"},
        }

    def _token(self, account: str, request: Request) -> Response:
        if account not in ("default", self.email):
            return _not_found()
        now = self._clock()
        left_s = self._tokens.get(self._current, 0.0) - now
        if left_s < TOKEN_KEPT_S:
            self._issued += 1
            of = "" if self._instance is None else "%s-" % self._instance.get("id", "")
            self._current = f"ya29.fake-{of}{self._issued}"  # no two machines have the same
            left_s = self.token_lifetime_s
            self._tokens[self._current] = now + left_s
        body = {"access_token": self._current, "expires_in": int(left_s), "token_type": "Bearer"}
        return Response(200, json.dumps(body).encode(), {**_FLAVOR, "Content-Type": "application/json"})


def _shown(value: Any, request: Request, in_attributes: bool) -> Response:
    if request.one("recursive") == "true" or request.one("alt") == "json":
        text, kind = json.dumps(value if in_attributes else _camel(value)), "application/json"
    elif isinstance(value, dict):
        text = "".join(f"{name}/\n" if isinstance(under, dict) else f"{name}\n" for name, under in value.items())
        kind = "application/text"
    else:
        text = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        kind = "application/text"
    etag = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Response(200, text.encode(), {**_FLAVOR, "Content-Type": kind, "ETag": etag})


def _camel(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = {}
    for name, under in value.items():
        first, *others = name.split("-") if "@" not in name else [name]
        found[first + "".join(part.title() for part in others)] = under if name == "attributes" else _camel(under)
    return found


def _not_found() -> Response:
    return Response(404, b"<title>404. The page is not here</title>", {**_FLAVOR, "Content-Type": "text/html"})

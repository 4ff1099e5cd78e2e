"""Requests to the API of the cluster, as plain JSON: lists in pages, creates, deletes of one object by its UID, logs.

lightkube finds the cluster (the pod's own account, or a kubeconfig with its contexts, certificates and tokens) and
signs each request; login programs are in login.py. The requests themselves are made here: a delete needs the UID of its
object, a log its bytes, and a list that has become too old (410) begins again.

A request has one deadline for everything, the login program included. What has no clear response raises
ProviderUnavailable: after a create the object may exist.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervisor.domain.texts import clause
from supervisor.ports.provider import ProviderUnavailable, Responded

if TYPE_CHECKING:
    import httpx2

Json = dict[str, Any]
LIMIT_S, PER_TRY_S = 25.0, 10.0  # of a request with its login, of each wait for the network
PAGE = 500
ROUNDS = 3  # of a list whose pages become too old
MOST_PAGES = 1000
TEXT_CHARS = 600
MERGE_PATCH = "application/merge-patch+json"


class ApiError(Responded):
    """The API refused a request. `status`: of HTTP; `reason`: the API's word, such as AlreadyExists, "" = none."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the cluster responds with {status} {reason}: {message}".replace(" :", ":"))
        self.status, self.reason, self.message = status, reason, message

    @property
    def missing(self) -> bool:
        """The API itself says that the object does not exist. A 404 without its reason comes from a proxy."""
        return self.status == 404 and self.reason == "NotFound"

    @property
    def name_taken(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"


@dataclass(frozen=True, slots=True)
class Connection:
    """`http`: signs its requests, relative to the cluster's address. `namespace`: of the settings, else the context."""

    http: httpx2.Client
    namespace: str


def connection(kubeconfig: str, context: str, namespace: str) -> Connection:
    """By the settings; reads files, and sends no request. Raises what lightkube and its libraries raise."""
    import httpx2
    from lightkube.config.client_adapter import Client, ConnectionParams, ExecAuth
    from lightkube.config.kubeconfig import KubeConfig

    from supervisor.providers.kubernetes.login import Login

    config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
    chosen = config.get(context or None)
    if chosen is None or chosen.user is None:
        raise ValueError("its context has no user")
    http = Client(chosen, ConnectionParams(timeout=httpx2.Timeout(PER_TRY_S)))
    if chosen.user.exec is not None and isinstance(http.auth, ExecAuth):
        http.auth = Login(chosen.user.exec)
    return Connection(http, namespace or chosen.namespace)


class Api:
    """`connect`: opens the connection with the first request, and again after the cluster refused its credentials.
    `keep_place`: writes down, before a launch, where it leads; raises ProviderUnavailable. Safe to use from every
    thread."""

    def __init__(
        self, connect: Callable[[], Connection], limit_s: float = LIMIT_S, keep_place: Callable[[], None] = lambda: None
    ) -> None:
        self._connect, self._limit_s, self.keep_place = connect, limit_s, keep_place
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def namespace(self) -> str:
        """Raises ProviderUnavailable where the configuration cannot be read."""
        return self._connected().namespace

    def path(self, plural: str, name: str = "", group: str = "", more: str = "") -> str:
        """Of objects in the namespace. `group`: with its version, "" = the core's."""
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join(part for part in (f"{root}/namespaces/{self.namespace}/{plural}", name, more) if part)

    def jobs(self, name: str = "") -> str:
        return self.path("jobs", name, "batch/v1")

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Json:
        return self._json("GET", path, params=params)

    def find(self, path: str) -> Json | None:
        """None = the API says that there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.missing:
                return None
            raise

    def items(self, path: str, selector: str = "", fields: str = "") -> list[Json]:
        """All pages of a list. One that has become too old begins again: its pages are of one moment."""
        for _ in range(ROUNDS):
            try:
                return self._pages(path, selector, fields)
            except ApiError as error:
                if error.status != 410:
                    raise
        raise ProviderUnavailable("the list of the cluster becomes too old before it is read to its end")

    def create(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._json("POST", path, body=body)

    def patch(self, path: str, metadata: Mapping[str, Mapping[str, str]], is_dry_run: bool = False) -> None:
        """Set these labels and annotations. `is_dry_run`: checked like a patch, and not stored."""
        self._json("PATCH", path, params={"dryRun": "All"} if is_dry_run else None, body={"metadata": metadata})

    def delete(self, path: str, uid: str) -> None:
        """The object with this UID, after everything that belongs to it. One that is gone, or has another UID, is
        success."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        try:
            self._json("DELETE", path, body=body)
        except ApiError as error:
            if not (error.missing or (error.status == 409 and error.reason == "Conflict")):
                raise

    def content(self, path: str, params: Mapping[str, str | int]) -> bytes:
        """Of a log."""
        return self._sent("GET", path, params=params)

    def close(self) -> None:
        with self._lock:
            connected, self._connection = self._connection, None
        if connected is not None:
            connected.http.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _pages(self, path: str, selector: str, fields: str) -> list[Json]:
        params: dict[str, str | int] = {"limit": PAGE}
        params |= {"labelSelector": selector} if selector else {}
        params |= {"fieldSelector": fields} if fields else {}
        items: list[Json] = []
        for _ in range(MOST_PAGES):
            page = self.get(path, params)
            part = page.get("items")
            if not isinstance(part, list):
                raise Responded(f"the cluster's list of {path.rpartition('/')[2]} has no items")
            items += part
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return items
            params["continue"] = token
        raise Responded(f"the cluster's list of {path.rpartition('/')[2]} has no end")

    def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Json:
        content = self._sent(method, path, params=params, body=body)
        try:
            value = json.loads(content)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Responded(f"the cluster's response to {method} {path} is not an object of JSON")
        return value

    def _sent(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The content of a good response."""

        def send() -> httpx2.Response:
            content = None if body is None else json.dumps(body).encode()
            headers = {"Accept": "application/json, */*"}
            if body is not None:
                headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
            http = self._connected().http
            return http.request(method, path, params=dict(params or {}), content=content, headers=headers)

        response: httpx2.Response = within(self._limit_s, send, f"{method} {path}")
        if response.status_code == 401:
            self.close()  # the next request reads the credentials again
        if not response.is_success:
            raise error_of(response.status_code, response.content)
        return response.content

    def _connected(self) -> Connection:
        """Raises ProviderUnavailable."""
        with self._lock:
            if self._connection is None:
                try:
                    self._connection = self._connect()
                except Exception as error:  # noqa: BLE001 - of lightkube and its libraries; its words are passed on
                    raise ProviderUnavailable(f"the kubeconfig cannot be used: {_words(error)}") from None
            return self._connection


def within(limit_s: float, call: Callable[[], Any], what: str) -> Any:
    """The result of the call, in a thread of its own: a login program may hang, and a response may drip. Raises
    ProviderUnavailable for every error of the network or of the login."""
    results: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((call(), None))
        except Exception as error:  # noqa: BLE001 - raised again below
            results.put((None, error))

    threading.Thread(target=work, name="kubernetes", daemon=True).start()
    try:
        value, error = results.get(timeout=limit_s)
    except queue.Empty:
        raise ProviderUnavailable(f"the cluster has no response to {what} within {limit_s:g} s") from None
    if isinstance(error, ProviderUnavailable):
        raise error
    if error is not None:
        raise ProviderUnavailable(f"the cluster does not respond to {what}: {_words(error)}") from error
    return value


def _words(error: Exception) -> str:
    """In one line. An error of YAML shows the line of the file, which may have a token, so only its place is said."""
    mark = getattr(error, "problem_mark", None)
    text = " ".join(str(error).split())[:TEXT_CHARS] if mark is None else f"line {mark.line + 1} is not YAML"
    return f"{type(error).__name__}: {clause(text)}" if text else type(error).__name__


def error_of(status: int, content: bytes) -> ApiError:
    """Of the Status object that the API sends, or of whatever a proxy sends."""
    reason, message = "", ""
    with suppress(ValueError):
        value = json.loads(content)
        if isinstance(value, dict) and value.get("kind") == "Status":
            reason, message = str(value.get("reason") or ""), str(value.get("message") or "")
    if not message:
        message = content[:TEXT_CHARS].decode(errors="replace")
    return ApiError(status, reason, clause(" ".join(message.split())[:TEXT_CHARS]) or "no message")


def own(item: Mapping[str, Any], *keys: str) -> Any:
    """A value below these keys; None where one of them is missing."""
    value: Any = item
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def rows(item: Mapping[str, Any], *keys: str) -> Sequence[Json]:
    """A list of objects below these keys; empty where there is none."""
    value = own(item, *keys)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []

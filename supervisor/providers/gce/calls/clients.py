"""The client of the Compute API, made of two clients.

`google-cloud-compute` (official.py) creates and deletes machines. Its import takes 0.4 s and 58 MB, so the first
machine loads it: a supervisor without runs does without it. What is read comes by the session of google-auth and plain
JSON: this takes a third of the time for one machine and a tenth for a listing, allows a mask of fields, and shows the
`unreachables` that the other client hides. Every error is an ApiError. No lock is held during a request.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from supervisor.providers.gce.calls.errors import IDENTITY, ApiError
from supervisor.providers.gce.calls.official import (
    OfficialClients,
    error_of_response,
    json_of,
    keep_connections,
    with_api_errors,
)
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import SCOPE, GceConfig

API_VERSION = "2026-09-01"  # pinned: other versions may report partial lists in another way
BULK_S = 15.0  # for one page of a listing with its retries: the tick waits for it
GET_S = 12.0  # for one machine or operation
LISTED_FIELDS = (  # of each machine in a listing
    "id,name,status,statusMessage,labels,creationTimestamp,lastStartTimestamp,machineType,"
    "scheduling/provisioningModel,"
    "guestAccelerators(acceleratorType,acceleratorCount)"
)
MACHINE_FIELDS = f"{LISTED_FIELDS},labelFingerprint,metadata/fingerprint,disks/type"  # what a kept one needs as well
LOAD_S = 60.0  # how long a caller waits for the clients
SEARCH_AGAIN_S = 5.0  # after credentials were not found, or a library could not be loaded

T = TypeVar("T")
Json = Mapping[str, Any]


class Compute:
    """`credentials`: finds the credentials; None = Application Default Credentials."""

    def __init__(self, config: GceConfig, retry: Retry, credentials: Callable[[], Any] | None = None) -> None:
        if importlib.util.find_spec("google.cloud.compute_v1") is None:
            raise ImportError("google-cloud-compute is not installed")
        self._config, self._retry = config, retry
        self._find_credentials = credentials or _default_credentials
        self._lock = threading.Lock()
        self._made: dict[str, Future[Any]] = {}
        self._failed_at = float("-inf")

    def warm(self) -> None:
        """Load what every tick needs. The first use reports a failure."""
        try:
            self._session()
        except ApiError:
            return

    # --- one machine --------------------------------------------------------------------------------------------------

    def insert(self, zone: str, body: Json, request_id: str) -> Json:
        """The operation. `body`: the API's own JSON."""
        resource = self._official().instance(body)
        return _named(self._call("insert_unary", zone=zone, request_id=request_id, instance_resource=resource))

    def get(self, zone: str, name: str) -> Json | None:
        """MACHINE_FIELDS of it. None: there is no such machine."""
        try:
            return _named(
                self._send("GET", self._url(f"zones/{zone}/instances/{name}"), {"fields": MACHINE_FIELDS}, None, GET_S)
            )
        except ApiError as error:
            if error.missing:
                return None
            raise

    def delete(self, zone: str, name: str, request_id: str) -> Json:
        """The operation."""
        return _named(self._call("delete_unary", zone=zone, instance=name, request_id=request_id))

    def change(self, zone: str, name: str, verb: str, body: Json | None, **query: str | int) -> Json:
        """The operation of a verb of one machine, such as `start`. The request id in `query` makes it safe to
        repeat."""
        return _named(self._send("POST", self._url(f"zones/{zone}/instances/{name}/{verb}"), query, body))

    def operation(self, zone: str, name: str) -> Json:
        return _named(self._send("GET", self._url(f"zones/{zone}/operations/{name}"), {}, None, GET_S))

    def serial(self, zone: str, name: str, last_bytes: int) -> str:
        """The end of the first serial port's output; Google keeps 1 MB of it."""
        path, deadline_s = f"zones/{zone}/instances/{name}/serialPort", self._retry.deadline_s
        output = self._send("GET", self._url(path), {"port": 1, "start": -last_bytes}, None, deadline_s)
        return str(output.get("contents", ""))

    # --- many ---------------------------------------------------------------------------------------------------------

    def read(self, path: str, **query: str | int) -> dict[str, Any]:
        """GET below the project; a path that begins with `/` is below /compute/v1. "" = the project itself."""
        return self._send("GET", self._url(path), query, None)

    def post(self, path: str, body: Json | None) -> dict[str, Any]:
        """POST of a request that is safe to repeat, such as a query for advice."""
        return self._send("POST", self._url(path), {}, body)

    def make_image(self, body: Json, request_id: str) -> dict[str, Any]:
        """The operation. The request id makes a repeat safe."""
        query: dict[str, str | int] = {"requestId": request_id, "forceCreate": "true"}
        return _named(self._send("POST", self._url("global/images"), query, body))

    def delete_image(self, name: str, request_id: str) -> dict[str, Any]:
        """The operation."""
        return _named(self._send("DELETE", self._url(f"global/images/{name}"), {"requestId": request_id}, None))

    def other_api(self, method: str, url: str, body: Json | None = None, **query: str | int) -> dict[str, Any]:
        """A request to another JSON service of Google, with this account. Raises ApiError."""
        return self._send(method, url, query, body)

    def identity(self) -> str:
        """The email address of the account; "" = the credentials do not name it. ApiError without credentials."""
        credentials = self._session().credentials
        if not getattr(credentials, "valid", True):
            self.authorization()  # on a machine of Google's the address is known only after the first token
        email = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "") or ""
        return "" if email == "default" else str(email)

    def authorization(self) -> str:
        """The Authorization header for Google's other services, with a valid token of this account. ApiError."""
        session, headers = self._session(), dict[str, str]()
        with_api_errors(lambda: session.credentials.before_request(session._auth_request, "GET", "", headers))
        return headers.get("authorization", "")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _call(self, method: str, **fields: Any) -> dict[str, Any]:
        """One method of the official client; `fields`: of its request, beside the project."""
        call = getattr(self._official().instances, method)
        request = {"project": self._config.project, **fields}
        return self._retry.call(
            lambda timeout_s: with_api_errors(lambda: json_of(call(request=request, timeout=timeout_s, retry=None)))
        )

    def _send(
        self, method: str, url: str, query: Mapping[str, str | int], body: Json | None, deadline_s: float | None = None
    ) -> dict[str, Any]:
        session = self._session()

        def request(timeout_s: float) -> dict[str, Any]:
            headers = self._headers(url, session.credentials)
            response = with_api_errors(
                lambda: session.request(method, url, params=query, json=body, timeout=timeout_s, headers=headers)
            )
            if response.status_code != 200:
                raise error_of_response(response.status_code, response.content)
            return _object(with_api_errors(response.json))

        return self._retry.call(request, deadline_s or min(BULK_S, self._retry.deadline_s))

    def _headers(self, url: str, credentials: Any) -> dict[str, str]:
        """A user's own credentials belong to no project. Services other than Compute Engine must know the project that
        the call counts to. Google's library sends the header itself where the credentials contain the project."""
        if url.startswith(f"{self._config.root}/compute/"):
            return {"x-goog-api-version": API_VERSION}
        from google.oauth2.credentials import Credentials

        is_user = isinstance(credentials, Credentials) and not credentials.quota_project_id
        return {"x-goog-user-project": self._config.project} if is_user else {}

    def _url(self, path: str) -> str:
        below = path if path.startswith("/") else f"/projects/{self._config.project}/{path}".rstrip("/")
        return f"{self._config.root}/compute/v1{below}"

    def _session(self) -> Any:
        """The session of google-auth."""
        return self._once("session", self._open_session)

    def _official(self) -> OfficialClients:
        return self._once("official", lambda: OfficialClients(self._config, self._session().credentials))

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """The first caller makes the value, and the others wait for it. After a failure callers get the same error for
        SEARCH_AGAIN_S: without credentials the search takes seconds, and not every caller must wait for its own."""
        with self._lock:
            future: Future[T] | None = self._made.get(name)
            failed = future is not None and future.done() and future.exception() is not None
            mine = future is None or (failed and self._retry.monotonic() - self._failed_at > SEARCH_AGAIN_S)
            if future is None or mine:
                future = self._made[name] = Future()
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:  # noqa: BLE001 - every waiting caller gets it
                self._failed_at = self._retry.monotonic()
                future.set_exception(error)
        try:
            return future.result(LOAD_S)
        except TimeoutError as error:
            raise ApiError("Google's clients are still being loaded") from error

    def _open_session(self) -> Any:
        # Outside Google Cloud the search would try a metadata server that does not exist three times.
        os.environ.setdefault("GCE_METADATA_DETECT_RETRIES", "1")
        # The package comes first, as in the client of the bucket: when one thread imports it and another thread a part
        # of it at the same time, Python 3.11 fails one of them with "deadlock detected".
        import google.auth  # noqa: F401
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession

        try:
            session: Any = AuthorizedSession(self._find_credentials())
        except GoogleAuthError as error:
            raise ApiError(f"no Google credentials: {error}", None, IDENTITY) from error
        keep_connections(session)
        return session


def _named(resource: dict[str, Any]) -> dict[str, Any]:
    """A machine or an operation. JSON of a proxy with HTTP 200 is not a response of Google."""
    if resource.get("id") and resource.get("name"):
        return resource
    raise ApiError("no clear response: neither a machine nor an operation")


def _object(body: Any) -> dict[str, Any]:
    if isinstance(body, dict):
        return body
    raise ApiError("no clear response: no JSON object")


def _default_credentials() -> Any:
    """Raises GoogleAuthError, also where Google's library fails on a file of another kind."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

    try:
        return google.auth.default(scopes=[SCOPE])[0]
    except GoogleAuthError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise DefaultCredentialsError(f"their file cannot be used: {error}") from error

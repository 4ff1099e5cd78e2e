"""The door to the Compute API. Two clients behind it, for one reason each.

`google-cloud-compute` changes and asks about single machines. Its import takes long and much room, so it is loaded in
the background; who comes earlier waits for it. The bulk listings of each tick go through google-auth's session as
plain JSON: a tenth of the time, with a mask of fields, and with the `unreachables` that the other client hides.
Every error comes out as ApiError. No lock is held over a request.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from supervisor.providers.gce.calls.errors import IDENTITY, ApiError, Retry
from supervisor.providers.gce.calls.speaking import Speaking, plain, refused, spoken, widen
from supervisor.providers.gce.config import SCOPE, GceConfig

# Pinned: without it, or with another one, partial lists may be told in another way.
API_VERSION = "2026-09-01"
BULK_S = 15.0  # for one page of a listing with its repeats: the tick waits for it
SEARCH_AGAIN_S = 5.0  # after credentials were not found, or a library could not be loaded
GET_S = 12.0  # for one machine or operation

T = TypeVar("T")
Json = Mapping[str, Any]


class Compute:
    """`credentials`: where they come from; None = Application Default Credentials."""

    def __init__(self, config: GceConfig, retry: Retry, credentials: Callable[[], Any] | None = None) -> None:
        if importlib.util.find_spec("google.cloud.compute_v1") is None:
            raise ImportError("google-cloud-compute is not installed")
        self._config, self._retry = config, retry
        self._find_credentials = credentials or _default_credentials
        self._lock = threading.Lock()
        self._clock, self._failed_at = retry.monotonic, float("-inf")
        self._session: Future[Any] | None = None
        self._official: Future[Any] | None = None

    def warm(self) -> None:
        """Load everything now, so that the first launch need not wait. Failures show at the first use."""
        try:
            self._clients()
        except ApiError:
            return

    # --- one machine --------------------------------------------------------------------------------------------------

    def insert(self, zone: str, body: Json, request_id: str) -> Json:
        """The operation. The body is the API's own JSON."""

        def ask(clients: Any, timeout_s: float) -> Any:
            request = clients.types.InsertInstanceRequest(
                project=self._config.project, zone=zone, request_id=request_id, instance_resource=clients.instance(body)
            )
            return clients.instances.insert_unary(request=request, timeout=timeout_s, retry=None)

        return _named(plain(self._official_call(ask)))

    def get(self, zone: str, name: str) -> Json | None:
        """None: there is no such machine."""

        def ask(clients: Any, timeout_s: float) -> Any:
            return clients.instances.get(timeout=timeout_s, retry=None, **self._at(zone, instance=name))

        try:
            return _named(plain(self._official_call(ask, GET_S)))
        except ApiError as error:
            if error.missing:
                return None
            raise

    def delete(self, zone: str, name: str, request_id: str) -> Json:
        """The operation."""

        def ask(clients: Any, timeout_s: float) -> Any:
            request = clients.types.DeleteInstanceRequest(
                project=self._config.project, zone=zone, instance=name, request_id=request_id
            )
            return clients.instances.delete_unary(request=request, timeout=timeout_s, retry=None)

        return _named(plain(self._official_call(ask)))

    def operation(self, zone: str, name: str) -> Json:
        def ask(clients: Any, timeout_s: float) -> Any:
            return clients.operations.get(timeout=timeout_s, retry=None, **self._at(zone, operation=name))

        return _named(plain(self._official_call(ask, GET_S)))

    def serial(self, zone: str, name: str, last_bytes: int) -> str:
        """The end of the first serial port's output; Google keeps 1 MB of it."""

        def ask(clients: Any, timeout_s: float) -> Any:
            request = clients.types.GetSerialPortOutputInstanceRequest(
                project=self._config.project, zone=zone, instance=name, port=1, start=-last_bytes
            )
            return clients.instances.get_serial_port_output(request=request, timeout=timeout_s, retry=None)

        return str(self._official_call(ask).contents)

    # --- many ---------------------------------------------------------------------------------------------------------

    def read(self, path: str, **query: str | int) -> dict[str, Any]:
        """GET below the project; a path that begins with `/` counts from /compute/v1. "" = the project itself."""
        return self._session_call("GET", path, query, None)

    def post(self, path: str, body: Json | None) -> dict[str, Any]:
        """POST of something that may be said twice, such as a question for advice."""
        return self._session_call("POST", path, {}, body)

    def elsewhere(self, method: str, url: str, body: Json | None = None, **query: str | int) -> dict[str, Any]:
        """Another JSON service of Google's, with this account. ApiError as everywhere."""
        return self._session_call(method, url, query, body)

    def identity(self) -> str:
        """The account's address, "" where it is not told. ApiError when there are no credentials."""
        credentials = self._plain().credentials
        if not getattr(credentials, "valid", True):
            self.authorization()  # on a machine of Google's it is known after the first token only
        found = getattr(credentials, "service_account_email", "") or getattr(credentials, "account", "") or ""
        return "" if found == "default" else str(found)

    def authorization(self) -> str:
        """What Google's other services take as the Authorization header: of this account, valid now. ApiError."""
        session, headers = self._plain(), dict[str, str]()
        spoken(lambda: session.credentials.before_request(session._auth_request, "GET", "", headers))
        return headers.get("authorization", "")

    # --- inside -------------------------------------------------------------------------------------------------------

    def _at(self, zone: str, **what: str) -> dict[str, str]:
        return {"project": self._config.project, "zone": zone, **what}

    def _official_call(self, ask: Callable[[Any, float], Any], deadline_s: float | None = None) -> Any:
        clients = self._clients()
        return self._retry.call(lambda timeout_s: spoken(lambda: ask(clients, timeout_s)), deadline_s)

    def _session_call(
        self, method: str, path: str, query: Mapping[str, str | int], body: Json | None
    ) -> dict[str, Any]:
        url, session = self._url(path), self._plain()

        def ask(timeout_s: float) -> dict[str, Any]:
            answer = spoken(
                lambda: session.request(
                    method, url, params=query, json=body,
                    timeout=timeout_s, headers=self._headers(url, session.credentials),
                )
            )  # fmt: skip
            if answer.status_code != 200:
                raise refused(answer.status_code, answer.content)
            return _object(spoken(answer.json))

        return self._retry.call(ask, min(BULK_S, self._retry.deadline_s))

    def _headers(self, url: str, credentials: Any) -> dict[str, str]:
        """A person's credentials belong to no project: services other than Compute Engine want to be told to which one
        a call counts. Where it is set in the credentials, Google's library says so itself."""
        if url.startswith(f"{self._config.root}/compute/"):
            return {"x-goog-api-version": API_VERSION}
        from google.oauth2.credentials import Credentials

        person = isinstance(credentials, Credentials) and not credentials.quota_project_id
        return {"x-goog-user-project": self._config.project} if person else {}

    def _url(self, path: str) -> str:
        if path.startswith(("https://", "http://")):
            return path
        below = path if path.startswith("/") else f"/projects/{self._config.project}/{path}".rstrip("/")
        return f"{self._config.root}/compute/v1{below}"

    def _plain(self) -> Any:
        """google-auth's session."""
        return self._once("_session", self._open_session)

    def _clients(self) -> Any:
        return self._once("_official", lambda: Speaking(self._config, self._plain().credentials))

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Made by the first who asks; those who come meanwhile wait. What failed is made again by who comes later: the
        search for credentials takes seconds where there are none, and not each caller is to wait for one of its own."""
        with self._lock:
            future: Future[T] | None = getattr(self, name)
            failed = future is not None and future.done() and future.exception() is not None
            mine = future is None or (failed and self._clock() - self._failed_at > SEARCH_AGAIN_S)
            if future is None or mine:
                future = Future()
                setattr(self, name, future)
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:  # noqa: BLE001 - handed to everybody who waits
                self._failed_at = self._clock()
                future.set_exception(error)
        try:
            return future.result(60.0)
        except TimeoutError as error:
            raise ApiError("Google's clients are still being loaded") from error

    def _open_session(self) -> Any:
        # Away from Google's machines the search would try a metadata server that is not there three times.
        os.environ.setdefault("GCE_METADATA_DETECT_RETRIES", "1")
        # The package comes first, as it does for the bucket: of two threads that import it and a part of it at the same
        # time, Python 3.11 fails one with "deadlock detected".
        import google.auth  # noqa: F401
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession

        try:
            session: Any = AuthorizedSession(self._find_credentials())
        except GoogleAuthError as error:
            raise ApiError(f"no Google credentials: {error}", None, IDENTITY) from error
        widen(session)
        return session


def _named(answer: dict[str, Any]) -> dict[str, Any]:
    """A machine or an operation. JSON of something in between, under HTTP 200, is no answer of Google's."""
    if answer.get("id") and answer.get("name"):
        return answer
    raise ApiError("no clear answer: neither a machine nor an operation")


def _object(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    raise ApiError("no clear answer: no JSON object")


def _default_credentials() -> Any:
    """Raises GoogleAuthError, also where Google's library stumbles over a file that is none of its kind."""
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError

    try:
        return google.auth.default(scopes=[SCOPE])[0]
    except GoogleAuthError:
        raise
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise DefaultCredentialsError(f"their file cannot be used: {error}") from error

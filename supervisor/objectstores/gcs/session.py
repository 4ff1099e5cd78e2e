"""Google's client, the session that it shares with our own requests, and how a request is repeated.

Importing google.cloud.storage costs a quarter of a second and 45 MB; a supervisor of local machines never does. So the
client is made at the first request.

Google's client waits up to 120 s and knows only some of the troubles. Here every request has one small policy: 408,
429, 5xx and broken connections are asked again, with pauses, until patience ends; everything else is an answer. What
matters later is doubt: whether a try that "failed" may have been carried out all the same, its answer lost.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

from supervisor.contract.stores.bucket import is_passing, may_have_acted, message_of
from supervisor.domain.texts import clause
from supervisor.ports.objectstore import StoreForbidden, StoreMissing, StoreUnavailable
from supervisor.telemetry import recording

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
SEARCH_AGAIN_S = 5.0  # after credentials were not found
CONNECTIONS = 64  # kept open; of more threads than that, some open one for each request
# Where credentials may come from even though the store is a stand-in for Google's.
_CONFIGURED = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")


@dataclass(frozen=True)
class Hands:
    session: Any  # google.auth.transport.requests.AuthorizedSession
    bucket: Any  # google.cloud.storage.Bucket
    endpoint: str  # https://storage.googleapis.com, or what STORAGE_EMULATOR_HOST says


class Session:
    """The hands of one store, made at their first use. The search for credentials takes seconds where there are none:
    all who wait for it, and all who come soon after, get the same answer."""

    def __init__(self, url: str, bucket_name: str, clock: Callable[[], float]) -> None:
        self._url, self._bucket_name, self._clock = url, bucket_name, clock
        self._made: Hands | None = None
        self._failed: tuple[float, str] | None = None  # when the search ended, and how
        self._making = threading.Lock()

    def hands(self) -> Hands:
        """StoreUnavailable when there are no credentials."""
        with self._making:
            if self._made is None:
                if self._failed is not None and self._clock() - self._failed[0] < SEARCH_AGAIN_S:
                    raise StoreUnavailable(self._failed[1])
                try:
                    self._made = open_hands(self._url, self._bucket_name)
                except StoreUnavailable as error:
                    self._failed = (self._clock(), str(error))
                    raise
            return self._made

    def close(self) -> None:
        with self._making:
            if self._made is not None:
                self._made.session.close()
            self._made = None


def require_client(url: str) -> None:
    """ImportError where Google's client is not installed; does not load it."""
    try:
        spec = find_spec("google.cloud.storage")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise ImportError(f"{url} needs google-cloud-storage: install spot-supervisor[google]")


def open_hands(url: str, bucket_name: str) -> Hands:
    """StoreUnavailable when there are no credentials. Asks the store nothing."""
    # The client would ask for the bucket in a thread of its own, for traces that nobody collects; that takes a
    # permission (storage.buckets.get) which an account that only keeps objects does not need.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    # Away from Google's machines the search for credentials ends with a metadata server that is not there: three times
    # three seconds by default. Once is enough: who was not heard is asked again a little later.
    os.environ.setdefault("GCE_METADATA_DETECT_RETRIES", "1")
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud.storage import Client

    try:
        if os.environ.get("STORAGE_EMULATOR_HOST") and not any(os.environ.get(name) for name in _CONFIGURED):
            credentials: Any = AnonymousCredentials()
        else:
            credentials, _ = google.auth.default(scopes=SCOPES)
    except (GoogleAuthError, OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        # Google's library stumbles so over a file that holds something else.
        raise StoreUnavailable(f"{url}: no Application Default Credentials: {clause(error)}") from error
    session = AuthorizedSession(credentials)
    for scheme in ("https://", "http://"):
        session.mount(scheme, recording.adapter(pool_connections=4, pool_maxsize=CONNECTIONS))
    client = Client(project="none", credentials=credentials, _http=session)
    endpoint = client.api_endpoint.rstrip("/")
    _settle(session, endpoint)
    return Hands(session, client.bucket(bucket_name), endpoint)


def _settle(session: Any, endpoint: str) -> None:
    """Proxies and certificates are looked up in the environment once: requests does it at every request, a third of
    whose time that takes."""
    from requests.utils import get_environ_proxies

    session.proxies = get_environ_proxies(endpoint, no_proxy=None)
    session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    session.trust_env = False


NEEDS = {
    "read": "storage.objects.get",
    "list": "storage.objects.list",
    "write": "storage.objects.create (and storage.objects.delete, to replace one)",
    "delete": "storage.objects.delete",
    "look at": "storage.buckets.get",
}
CONNECT_S, READ_S = 10.0, 10.0
PAUSE_S, LONGEST_PAUSE_S = 0.25, 4.0
Timeout = tuple[float, float]  # to connect, and between two pieces of an answer; seconds
_QUERY = re.compile(r"\?[^\s)]*")
T = TypeVar("T")


class Answered(Exception):
    """An answer other than success to a request of our own; `text` is Google's message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Refused(Exception):
    """How asking ended. `status` None: no answer. `doubtful`: an earlier or this try may have been carried out."""

    def __init__(self, status: int | None, text: str, doubtful: bool) -> None:
        super().__init__(text)
        self.status, self.text, self.doubtful = status, text, doubtful


@dataclass(frozen=True)
class Trouble:
    """`acted`: whatever was asked for may have been done."""

    status: int | None
    text: str
    passing: bool
    acted: bool = False


@dataclass(frozen=True)
class Patience:
    """`clock` in seconds, going up; `chance` from 0 to 1."""

    patience_s: float
    clock: Callable[[], float]
    pause: Callable[[float], None]
    chance: Callable[[], float]

    def ask(self, attempt: Callable[[Timeout], T]) -> T:
        """What `attempt` gives in the end. Refused when patience ended, or for any answer that asking again does not
        change; errors that are no answers (a file that is missing) pass through."""
        until = self.clock() + self.patience_s
        doubtful = False
        for n in itertools.count():
            left_s = max(until - self.clock(), 1.0)
            pause_s = min(LONGEST_PAUSE_S, PAUSE_S * 2**n) * (0.5 + self.chance())
            try:
                return attempt((min(CONNECT_S, left_s), min(READ_S, left_s)))
            except Exception as error:
                trouble = understood(error)
                if trouble is None:
                    raise
                doubtful = doubtful or trouble.acted
                if not trouble.passing or self.clock() + pause_s > until:
                    raise Refused(trouble.status, trouble.text, doubtful) from error
            self.pause(pause_s)
        raise AssertionError("counting does not end")


def understood(error: Exception) -> Trouble | None:
    """What an error of any of the libraries below means; None: it is no answer of the store."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    if isinstance(error, Answered):
        return of_status(error.status, error.text)
    if isinstance(error, GoogleAPICallError):
        text = error.message if error.response is None else message(error.response)
        return of_status(int(error.code or 500), text)
    if isinstance(error, GoogleAuthError):
        return Trouble(None, f"no access token: {error}", passing=bool(error.retryable))
    if isinstance(error, DataCorruption):
        return Trouble(None, f"damaged on the way: {error}", passing=False, acted=True)
    if isinstance(error, (RequestException, HTTPError)):
        text = _QUERY.sub("", str(error))  # the address of an upload is a right to write
        return Trouble(None, f"{type(error).__name__}: {text}", passing=True, acted=True)
    return None


def of_status(status: int, text: str) -> Trouble:
    return Trouble(status, text, is_passing(status), acted=may_have_acted(status))


def message(response: Any) -> str:
    """Google's own words in an answer other than success, at most 300 characters."""
    return message_of(response.content)[:300]


def checked(response: Any) -> Any:
    """The response itself; Answered for any status other than success and "go on" (308)."""
    if response.status_code not in {200, 201, 204, 206, 308}:
        raise Answered(response.status_code, message(response))
    return response


def unavailable(url: str, verb: str, key: str, refused: Refused) -> StoreUnavailable:
    """What a caller is told: the store, the deed, and what to do about it where somebody can do something."""
    what = repr(key) if key else "the bucket"
    text, said = f"{url}: cannot {verb} {what}: ", clause(refused.text)
    if refused.status == 404:
        return StoreMissing(f"{text}there is no such bucket (404): {said}")
    if refused.status == 401:
        text += "nobody is signed in, or the access token is not taken (401)"
    elif refused.status == 403:
        text += f"the account may not (403); it takes {NEEDS[verb]} on the bucket"
        return StoreForbidden(f"{text}: {said}")
    elif refused.status is None:
        text += "no clear answer"
    else:
        text += f"HTTP {refused.status}"
    return StoreUnavailable(f"{text}: {said}")

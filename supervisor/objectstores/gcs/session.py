"""Google's client and the session that it shares with our own requests, made at the first request.

Importing google.cloud.storage costs a quarter of a second and 45 MB; a supervisor of local machines never does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from supervisor.ports.objectstore import StoreUnavailable
from supervisor.telemetry import google_recording
from supervisor.wording.figures import clause

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
        found = find_spec("google.cloud.storage")
    except ModuleNotFoundError:
        found = None
    if found is None:
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
    except (
        GoogleAuthError,
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        RecursionError,
    ) as error:
        # Google's library stumbles so over a file that holds something else.
        raise StoreUnavailable(f"{url}: no Application Default Credentials: {clause(error)}") from error
    session = AuthorizedSession(credentials)
    for scheme in ("https://", "http://"):
        session.mount(scheme, google_recording.adapter(pool_connections=4, pool_maxsize=CONNECTIONS))
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

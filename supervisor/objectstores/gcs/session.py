"""Google's client of Cloud Storage, and the session that it shares with our own requests.

An import of google.cloud.storage takes a quarter of a second and 45 MB, and a supervisor of local machines never needs
it. So the client is made at the first request.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from supervisor.domain.texts import clause
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.telemetry import recording

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
SEARCH_AGAIN_S = 5.0  # after credentials were not found
CONNECTIONS = 64  # kept open; with more threads some open a connection for each request
# With one of these variables credentials are used even though the store is a stand-in for Google's.
_CONFIGURED = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")


@dataclass(frozen=True)
class Client:
    session: Any  # google.auth.transport.requests.AuthorizedSession
    bucket: Any  # google.cloud.storage.Bucket
    endpoint: str  # https://storage.googleapis.com, or STORAGE_EMULATOR_HOST


class LazyClient:
    """The client of one store, made at its first use. Without credentials the search takes seconds: all callers that
    wait for it, and those within SEARCH_AGAIN_S after it, get the same error."""

    def __init__(self, url: str, bucket_name: str, clock: Callable[[], float]) -> None:
        self._url, self._bucket_name, self._clock = url, bucket_name, clock
        self._client: Client | None = None
        self._failed: tuple[float, str] | None = None  # when the search ended, and its error
        self._making = threading.Lock()

    def get(self) -> Client:
        """StoreUnavailable without credentials."""
        with self._making:
            if self._client is None:
                if self._failed is not None and self._clock() - self._failed[0] < SEARCH_AGAIN_S:
                    raise StoreUnavailable(self._failed[1])
                try:
                    self._client = open_client(self._url, self._bucket_name)
                except StoreUnavailable as error:
                    self._failed = (self._clock(), str(error))
                    raise
            return self._client

    def close(self) -> None:
        with self._making:
            if self._client is not None:
                self._client.session.close()
            self._client = None


def require_library(url: str) -> None:
    """ImportError where Google's library is not installed. Does not load it."""
    try:
        spec = find_spec("google.cloud.storage")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise ImportError(f"{url} needs google-cloud-storage: install spot-supervisor[google]")


def open_client(url: str, bucket_name: str) -> Client:
    """StoreUnavailable without credentials. Sends no request to the store."""
    # For traces that nobody collects, the client would read the bucket in a thread of its own. This needs a permission
    # (storage.buckets.get) that an account which only stores objects does not need.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    # Outside Google Cloud the search for credentials ends with a metadata server that does not exist: by default three
    # times three seconds. Once is enough, because the search is repeated later.
    os.environ.setdefault("GCE_METADATA_DETECT_RETRIES", "1")
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud.storage import Client as GoogleClient

    try:
        if os.environ.get("STORAGE_EMULATOR_HOST") and not any(os.environ.get(name) for name in _CONFIGURED):
            credentials: Any = AnonymousCredentials()
        else:
            credentials, _ = google.auth.default(scopes=SCOPES)
    except (GoogleAuthError, OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        # Google's library raises all of these for a file with other content.
        raise StoreUnavailable(f"{url}: no Application Default Credentials: {clause(error)}") from error
    session = AuthorizedSession(credentials)
    for scheme in ("https://", "http://"):
        session.mount(scheme, recording.adapter(pool_connections=4, pool_maxsize=CONNECTIONS))
    client = GoogleClient(project="none", credentials=credentials, _http=session)
    endpoint = client.api_endpoint.rstrip("/")
    _read_environment_once(session, endpoint)
    return Client(session, client.bucket(bucket_name), endpoint)


def _read_environment_once(session: Any, endpoint: str) -> None:
    """Proxies and certificates are read from the environment once. requests reads them at every request, which takes a
    third of its time."""
    from requests.utils import get_environ_proxies

    session.proxies = get_environ_proxies(endpoint, no_proxy=None)
    session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    session.trust_env = False

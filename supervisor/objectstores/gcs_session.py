"""Google's client and the session that it shares with our own requests, made at the first request.

Importing google.cloud.storage costs a quarter of a second and 45 MB; a supervisor of local machines never does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from supervisor.ports.objectstore import StoreUnavailable

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
CONNECTIONS = 64  # kept open; of more threads than that, some open one for each request
# Where credentials may come from even though the store is a stand-in for Google's.
_CONFIGURED = ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST")


@dataclass(frozen=True)
class Hands:
    session: Any  # google.auth.transport.requests.AuthorizedSession
    bucket: Any  # google.cloud.storage.Bucket
    endpoint: str  # https://storage.googleapis.com, or what STORAGE_EMULATOR_HOST says


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
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import AuthorizedSession
    from google.cloud.storage import Client
    from requests.adapters import HTTPAdapter

    try:
        if os.environ.get("STORAGE_EMULATOR_HOST") and not any(os.environ.get(name) for name in _CONFIGURED):
            credentials: Any = AnonymousCredentials()
        else:
            credentials, _ = google.auth.default(scopes=SCOPES)
    except GoogleAuthError as error:
        raise StoreUnavailable(f"{url}: no Application Default Credentials: {error}") from error
    session = AuthorizedSession(credentials)
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=CONNECTIONS))
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

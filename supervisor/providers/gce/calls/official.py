"""The official client google-cloud-compute: how it is loaded, and one ApiError for each of its many errors.

No other file knows the names of that client. Its own retries are off (`retry=None` at each call). Only one of its
hundred services is used, and only it is loaded: an import of the whole package takes 1.0 s of CPU and 110 MiB, this one
0.35 s and 70 MiB. A version with another layout is loaded as a whole.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.request import getproxies

from supervisor.providers.gce.calls.errors import IDENTITY, REFUSED, ApiError
from supervisor.providers.gce.config import GceConfig
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import recording

log = logging.getLogger(__name__)

PACKAGE = "google.cloud.compute_v1"
CONNECTIONS = 48
# Google's words for credentials that no retry fixes (RFC 6749 section 5.2); a network error has none of them.
_REFUSALS = re.compile(
    r"invalid_(grant|client|rapt)|unauthorized_client|disabled_client|deleted_client|[Rr]eauthentication is needed"
)
_ADDRESS = re.compile(r"^[A-Z]+ https?://\S+: ")  # the client writes it before Google's words

T = TypeVar("T")


class OfficialClients:
    def __init__(self, config: GceConfig, credentials: Any) -> None:
        self._types, instances = load()
        options = {"api_endpoint": config.root} if config.endpoint else None
        self.instances: Any = instances(credentials=credentials, client_options=options)
        keep_connections(getattr(self.instances.transport, "_session"))  # noqa: B009 - its base class has none

    def instance(self, body: Mapping[str, Any]) -> Any:
        """The API's own JSON as a message. ApiError for a field that the API does not have."""
        return with_api_errors(lambda: self._types.Instance.from_json(json.dumps(body)))


def load() -> tuple[Any, Any]:
    """(the module with the types, the client class of instances)."""
    try:
        with _without_init():
            from google.cloud.compute_v1.services.instances import InstancesClient
            from google.cloud.compute_v1.types import compute
    except Exception as error:  # noqa: BLE001 - the package promises its names, not the places of its modules
        log.info(
            "google-cloud-compute is loaded as a whole", extra={telemetry.ACTION: "warm", telemetry.ERROR: str(error)}
        )
        from google.cloud import compute_v1

        return compute_v1, compute_v1.InstancesClient
    return compute, InstancesClient


@contextmanager
def _without_init() -> Iterator[None]:
    """While this context is open, modules of the package are imported without its `__init__`, which imports all of
    them. Afterward every import of the package is the ordinary one."""
    spec = importlib.util.find_spec(PACKAGE)
    if PACKAGE in sys.modules or spec is None:
        yield
        return
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[PACKAGE]


def keep_connections(session: Any) -> None:
    """As many open connections as there are threads that launch; the default of 10 closes the others. Where the
    environment names no proxy and no certificates, requests need not look for them at every request."""
    named = getproxies() or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    session.trust_env = bool(named)
    for scheme in ("https://", "http://"):
        session.mount(scheme, recording.adapter(pool_maxsize=CONNECTIONS))


def json_of(message: Any) -> dict[str, Any]:
    """The API's own JSON of a message, as it was sent: camelCase, int64 as text."""
    from google.protobuf import json_format  # type: ignore[import-untyped]

    message_json: dict[str, Any] = json_format.MessageToDict(type(message).pb(message))
    return message_json


def with_api_errors(call: Callable[[], T]) -> T:
    """The result of the call; every error of Google's libraries and of the network becomes an ApiError."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
    from requests.exceptions import RequestException

    try:
        return call()
    except GoogleAPIError as error:
        raise _error_of_client(error) from error
    except DefaultCredentialsError as error:
        raise ApiError(f"no Google credentials: {error}", None, IDENTITY) from error
    except GoogleAuthError as error:
        reason = REFUSED if _REFUSALS.search(str(error)) else ""
        raise ApiError(f"the credentials could not be renewed: {error}", None, reason) from error
    except (RequestException, ParseError, ValueError, RecursionError) as error:
        raise ApiError(f"no clear response: {_cause_of(error)}") from error


def error_of_response(status: int, content: bytes) -> ApiError:
    """Of a response to the plain session with another status than 200."""
    try:
        error = json.loads(content)["error"]
        # Compute Engine and Cloud Storage give reasons in `errors`, newer services in `details`.
        reasons = [part.get("reason") for part in (*(error.get("errors") or ()), *(error.get("details") or ()))]
        reason = next((str(reason) for reason in reasons if reason), "")
        return ApiError(str(error.get("message", "")), status, reason)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ApiError(content[:200].decode(errors="replace"), status)


def _cause_of(error: Exception) -> str:
    """The cause, without the long address that the network libraries write before it."""
    inner = getattr(error.args[0], "reason", None) if error.args else None
    return str(inner or error) or type(error).__name__


def _error_of_client(error: Exception) -> ApiError:
    code = getattr(error, "code", None)
    status = int(code) if code is not None else None
    first = next((part for part in getattr(error, "errors", None) or () if isinstance(part, Mapping)), None)
    message = _ADDRESS.sub("", str(getattr(error, "message", "") or error))
    if first is None:
        return ApiError(message, status, str(getattr(error, "reason", None) or ""))
    return ApiError(str(first.get("message") or message), status, str(first.get("reason", "")))

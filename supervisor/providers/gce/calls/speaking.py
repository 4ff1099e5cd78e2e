"""google-cloud-compute, loaded, and what its many errors say: one ApiError each.

This file alone knows the official client's words. Its own retries are off (`retry=None` at each call). Of its hundred
services two are used, and only those are loaded: importing the package as a whole takes 1.0 s of computing and 110 MiB,
this 0.35 s and 70 MiB. A version that is laid out in another way is loaded as a whole.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from supervisor.providers.gce.calls.errors import IDENTITY, REFUSED, ApiError
from supervisor.providers.gce.config import GceConfig
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import recording

log = logging.getLogger(__name__)
T = TypeVar("T")

PACKAGE = "google.cloud.compute_v1"
CONNECTIONS = 48
# Google's words for credentials that no repeat will mend (RFC 6749 section 5.2); a network's trouble has none of them.
_REFUSALS = re.compile(
    r"invalid_(grant|client|rapt)|unauthorized_client|disabled_client|deleted_client|[Rr]eauthentication is needed"
)

_ADDRESS = re.compile(r"^[A-Z]+ https?://\S+: ")  # what the client puts before Google's words


class Speaking:
    """The official clients."""

    def __init__(self, config: GceConfig, credentials: Any) -> None:
        self.types, instances, operations = _loaded()
        options = {"api_endpoint": config.root} if config.endpoint else None
        self.instances: Any = instances(credentials=credentials, client_options=options)
        self.operations: Any = operations(credentials=credentials, client_options=options)
        for transport in (self.instances.transport, self.operations.transport):
            widen(getattr(transport, "_session"))  # noqa: B009 - REST transports have it, their base does not

    def instance(self, body: Mapping[str, Any]) -> Any:
        """The API's own JSON as a message; ParseError for a field that the API does not have."""
        return self.types.Instance.from_json(json.dumps(body))


def _loaded() -> tuple[Any, Any, Any]:
    """(where the types are, the client of instances, that of operations)."""
    try:
        with _narrow():
            from google.cloud.compute_v1.services.instances import InstancesClient
            from google.cloud.compute_v1.services.zone_operations import ZoneOperationsClient
            from google.cloud.compute_v1.types import compute
    except Exception as error:  # noqa: BLE001 - where its parts lie is no promise of the package, its own names are
        log.info(
            "google-cloud-compute is loaded as a whole", extra={telemetry.ACTION: "warm", telemetry.ERROR: str(error)}
        )
        from google.cloud import compute_v1

        return compute_v1, compute_v1.InstancesClient, compute_v1.ZoneOperationsClient
    return compute, InstancesClient, ZoneOperationsClient


@contextmanager
def _narrow() -> Iterator[None]:
    """While this is open, modules of the package are found without its `__init__`, which imports all of them.
    Afterwards an import of the package by anybody is the ordinary one."""
    spec = importlib.util.find_spec(PACKAGE)
    if PACKAGE in sys.modules or spec is None:
        yield
        return
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules[PACKAGE]


def widen(session: Any) -> None:
    """As many kept connections as there are threads that launch; the default of 10 throws the others away."""
    for scheme in ("https://", "http://"):
        session.mount(scheme, recording.adapter(pool_maxsize=CONNECTIONS))


def plain(message: Any) -> dict[str, Any]:
    """The API's own JSON of a message, as the wire had it: camelCase, int64 as text."""
    from google.protobuf import json_format  # type: ignore[import-untyped]

    found: dict[str, Any] = json_format.MessageToDict(type(message).pb(message))
    return found


def spoken(call: Callable[[], T]) -> T:
    """Make the call; whatever of Google's or the network's goes wrong comes out as ApiError."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
    from requests.exceptions import RequestException

    try:
        return call()
    except GoogleAPIError as error:
        raise _refusal(error) from error
    except DefaultCredentialsError as error:
        raise ApiError(f"no Google credentials: {error}", None, IDENTITY) from error
    except GoogleAuthError as error:
        reason = REFUSED if _REFUSALS.search(str(error)) else ""
        raise ApiError(f"the credentials could not be renewed: {error}", None, reason) from error
    except (RequestException, ParseError, ValueError, RecursionError) as error:
        raise ApiError(f"no clear answer: {_why(error)}") from error


def refused(status: int, content: bytes) -> ApiError:
    """An answer to the plain session that is not 200."""
    try:
        told = json.loads(content)["error"]
        # Compute Engine and Cloud Storage give reasons in `errors`, newer services in `details`.
        reasons = [one.get("reason") for one in (*(told.get("errors") or ()), *(told.get("details") or ()))]
        return ApiError(str(told.get("message", "")), status, next((str(one) for one in reasons if one), ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ApiError(content[:200].decode(errors="replace"), status)


def _why(error: Exception) -> str:
    """What broke, without the long address that the network's libraries put before it."""
    inner = getattr(error.args[0], "reason", None) if error.args else None
    return str(inner or error) or type(error).__name__


def _refusal(error: Exception) -> ApiError:
    code = getattr(error, "code", None)
    status = int(code) if code is not None else None
    errors = [one for one in getattr(error, "errors", None) or () if isinstance(one, Mapping)]
    reason = str(errors[0].get("reason", "") if errors else getattr(error, "reason", None) or "")
    message = _ADDRESS.sub("", str(getattr(error, "message", "") or error))
    return ApiError(str(errors[0].get("message") or message) if errors else message, status, reason)

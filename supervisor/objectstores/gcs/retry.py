"""What errors of Cloud Storage mean, and how a request is repeated.

Google's client waits up to 120 s and knows only some of the errors. Here every request has the same small policy: 408,
429, 5xx and broken connections are retried, with backoffs, until the patience ends; every other status is an answer.
What matters later is doubt: whether a try that "failed" may have been carried out, with its response lost.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from supervisor.contract.stores.bucket import is_passing, may_have_acted, message_of
from supervisor.domain.texts import clause
from supervisor.ports.objectstore import StoreForbidden, StoreMissing, StoreUnavailable

PERMISSIONS = {
    "read": "storage.objects.get",
    "list": "storage.objects.list",
    "write": "storage.objects.create (and storage.objects.delete, to replace one)",
    "delete": "storage.objects.delete",
    "look at": "storage.buckets.get",
}
CONNECT_S, READ_S = 10.0, 10.0
BACKOFF_S, LONGEST_BACKOFF_S = 0.25, 4.0
_QUERY = re.compile(r"\?[^\s)]*")

Timeout = tuple[float, float]  # seconds: to connect, and between two pieces of a response
T = TypeVar("T")


class BadStatus(Exception):
    """A response to a request of our own with another status than success; `text` is Google's message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class RequestFailed(Exception):
    """A request failed after all its retries. `status` None: no response. `doubtful`: one of its tries may have been
    carried out."""

    def __init__(self, status: int | None, text: str, doubtful: bool) -> None:
        super().__init__(text)
        self.status, self.text, self.doubtful = status, text, doubtful


@dataclass(frozen=True)
class Failure:
    """Of one try. `passing`: a retry may help. `acted`: the store may have carried it out."""

    status: int | None
    text: str
    passing: bool
    acted: bool = False


@dataclass(frozen=True)
class RetryPolicy:
    """`clock`: seconds, monotonic; `chance`: 0 to 1."""

    patience_s: float
    clock: Callable[[], float]
    pause: Callable[[float], None]
    chance: Callable[[], float]

    def call(self, attempt: Callable[[Timeout], T]) -> T:
        """The result of `attempt`. RequestFailed when the patience ends, or for a response that a retry does not
        change. Errors that do not come from the store (a missing file) are raised unchanged."""
        until = self.clock() + self.patience_s
        doubtful = False
        for n in itertools.count():
            left_s = max(until - self.clock(), 1.0)
            backoff_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2**n) * (0.5 + self.chance())
            try:
                return attempt((min(CONNECT_S, left_s), min(READ_S, left_s)))
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    raise
                doubtful = doubtful or failure.acted
                if not failure.passing or self.clock() + backoff_s > until:
                    raise RequestFailed(failure.status, failure.text, doubtful) from error
            self.pause(backoff_s)
        raise AssertionError("counting does not end")


def failure_of(error: Exception) -> Failure | None:
    """What an error of these libraries means; None: it does not come from the store."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    if isinstance(error, BadStatus):
        return failure_of_status(error.status, error.text)
    if isinstance(error, GoogleAPICallError):
        text = error.message if error.response is None else message(error.response)
        return failure_of_status(int(error.code or 500), text)
    if isinstance(error, GoogleAuthError):
        return Failure(None, f"no access token: {error}", passing=bool(error.retryable))
    if isinstance(error, DataCorruption):
        return Failure(None, f"damaged in transfer: {error}", passing=False, acted=True)
    if isinstance(error, (RequestException, HTTPError)):
        text = _QUERY.sub("", str(error))  # the address of an upload gives the right to write
        return Failure(None, f"{type(error).__name__}: {text}", passing=True, acted=True)
    return None


def failure_of_status(status: int, text: str) -> Failure:
    return Failure(status, text, is_passing(status), acted=may_have_acted(status))


def message(response: Any) -> str:
    """Google's own words in a response other than success, at most 300 characters."""
    return message_of(response.content)[:300]


def checked(response: Any) -> Any:
    """The response itself; BadStatus for any status other than success and "continue" (308)."""
    if response.status_code not in {200, 201, 204, 206, 308}:
        raise BadStatus(response.status_code, message(response))
    return response


def unavailable(url: str, verb: str, key: str, failed: RequestFailed) -> StoreUnavailable:
    """The error for the caller: the store, the action, and the fix if there is one."""
    what = repr(key) if key else "the bucket"
    text, google_text = f"{url}: cannot {verb} {what}: ", clause(failed.text)
    if failed.status == 404:
        return StoreMissing(f"{text}there is no such bucket (404): {google_text}")
    if failed.status == 403:
        permission = PERMISSIONS[verb]
        return StoreForbidden(f"{text}the account lacks {permission} on the bucket (403): {google_text}")
    if failed.status == 401:
        text += "there are no credentials, or the access token is not accepted (401)"
    elif failed.status is None:
        text += "no clear response"
    else:
        text += f"HTTP {failed.status}"
    return StoreUnavailable(f"{text}: {google_text}")

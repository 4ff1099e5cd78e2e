"""How Cloud Storage is asked: again after a trouble that passes, with pauses, until patience ends.

Google's client waits up to 120 s and knows only some of the troubles. Here every request has one small policy: 408,
429, 5xx and broken connections are asked again, everything else is an answer. What matters later is doubt: whether a
try that "failed" may have been carried out all the same, its answer lost.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from supervisor.ports.objectstore import StoreForbidden, StoreMissing, StoreUnavailable
from supervisor.wording.figures import clause

NEEDS = {
    "read": "storage.objects.get",
    "list": "storage.objects.list",
    "write": "storage.objects.create (and storage.objects.delete, to replace one)",
    "delete": "storage.objects.delete",
    "look at": "storage.buckets.get",
}
PASSING = frozenset({408, 429, 500, 502, 503, 504})
CONNECT_S, READ_S = 10.0, 10.0
PAUSE_S, LONGEST_PAUSE_S = 0.25, 4.0
NEVER = -1  # a condition that no object can meet
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


def condition_of(if_generation: str | None) -> int | None:
    """The generation that Cloud Storage compares with; NEVER for a text that is no generation of its."""
    if if_generation is None:
        return None
    known = if_generation.isascii() and if_generation.isdigit() and len(if_generation) < 19
    return int(if_generation) if known else NEVER


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
    # A request that was refused for its pace was not carried out; of a 5xx nobody knows.
    return Trouble(status, text, status in PASSING, acted=status in PASSING - {429})


def message(response: Any) -> str:
    """Google's own words in an answer other than success, at most 300 characters."""
    try:
        text = str(json.loads(response.content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = response.text
    return text[:300]


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

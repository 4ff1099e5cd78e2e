"""Faults of the fake Cloud Storage on request: bursts of errors, lost responses, lost permissions, expired tokens."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.cloud import storage_answers as answers
from tests.cloud.storage_objects import Refusal
from tests.cloud.web import Request, Response

_TEXTS = {
    408: ("requestTimeout", "The request timed out."),
    429: ("rateLimitExceeded", "The rate of requests is too high."),
    500: ("internalError", "We encountered an internal error. Please try again."),
    502: ("badGateway", "Bad Gateway"),
    503: ("backendError", "We encountered an internal error. Please try again."),
    504: ("gatewayTimeout", "Gateway Timeout"),
}
What = int | Exception | Callable[[Response], Response]


@dataclass
class Trouble:
    """`what`: a status, a Refusal, Hang() or Reset() to raise, or a function that changes the correct response.
    `times` it happens still, None = until `calm`. `after`: the action is done first, and only its response fails."""

    what: What
    times: int | None
    when: Callable[[Request, str], bool]
    after: bool

    def instead(self, request: Request, response: Response | None) -> Response:
        if isinstance(self.what, Exception):
            raise self.what
        if isinstance(self.what, int):
            reason, text = _TEXTS.get(self.what, ("other", "Trouble on request."))
            return answers.error(Refusal(self.what, reason, text), request)
        assert response is not None
        return self.what(response)


class Troubles:
    def __init__(self) -> None:
        self._troubles: list[Trouble] = []
        self._denied: set[tuple[str, str]] = set()
        self._expired: set[str] = set()
        self._guard = threading.Lock()
        # Which bearer tokens count; "" means none. A test may replace this rule.
        self.takes_token: Callable[[str], bool] = lambda _: True
        # The permissions of the caller's role, for requests about them.
        self.holds: Callable[[str], bool] = lambda _: True

    def trouble(
        self,
        what: What,
        times: int | None = 1,
        when: Callable[[Request, str], bool] | str = lambda *_: True,
        after: bool = False,
    ) -> Trouble:
        """The next `times` requests for which `when(request, method)` holds end in `what`; `when` may be a method's
        name (storage.objects.insert). Troubles are used up in the order of their making."""
        rule = (lambda _, method: method == when) if isinstance(when, str) else when
        added = Trouble(what, times, rule, after or (callable(what) and not isinstance(what, Exception)))
        with self._guard:
            self._troubles.append(added)
        return added

    def calm(self) -> None:
        """Troubles, refused rights and expired tokens are over."""
        with self._guard:
            self._troubles.clear()
            self._denied.clear()
            self._expired.clear()

    def trouble_with(self, request: Request, method: str) -> Trouble | None:
        with self._guard:
            for trouble in self._troubles:
                if trouble.times != 0 and trouble.when(request, method):
                    if trouble.times is not None:
                        trouble.times -= 1
                    return trouble
        return None

    # --- rights ---------------------------------------------------------------------------------------------------

    def deny(self, permission: str = "*", prefix: str = "") -> None:
        """403 for what needs `permission` (storage.objects.list; `*` = any) below `BUCKET/prefix`."""
        with self._guard:
            self._denied.add((permission, prefix))

    def is_allowed(self, permission: str) -> bool:
        with self._guard:
            return not {(permission, ""), ("*", "")} & self._denied and self.holds(permission)

    def check_allowed(self, permission: str, where: str, listed: str | None) -> None:
        """Refusal 403; a listing needs all that it may meet."""
        path = where if listed is None else f"{where.partition('/')[0]}/{listed}"
        with self._guard:
            for denied, prefix in self._denied:
                inside = path.startswith(prefix) or (permission == "storage.objects.list" and prefix.startswith(path))
                if denied in {"*", permission} and inside:
                    text = f"The caller does not have {permission} access to the Google Cloud Storage object."
                    raise Refusal(403, "forbidden", f"{text} Permission '{permission}' denied on resource.")

    # --- tokens ---------------------------------------------------------------------------------------------------

    def expire(self, token: str) -> None:
        """401 for this bearer token from now on."""
        with self._guard:
            self._expired.add(token)

    def check_token(self, request: Request) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        with self._guard:
            expired = token in self._expired
        if expired or not self.takes_token(token):
            raise Refusal(401, "authError", "Invalid Credentials", {"WWW-Authenticate": "Bearer"})


def spoilt(**changes: Any) -> Callable[[Response], Response]:
    """The correct response with another status, body, headers, cut_after ... (`what` of a trouble)."""
    return lambda response: replace(response, **changes)

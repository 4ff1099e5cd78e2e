"""The demo's client of the supervisor's HTTP API, with the standard library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]
TIMEOUT_S = 20.0


class NoResponse(Exception):
    """No server listens there, or the connection broke."""


class Refused(Exception):
    """The response is an error; the text is the supervisor's own."""


@dataclass(frozen=True)
class View:
    """One run as the API shows it: the run, its attempts, and the tries of an attempt that has no machine yet."""

    run: Json
    attempts: list[Json]

    @property
    def status(self) -> str:
        return str(self.run["status"])

    @property
    def number(self) -> int:
        """The number of the newest attempt; 0 = none yet."""
        return int(self.attempts[-1]["number"]) if self.attempts else 0

    @property
    def live(self) -> Json | None:
        """The attempt that is training now: running, and past its first step."""
        last = self.attempts[-1] if self.attempts else None
        if self.status != "running" or last is None or last["ended_at"] is not None:
            return None
        return last if (last["step_last"] or 0) > (last["step_from"] or 0) else None


class Api:
    """`locate` returns the present address: a restarted supervisor listens elsewhere. `token`: of the caller."""

    def __init__(self, locate: Callable[[], str], token: Callable[[], str]) -> None:
        self._locate, self._token = locate, token

    def get(self, path: str) -> Json:
        return self.call("GET", path)

    def post(self, path: str, body: Json) -> Json:
        return self.call("POST", path, body)

    def view(self, run_id: str) -> View:
        """The run is read last: its sentence is never older than the attempts beside it."""
        attempts = self.get(f"/v1/runs/{run_id}/attempts")["attempts"]
        return View(self.get(f"/v1/runs/{run_id}"), attempts)

    def events(self, run_id: str, after: int) -> list[Json]:
        return list(self.get(f"/v1/runs/{run_id}/events?after={after}&limit=100")["events"])

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """The response as JSON. Raises NoResponse, Refused."""
        parts = urlsplit(self._locate())
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        try:
            raw = None if body is None else json.dumps(body)
            headers = {"Authorization": f"Bearer {self._token()}"}
            if raw is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, raw, headers)
            response = connection.getresponse()
            data = json.loads(response.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NoResponse(f"{method} {path}: {error!r}") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise Refused(f"{method} {path}: {response.status} {data.get('code')}: {data.get('detail')}")
        return dict(data)

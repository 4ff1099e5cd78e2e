"""One pushed beat: to the supervisor's url, with its answer (RULES section 4).

The url is one of the job's, or stands in a file that the supervisor writes anew at each start; that is read again after
every push that failed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple
from urllib.parse import quote, urlsplit

from supervisor.agent.store.site import Site, Unreachable
from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat

TIMEOUT_S = 5.0
NEXT_MIN_S, NEXT_MAX_S = 0.1, 300.0


class PushFailed(Exception):
    """No supervisor took this beat; the text says why. The store has it or will have it."""


@dataclass(frozen=True)
class Answer:
    """`next_s`: seconds until the next push, None = our own pace."""

    next_s: Optional[float]
    stop: bool
    follow_logs: bool


class Pusher:
    """Used by one thread at a time."""

    def __init__(
        self,
        server_file: Optional[str],
        run_id: str,
        server_url: Optional[str] = None,
        authorities: Optional[str] = None,
    ) -> None:
        """`server_url` counts where it is given; `authorities` as those of a Site."""
        self._server_file, self._server_url = server_file, server_url
        self._authorities = authorities
        self._path = "/v1/runs/%s/heartbeat" % quote(run_id, safe="")
        self._url: Optional[str] = None  # as the file names it
        self._sites: Dict[str, Site] = {}  # the one that was pushed to last, by its url

    def push(self, beat: Beat) -> Answer:
        """Raises PushFailed."""
        try:
            status, body = self._post(heartbeat.encode_within(beat, heartbeat.MAX_BYTES))
            if status != 200:
                raise PushFailed("the supervisor answered %d" % status)
            return _answer(json.loads(body))
        except Unreachable as error:
            self._url = None
            raise PushFailed(str(error)) from None
        except (OSError, ValueError, RecursionError) as error:
            self._url = None
            raise PushFailed("%s: %s" % (type(error).__name__, error)) from None
        except PushFailed:
            self._url = None
            raise

    def _post(self, body: bytes) -> Tuple[int, bytes]:
        url = self._read_url()
        if url not in self._sites:
            self._sites = {url: Site(url, TIMEOUT_S, self._authorities)}
        # A connection is not kept: the supervisor closes idle ones sooner than the next beat comes.
        headers = {"Content-Type": "application/json", "Connection": "close"}
        answer = self._sites[url].call("POST", urlsplit(url).path.rstrip("/") + self._path, body, headers)
        return answer.status, answer.body

    def _read_url(self) -> str:
        if self._server_url is not None:
            return self._server_url
        if self._url is None:
            if self._server_file is None:
                raise PushFailed("this machine has no way to the supervisor")
            with open(self._server_file, encoding="utf-8") as source:
                data = json.load(source)
            url = data.get("url") if isinstance(data, dict) else None
            if not isinstance(url, str) or urlsplit(url).scheme not in {"http", "https"}:
                raise PushFailed("%s names no url" % self._server_file)
            self._url = url
        return self._url


def _answer(data: Any) -> Answer:
    if not isinstance(data, dict):
        raise ValueError("the answer is no object")
    next_s = data.get("next_s")
    if not isinstance(next_s, (int, float)) or isinstance(next_s, bool) or not math.isfinite(next_s):
        next_s = None
    else:
        next_s = min(max(float(next_s), NEXT_MIN_S), NEXT_MAX_S)
    return Answer(next_s, data.get("stop") is True, data.get("follow_logs") is True)

"""The door for trainings that already speak Kubeflow's trainer status protocol, such as Transformers' Trainer.

With these variables set, Transformers adds its own callback to an unchanged script. It POSTs at most every 5 s
{"trainerStatus": {"progressPercentage", "estimatedRemainingSeconds", "metrics": [{"name", "value"}],
"lastUpdatedTime"}} with a bearer token; all metric values are texts (KEP-2779 of kubeflow/trainer; KubeflowCallback in
transformers/integrations/integration_utils.py). The names of the variables were changed once, so both are set.

Only 127.0.0.1 is served, and only who can read the token file. Plain HTTP is enough there: nobody but root sees
loopback, the token is good for nothing else, and certificates would need a program that images lack. The training's
environment is not touched where it has a status server of its own.

Nothing runs until somebody connects: the kernel keeps the connection until `poll` sees it, and then a thread answers
until it has been idle for IDLE_S. Whatever comes in costs little: one connection at a time, READ_S for each,
BODY_BYTES, a pause between two, and a handful of reports that wait to be read.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import os
import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Tuple

from supervisor.agent.machine.folder import open_own
from supervisor.contract.heartbeat import is_count, is_metric_name

PREFIXES = ("KUBEFLOW_TRAINER_SERVER_", "KUBEFLOW_TRAINER_STATUS_")
STEPS, TOTALS = ("current_step", "global_step", "step"), ("total_steps", "max_steps")
_NOT_METRICS = frozenset((*STEPS, *TOTALS, "current_epoch"))
HEAD_BYTES, BODY_BYTES, METRICS, VALUE_CHARS = 8192, 65536, 256, 40
READ_S, REST_S, IDLE_S, PAUSE_S, REFUSED_PAUSE_S = 2.0, 0.2, 20.0, 0.05, 0.25
WAITING = 32  # reports that nobody has read yet: the newest count
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_log = logging.getLogger("agent")


class Refused(Exception):
    """The response's status and reason."""


class StatusDoor:
    """`poll` and `reports` are called by the main thread. `stopping`: the training has been asked to leave."""

    def __init__(self, token_path: str, stopping: Callable[[], bool]) -> None:
        self._token_path, self._stopping = token_path, stopping
        self._socket: Optional[socket.socket] = None
        self._token = b""
        self._variables: Dict[str, str] = {}  # of the open door
        self._thread: Optional[threading.Thread] = None
        self._reports: Deque[Dict[str, Any]] = deque(maxlen=WAITING)
        self._total: Optional[int] = None

    def open(self, env: Mapping[str, str]) -> Dict[str, str]:
        """Variables for a command with the environment `env`; none where it has a server of its own, or where the door
        cannot be opened."""
        if any(prefix + "URL" in env for prefix in PREFIXES):
            return {}
        if self._variables:  # the command is started again
            return {**self._variables, **_past_proxies(env)}
        try:
            self._token = os.urandom(24).hex().encode()
            with open(self._token_path, "wb", opener=open_own) as target:
                target.truncate()
                target.write(self._token)
            self._socket = socket.socket()
            self._socket.bind(("127.0.0.1", 0))
            self._socket.listen(8)
            self._socket.settimeout(IDLE_S)
        except OSError as error:
            _log.warning("no door for the trainer's status: %s", error)
            self.close()
            return {}
        url = "http://127.0.0.1:%d/status" % self._socket.getsockname()[1]
        self._variables = {prefix + "URL": url for prefix in PREFIXES}
        self._variables.update((prefix + "TOKEN", self._token_path) for prefix in PREFIXES)
        return {**self._variables, **_past_proxies(env)}

    def poll(self) -> None:
        """Start to answer if somebody has connected. Never blocks."""
        if self._socket is None or (self._thread is not None and self._thread.is_alive()):
            return
        if select.select([self._socket], [], [], 0)[0]:
            self._thread = threading.Thread(target=self._serve, name="status", daemon=True)
            self._thread.start()

    def reports(self) -> Iterator[Dict[str, Any]]:
        """New ones, as lines of the progress file would have them."""
        while self._reports:
            yield self._reports.popleft()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _serve(self) -> None:
        listener = self._socket
        while listener is not None:
            try:
                connection, _ = listener.accept()
            except OSError:  # idle for long, or closed
                return
            status = "400 Bad Request"
            with connection, suppress(OSError):
                status = self._answer(connection)
                connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status.encode())
                connection.shutdown(socket.SHUT_WR)
                _read_rest(connection)
            time.sleep(PAUSE_S if status.startswith("200") else REFUSED_PAUSE_S)

    def _answer(self, connection: socket.socket) -> str:
        """OSError: the other side is gone or too slow."""
        try:
            status = json.loads(self._body(connection))["trainerStatus"]
            report, self._total = report_of(status, self._total, self._stopping())
        except Refused as refused:
            return str(refused)
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return "422 Unprocessable Entity"
        if report is not None:
            self._reports.append(report)
        return "200 OK"

    def _body(self, connection: socket.socket) -> bytes:
        """Raises Refused, OSError."""
        until = time.monotonic() + READ_S
        data = b""
        while b"\r\n\r\n" not in data and len(data) <= HEAD_BYTES:
            data += _more(connection, until)
        head, _, body = data.partition(b"\r\n\r\n")
        if len(head) > HEAD_BYTES:
            raise Refused("431 Request Header Fields Too Large")
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if not hmac.compare_digest(fields.get("authorization", "").encode("latin-1"), b"Bearer " + self._token):
            raise Refused("401 Unauthorized")
        if not first.startswith("POST "):
            raise Refused("405 Method Not Allowed")
        length = fields.get("content-length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused("411 Length Required")
        if len(length) > 9 or int(length) > BODY_BYTES:
            raise Refused("413 Content Too Large")
        while len(body) < int(length):
            body += _more(connection, until)
        return body[: int(length)]


def _more(connection: socket.socket, until: float) -> bytes:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise OSError("too slow")
    connection.settimeout(left_s)
    data = connection.recv(16384)
    if not data:
        raise OSError("closed")
    return data


def _read_rest(connection: socket.socket) -> None:
    """A little of what was not read: else the kernel resets the connection, and the response is lost. OSError."""
    connection.settimeout(REST_S)
    for _ in range(8):
        if not connection.recv(16384):
            return


def report_of(
    status: Mapping[str, Any], total: Optional[int], stopping: bool
) -> Tuple[Optional[Dict[str, Any]], Optional[int]]:
    """(the report that this status makes, the total that is known now). `total`: what earlier ones named.

    A status without a step makes no report: a percent of a long training stands still for an hour, and the run would
    look stalled. 100 % is the last step, as the end of a training names no step; but not once the training was asked to
    leave: Transformers says 100 % after its save on TERM, too, and the run would look finished.
    """
    values = dict(_values(status.get("metrics")))
    total = next((number for number in map(_count, _picked(values, TOTALS)) if number), total)
    step = next((number for number in map(_count, _picked(values, STEPS)) if number is not None), None)
    percent = status.get("progressPercentage")
    if isinstance(percent, (int, float)) and percent >= 100 and not stopping:
        step = total if step is None else step
    if not step:  # step 0 would say that steps are counted from 0
        return None, total
    report: Dict[str, Any] = {"step": step}
    if total is not None:
        report["total"] = total
    metrics = {name: value for name, value in values.items() if name not in _NOT_METRICS}
    if metrics:
        report["metrics"] = {name: value for name, value in metrics.items() if math.isfinite(value)}
        report["nonfinite"] = {name: str(value) for name, value in metrics.items() if not math.isfinite(value)}
    return report, total


def _values(rows: Any) -> Iterator[Tuple[str, float]]:
    for row in rows[:METRICS] if isinstance(rows, list) else ():
        name, value = row.get("name"), row.get("value")
        if is_metric_name(name) and isinstance(value, (str, int, float)) and len(str(value)) <= VALUE_CHARS:
            with suppress(ValueError, OverflowError):
                yield name, float(value)


def _picked(values: Mapping[str, float], names: Tuple[str, ...]) -> List[float]:
    return [values[name] for name in names if name in values]


def _count(value: float) -> Optional[int]:
    return int(value) if math.isfinite(value) and is_count(int(value)) else None


def _past_proxies(env: Mapping[str, str]) -> Dict[str, str]:
    """A client that uses a proxy would look for our loopback there."""
    if not any(env.get(name) for name in _PROXIES):
        return {}
    listed = env.get("no_proxy") or env.get("NO_PROXY") or ""
    both = ",".join(part for part in (listed, "127.0.0.1") if part)
    return {"no_proxy": both, "NO_PROXY": both}

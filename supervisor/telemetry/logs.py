"""The log: the names of its fields, each defined once, and the two forms of a line.

A line has an action (one word), ids, and a sentence:
    LOG.info("Attempt 3 ended: preempted.", extra={telemetry.ACTION: "attempt_ended", telemetry.RUN_ID: run.run_id})
Plain lines are for a terminal, JSON lines for a log collector; both have the same fields. A line that is written while
a request is handled, in any thread, carries the request's id and its caller. Every text of a line is redacted,
tracebacks too.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO

from supervisor.domain.texts import visible
from supervisor.telemetry.redaction import LINE_MAX, hidden, hidden_field

ACTION = "action"
RUN_ID = "run_id"
ATTEMPT = "attempt"
MACHINE = "machine"
PROVIDER = "provider"
ZONE = "zone"
CELL = "cell"
EPOCH = "epoch"
EVENT = "event"
EVENT_ID = "event_id"
SEQUENCE = "sequence"
COUNT = "count"
REQUEST_ID = "request_id"
OWNER = "owner"
ACTOR = "actor"
TOKEN_ID = "token_id"  # noqa: S105 - the id of a token, not the token
OPERATION = "operation"
STATUS = "status"
DURATION_S = "duration_s"
METHOD = "method"
PATH = "path"
DETAIL = "detail"
ERROR = "error"
REASON = "reason"
CHANNEL = "channel"
STEP_S = "step_s"

# Libraries that log every request or job: httpx with full URLs, which may be credentials; apscheduler with a warning
# for each poll during a tick that was woken earlier.
_QUIET = {
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "httpcore": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "alembic": logging.WARNING,
    "apscheduler": logging.ERROR,
}
_BREAKS = re.compile(r'[ "=\t]')  # a value with one of these needs quotes
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
# The fields of the request that is being handled; None outside of requests.
_REQUEST: ContextVar[dict[str, str] | None] = ContextVar("request", default=None)


def configure(level: str = "info", log_format: str = "plain", stream: IO[str] | None = None) -> None:
    """Send the log of the process to `stream` (None = standard error), replacing earlier handlers."""
    logging.basicConfig(level=level.upper(), handlers=[handler(log_format, stream)], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))


def handler(log_format: str, stream: IO[str] | None = None) -> logging.Handler:
    """A handler that writes to `stream` (None = standard error)."""
    stream_handler = logging.StreamHandler(stream)
    stream_handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    stream_handler.addFilter(_add_request)
    return stream_handler


def begin_request(request_id: str) -> Token[dict[str, str] | None]:
    """From here on lines carry this id: in this task, and in threads that receive its context."""
    return _REQUEST.set({REQUEST_ID: request_id})


def end_request(begun: Token[dict[str, str] | None]) -> None:
    _REQUEST.reset(begun)


def set_caller(actor: str, token_id: str) -> None:
    """The sender of the request that is being handled. Outside of a request it does nothing."""
    request = _REQUEST.get()
    if request is not None:
        request.update({ACTOR: actor, TOKEN_ID: token_id})


def _add_request(record: logging.LogRecord) -> bool:
    """The fields of the line itself win."""
    for name, value in (_REQUEST.get() or {}).items():
        vars(record).setdefault(name, value)
    return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hidden(_message(record)),
        }
        line.update((name, hidden_field(name, value)) for name, value in _fields(record))
        if record.exc_info:
            line["exception"] = hidden(self.formatException(record.exc_info))
        return json.dumps(line)


class PlainFormatter(logging.Formatter):
    """`time LEVEL action: message  field=value …`; a record is one line, whatever its message contains."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(_fields(record))
        action = fields.pop(ACTION, None)
        message = hidden(_message(record))
        said = message if action is None else f"{hidden_field(ACTION, action)}: {message}"
        given = "".join(f" {name}={_quoted(hidden_field(name, value))}" for name, value in fields.items())
        line = _one_line(f"{_time(record)} {record.levelname:<7} {said}{given}"[:LINE_MAX])
        return f"{line}\n{visible(hidden(self.formatException(record.exc_info)))}" if record.exc_info else line


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The fields given by `extra`, the action first, without empty ones."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if ACTION in extra:
        yield ACTION, extra.pop(ACTION)
    yield from ((name, value) for name, value in extra.items() if value not in (None, ""))


def _message(record: logging.LogRecord) -> str:
    """Values that do not fit the sentence must not raise: logging itself would print them without redaction."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - whatever a value does while it is formatted
        return f"{record.msg} (with {len(record.args or ())} values that do not fit)"


def _time(record: logging.LogRecord) -> str:
    second = int(record.created)
    return f"{_second(second)}.{int((record.created - second) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if _BREAKS.search(text) else text


def _one_line(text: str) -> str:
    """Control characters could forge a second line or move the reader's cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

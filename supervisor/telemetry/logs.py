"""Names of log fields, each defined once, and the two shapes of a log line.

A line has an action (what was done or seen, in one word), ids, and a sentence:
    LOG.info("Attempt 3 ended: preempted.", extra={telemetry.ACTION: "attempt_ended", telemetry.RUN_ID: run.run_id})
Plain lines are for a terminal, JSON lines for whoever collects them; both carry the same fields, and every text of
both goes through `telemetry_redaction`. A line that is written while a request is handled, in whichever thread, carries
that request's id and who asked.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO

from supervisor.domain.access.plaintext import visible
from supervisor.telemetry.redaction import LINE_MAX, hidden, hidden_field

# Log fields.
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
TOKEN_ID = "token_id"  # noqa: S105 - which token, not the token
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

# Libraries that tell of every request or job: httpx with full URLs, which may be credentials; apscheduler with a
# warning for each poll that falls into a tick that was woken earlier.
_QUIET = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "alembic": logging.WARNING,
    "apscheduler": logging.ERROR,
}
_BREAKS = re.compile(r'[ "=\t]')  # what a value may not hold without quotes
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@dataclass(slots=True)
class Asked:
    """The request that is being handled. `actor` and `token_id` "" = not known, or not yet."""

    request_id: str
    actor: str = ""
    token_id: str = ""


_ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def begin_request(request_id: str) -> Token[Asked | None]:
    """From here on lines carry this id: in this task, and in threads that its context is handed to."""
    return _ASKED.set(Asked(request_id))


def end_request(begun: Token[Asked | None]) -> None:
    _ASKED.reset(begun)


def asked_by(actor: str, token_id: str) -> None:
    """Who sent the request that is being handled; without one nothing happens."""
    asked = _ASKED.get()
    if asked is not None:
        asked.actor, asked.token_id = actor, token_id


class _OfRequest(logging.Filter):
    """Adds the request to a line; what the line says itself stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        asked = _ASKED.get()
        if asked is not None:
            told = vars(record)
            told.setdefault(REQUEST_ID, asked.request_id)
            told.setdefault(ACTOR, asked.actor)
            told.setdefault(TOKEN_ID, asked.token_id)
        return True


def configure(level: str = "info", log_format: str = "plain", stream: IO[str] | None = None) -> None:
    """Send the process's log to `stream` (None = standard error), replacing earlier handlers."""
    logging.basicConfig(level=level.upper(), handlers=[handler(log_format, stream)], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))


def handler(log_format: str, stream: IO[str] | None = None) -> logging.Handler:
    """One that writes to `stream` (None = standard error)."""
    made = logging.StreamHandler(stream)
    made.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    made.addFilter(_OfRequest())
    return made


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The fields given by `extra`, the action first, empty ones left out."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if ACTION in extra:
        yield ACTION, extra.pop(ACTION)
    yield from ((name, value) for name, value in extra.items() if value not in (None, ""))


def _message(record: logging.LogRecord) -> str:
    """A sentence and values that do not fit are told as they are: logging itself would print them past us."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - whatever a value does when it is told
        return f"{record.msg} (with {len(record.args or ())} values that do not fit)"


def _time(record: logging.LogRecord) -> str:
    second = int(record.created)
    return f"{_second(second)}.{int((record.created - second) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


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
    """`time LEVEL action: message  field=value …`; a record is one line, whatever its message holds."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(_fields(record))
        action = fields.pop(ACTION, None)
        message = hidden(_message(record))
        said = message if action is None else f"{hidden_field(ACTION, action)}: {message}"
        given = "".join(f" {name}={_quoted(hidden_field(name, value))}" for name, value in fields.items())
        line = f"{_time(record)} {record.levelname:<7} {said}{given}"
        line = _one_line(line[:LINE_MAX])
        return (
            f"{line}\n{visible(hidden(self.formatException(record.exc_info)))}" if record.exc_info else line
        )


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if _BREAKS.search(text) else text


def _one_line(text: str) -> str:
    """Control characters could forge a second line or move the reader's cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

"""Names of log fields, each defined once, and the two shapes of a log line.

A line has an action (what was done or seen, in one word), ids, and a sentence:
    LOG.info("Attempt 3 ended: preempted.", extra={telemetry.ACTION: "attempt_ended", telemetry.RUN_ID: run.run_id})
Plain lines are for a terminal, JSON lines for whoever collects them; both carry the same fields.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO

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
METHOD = "method"
PATH = "path"
DETAIL = "detail"
ERROR = "error"
REASON = "reason"
CHANNEL = "channel"
STEP_S = "step_s"

LINE_MAX = 65536  # characters of one log line
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
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure(level: str = "info", log_format: str = "plain", stream: IO[str] | None = None) -> None:
    """Send the process's log to `stream` (None = standard error), replacing earlier handlers."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The fields given by `extra`, the action first, empty ones left out."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if ACTION in extra:
        yield ACTION, extra.pop(ACTION)
    yield from ((name, value) for name, value in extra.items() if value not in (None, ""))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:LINE_MAX],
        }
        line.update((name, _plain_json(value)) for name, value in _fields(record))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _plain_json(value: object) -> object:
    """JSON has no NaN and no Infinity: a reader must never choke on a line."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class PlainFormatter(logging.Formatter):
    """`time LEVEL action: message  field=value …`; a record is one line, whatever its message holds."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(_fields(record))
        action = fields.pop(ACTION, None)
        said = record.getMessage() if action is None else f"{action}: {record.getMessage()}"
        given = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
        line = f"{_time(record)} {record.levelname:<7} {said}{given}"
        line = _one_line(line[:LINE_MAX])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if any(char in text for char in ' "=\t') else text


def _one_line(text: str) -> str:
    """Control characters could forge a second line or move the reader's cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
